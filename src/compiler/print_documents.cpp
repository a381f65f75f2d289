#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/errors.hpp"
#include "batch/key_exchange.hpp"
#include "batch/ring_map.hpp"
#include "batch/validate.hpp"
#include "compiler/print.hpp"

namespace switchyard::compiler {
namespace {

constexpr size_t kColumns = 100;

// "start: a, b, c", continued on further lines under `a`.
std::string wrapped(const std::string& start, const std::vector<std::string>& items) {
  std::string text = start;
  size_t column = start.size();
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string item = items[i] + (i + 1 < items.size() ? "," : "");
    if (column + 1 + item.size() > kColumns) {
      text += "\n" + std::string(start.size(), ' ');
      column = start.size();
    }
    text += " " + item;
    column += 1 + item.size();
  }
  return text + "\n";
}

std::string piece_text(const batch::Piece& piece, std::span<const i64> lengths) {
  if (piece.doc < 0) return fmt::format("padding {}", piece.count);
  if (piece.count == lengths[static_cast<size_t>(piece.doc)]) return fmt::format("{} ({})", piece.doc, piece.count);
  return fmt::format("{} ({}..{})", piece.doc, piece.first, end_of(piece));
}

struct Row {
  std::set<i64> documents;
  i64 tokens = 0, padding = 0;
  double pairs = 0;
};

Row row_of(const std::vector<batch::MicroBatch>& replica) {
  Row row;
  for (const batch::MicroBatch& micro_batch : replica) {
    row.tokens += tokens(micro_batch);
    row.pairs += attention_pairs(micro_batch);
    for (const auto& shard : micro_batch.shard)
      for (const batch::Piece& piece : shard) {
        if (piece.doc < 0)
          row.padding += piece.count;
        else
          row.documents.insert(piece.doc);
      }
  }
  return row;
}

std::string replicas_text(const batch::PhasePlan& phase, const std::vector<double>& share) {
  std::string text = fmt::format("{:>8}{:>15}{:>11}{:>12}{:>10}{:>18}{:>12}\n", "replica", "micro-batches", "documents",
                                 "tokens", "padding", "query-key pairs", "even share");
  for (size_t r = 0; r < phase.replica.size(); ++r) {
    const Row row = row_of(phase.replica[r]);
    text += fmt::format("{:>8}{:>15}{:>11}{:>12}{:>10}{:>18.0f}{:>12.3f}\n", r, phase.replica[r].size(),
                        row.documents.size(), row.tokens, row.padding, row.pairs, share[r]);
  }
  return text;
}

// A line for each rank of the ring; null: there is none.
std::string micro_batch_text(const batch::MicroBatch& micro_batch, const std::string& name, const batch::Ring* rings,
                             std::span<const i64> lengths) {
  std::vector<int> hosts;
  for (size_t ring = 0; ring < micro_batch.shard.size(); ++ring)
    hosts.push_back(rings ? static_cast<int>(ring) / rings->ranks_per_host : 0);
  std::vector<batch::ReceivedKeys> received(hosts.size());
  for (const std::vector<batch::KeyMessage>& round : batch::key_exchange(micro_batch, hosts).rounds)
    for (const batch::KeyMessage& message : round) {
      const auto from = static_cast<size_t>(message.from), to = static_cast<size_t>(message.to);
      (hosts[from] == hosts[to] ? received[to].inside : received[to].across) += message.count;
    }
  std::string text;
  for (size_t ring = 0; ring < micro_batch.shard.size(); ++ring) {
    const std::vector<batch::Piece>& shard = micro_batch.shard[ring];
    std::vector<std::string> items;
    for (const batch::Piece& piece : shard) items.push_back(piece_text(piece, lengths));
    const std::string start = rings ? fmt::format("{:>10} {:>9} {:>14.0f} {:>9} {:>9}:", fmt::format("{}.{}", name, ring),
                                                  micro_batch.T[ring], attention_pairs(shard), received[ring].inside,
                                                  received[ring].across)
                                    : fmt::format("{:>8} {:>9}:", name, micro_batch.T[ring]);
    text += wrapped(start, items);
  }
  return text;
}

std::string phase_text(const batch::PhasePlan& phase, std::span<const i64> lengths, const batch::BucketSpec& bucket,
                       const batch::WorkModel& work, const std::string& name) {
  size_t documents = 0;
  for (const auto& replica : phase.replica) documents += row_of(replica).documents.size();
  const batch::Balance balance = balance_of(phase, lengths, bucket, work);
  std::string text = fmt::format("\nUp to {} tokens, {} \"{}\", {} document{}\n", bucket.max_length,
                                 letter_of(phase.strategy), name, documents, documents == 1 ? "" : "s");
  text += replicas_text(phase, balance.share);
  text += fmt::format("The slowest replica has {:.3f} of an even share; whole documents allow {:.3f} at best.\n",
                      balance.slowest(), balance.bound);
  text += bucket.rings.empty() ? "replica.micro-batch, its tokens, document (tokens)\n"
                               : "replica.micro-batch.ring rank, its tokens, query-key pairs, keys from ranks of its "
                                 "host, from\nanother host, document (tokens, or first..end of a part)\n";
  for (size_t r = 0; r < phase.replica.size(); ++r)
    for (size_t m = 0; m < phase.replica[r].size(); ++m)
      text += micro_batch_text(phase.replica[r][m], fmt::format("{}.{}", r, m),
                               bucket.rings.empty() ? nullptr : &bucket.rings[r], lengths);
  return text;
}

}  // namespace

std::string print_documents(const batch::StepPlan& plan, std::span<const i64> lengths,
                            std::span<const batch::BucketSpec> buckets, const batch::WorkModel& work,
                            std::span<const std::string> names) {
  i64 tokens = 0;
  for (const i64 length : lengths) tokens += length;
  std::string text = fmt::format("Step {}: {} documents, {} tokens, {} labels, {:.1f}% padding\n", plan.step + 1,
                                 lengths.size(), tokens, plan.valid_tokens, 100 * batch::padding_share(plan));
  for (const batch::PhasePlan& phase : plan.phases) {
    const auto bucket = std::ranges::find(buckets, phase.strategy, &batch::BucketSpec::strategy);
    check(bucket != buckets.end(), "print_documents: a phase of strategy {}, which has no bucket", phase.strategy);
    text += phase_text(phase, lengths, *bucket, work, names[static_cast<size_t>(phase.strategy)]);
  }
  return text;
}

}  // namespace switchyard::compiler
