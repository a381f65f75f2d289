#include <fmt/format.h>

#include "base/units.hpp"
#include "base/wrapped_text.hpp"
#include "batch/document_places.hpp"
#include "batch/validate.hpp"
#include "compiler/print.hpp"

namespace switchyard::compiler {
namespace {

// "start: a, b, c", continued on further lines under `a`.
std::string listed(const std::string& start, const std::vector<std::string>& items) {
  std::string text = start;
  size_t column = start.size();
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string item = items[i] + (i + 1 < items.size() ? "," : "");
    if (column + 1 + item.size() > kTextColumns) {
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

std::string replicas_text(const batch::PhasePlaces& phase) {
  std::string text = fmt::format("{:>8}{:>15}{:>11}{:>12}{:>10}{:>18}{:>12}\n", "replica", "micro-batches", "documents",
                                 "tokens", "padding", "query-key pairs", "even share");
  for (size_t r = 0; r < phase.replicas.size(); ++r) {
    const batch::ReplicaPlaces& replica = phase.replicas[r];
    text += fmt::format("{:>8}{:>15}{:>11}{:>12}{:>10}{:>18.0f}{:>12.3f}\n", r, replica.micro_batches.size(),
                        replica.documents, replica.tokens, replica.padding, replica.pairs, replica.share);
  }
  return text;
}

// A line for each ring rank.
std::string micro_batch_text(const std::vector<batch::RingPlace>& ranks, const std::string& name, bool ring,
                             std::span<const i64> lengths) {
  std::string text;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const batch::RingPlace& rank = ranks[r];
    std::vector<std::string> items;
    for (const batch::Piece& piece : rank.pieces) items.push_back(piece_text(piece, lengths));
    const std::string start =
        ring ? fmt::format("{:>10} {:>9} {:>14.0f} {:>9} {:>9} {:>9}:", fmt::format("{}.{}", name, r), rank.tokens,
                           rank.pairs, rank.keys.inside, rank.keys.across, format_bytes({rank.key_bytes}))
             : fmt::format("{:>8} {:>9}:", name, rank.tokens);
    text += listed(start, items);
  }
  return text;
}

std::string phase_text(const batch::PhasePlaces& phase, std::span<const i64> lengths, const std::string& name) {
  std::string text =
      "\n" + wrapped(fmt::format("Up to {} tokens, {} \"{}\", {} document{}\n", phase.max_length,
                                 letter_of(phase.strategy), name, phase.documents, phase.documents == 1 ? "" : "s"));
  text += replicas_text(phase);
  text += fmt::format("The slowest replica has {:.3f} of an even share; ", phase.slowest);
  text += phase.ring ? fmt::format(
                           "no placement has less than {:.3f}, where neither\nthe room of ring ranks nor most of "
                           "their messages are counted.\n",
                           phase.bound)
                     : fmt::format("whole documents allow {:.3f} at best.\n", phase.bound);
  text += phase.ring ? "replica.micro-batch.ring rank, its tokens, query-key pairs, keys from ranks of its host, from\n"
                       "another host, their bytes in all passes, document (tokens, or first..end of a part)\n"
                     : "replica.micro-batch, its tokens, document (tokens)\n";
  for (size_t r = 0; r < phase.replicas.size(); ++r)
    for (size_t m = 0; m < phase.replicas[r].micro_batches.size(); ++m)
      text += micro_batch_text(phase.replicas[r].micro_batches[m], fmt::format("{}.{}", r, m), phase.ring, lengths);
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
  for (const batch::PhasePlaces& phase : batch::document_places(plan, lengths, buckets, work))
    text += phase_text(phase, lengths, names[static_cast<size_t>(phase.strategy)]);
  return text;
}

}  // namespace switchyard::compiler
