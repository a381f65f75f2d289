#include "runtime/feeds.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "base/errors.hpp"
#include "base/random.hpp"
#include "ir/operators/attention.hpp"
#include "kernels/memory.hpp"
#include "kernels/upload.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

at::Tensor keys_of(std::span<const batch::Piece> shard, i64 T, const DropoutSeed& seed) {
  at::Tensor keys = zeros({T}, DType::i64, at::kCPU);
  i64* key = keys.data_ptr<i64>();
  const std::uint64_t step = mix(mix(seed.seed) ^ static_cast<std::uint64_t>(seed.step));
  for (const batch::Piece& piece : shard) {
    const std::uint64_t document = mix(step ^ static_cast<std::uint64_t>(piece.doc));
    for (int i = 0; i < piece.count; ++i)
      *key++ = static_cast<i64>(mix(document ^ static_cast<std::uint64_t>(piece.first + i)));
  }
  return keys;
}

// The inputs that depend on tokens, on the CPU, a row for each token.
class TokenRows {
 public:
  TokenRows(i64 T, const Labels& labels, i64 valid_tokens)
      : given_(labels),
        weight_(1.0 / static_cast<double>(valid_tokens)),
        ids_(zeros({T}, DType::i64, at::kCPU)),
        labels_(empty({T}, DType::i64, at::kCPU)),
        weights_(zeros({T}, DType::f64, at::kCPU)) {
    labels_.fill_(-1);
    if (labels.sources <= 1) return;
    const kernels::MemoryScope outside(nullptr);  // like the sums of their losses, these belong to no strategy
    sources_ = zeros({T}, DType::i64, at::kCPU);
  }

  // A part of a document, whose first token has this row.
  void fill(i64 row, const batch::Piece& piece, const std::vector<std::int32_t>& document) {
    const auto size = static_cast<i64>(document.size());
    const std::vector<std::uint8_t>* counts =
        given_.counts.empty() ? nullptr : &given_.counts.at(static_cast<size_t>(piece.doc));
    check(!counts || counts->empty() || counts->size() == document.size(), "document {} of {} tokens has a mask of {}",
          piece.doc, size, counts ? counts->size() : 0);
    i64 *id = ids_.data_ptr<i64>() + row, *label = labels_.data_ptr<i64>() + row;
    double* weight = weights_.data_ptr<double>() + row;
    if (sources_.defined())
      sources_.narrow(0, row, piece.count).fill_(given_.source.at(static_cast<size_t>(piece.doc)));
    for (int i = 0; i < piece.count; ++i) {
      const i64 next = piece.first + i + 1;
      id[i] = document[static_cast<size_t>(next - 1)];
      if (next == size || (counts && !counts->empty() && (*counts)[static_cast<size_t>(next)] == 0)) continue;
      label[i] = document[static_cast<size_t>(next)];
      weight[i] = weight_;
    }
  }

  void give(MicroBatchFeeds& feeds, const FeedSettings& settings) const {
    feeds.ids = kernels::upload(ids_, settings.device);
    feeds.labels = kernels::upload(labels_, settings.device);
    feeds.weights = kernels::upload(weights_.to(scalar_type(settings.state)), settings.device);
    if (sources_.defined()) feeds.sources = kernels::upload(sources_, settings.device);
  }

 private:
  const Labels& given_;
  const double weight_;
  at::Tensor ids_, labels_, weights_, sources_;
};

// A ring rank may have a part of a document only.
std::vector<DocumentPart> parts_of(const batch::MicroBatch& micro_batch, std::span<const batch::Piece> shard) {
  std::map<i64, i64> lengths;
  for (const auto& pieces : micro_batch.shard)
    for (const batch::Piece& piece : pieces)
      if (piece.doc >= 0) lengths[piece.doc] = std::max<i64>(lengths[piece.doc], end_of(piece));
  std::vector<DocumentPart> parts;
  for (const batch::Piece& piece : shard)
    parts.push_back({piece.doc < 0 ? 0 : lengths[piece.doc], piece.first, piece.count});
  return parts;
}

}  // namespace

MicroBatchFeeds feeds_of(const batch::MicroBatch& micro_batch, const Documents& documents, const Labels& labels,
                         i64 valid_tokens, const FeedSettings& settings) {
  MicroBatchFeeds feeds;
  const std::vector<batch::Piece>& shard = micro_batch.shard.at(static_cast<size_t>(settings.ring_rank));
  feeds.T = micro_batch.T.at(static_cast<size_t>(settings.ring_rank));
  feeds.squared_lengths = batch::squared_lengths(shard);
  feeds.longest = batch::longest(shard);
  feeds.ring_rank = settings.ring_rank;
  if (settings.seed) feeds.keys = kernels::upload(keys_of(shard, feeds.T, *settings.seed), settings.device);
  at::Tensor positions = zeros({feeds.T}, DType::i64, at::kCPU);
  i64* position = positions.data_ptr<i64>();
  if (settings.by_document) {
    feeds.parts = parts_of(micro_batch, shard);
    std::iota(position, position + feeds.T, i64{0});
  }
  TokenRows rows(feeds.T, labels, valid_tokens);
  i64 row = 0;
  for (const batch::Piece& piece : shard) {
    check(row + piece.count <= feeds.T, "pieces of more than {} tokens in a micro-batch of {}", feeds.T, feeds.T);
    if (piece.doc >= 0) {
      const auto& document = documents.at(static_cast<size_t>(piece.doc));
      check(!settings.reads_tokens || std::cmp_less_equal(end_of(piece), document.size()),
            "document {} has {} tokens, and a micro-batch its first {}", piece.doc, document.size(), end_of(piece));
      if (!settings.by_document) std::iota(position + row, position + row + piece.count, piece.first);
      if (settings.reads_tokens) rows.fill(row, piece, document);
    }
    row += piece.count;
  }
  check(row == feeds.T, "pieces of {} tokens in a micro-batch of {}", row, feeds.T);
  batch::KeyExchange keys = batch::key_exchange(micro_batch, settings.passing, settings.ring_hosts);
  for (const std::vector<batch::QueryBlock>& step : keys.seen[static_cast<size_t>(settings.ring_rank)].blocks) {
    std::vector<kernels::AttentionBlock>& blocks = feeds.blocks.emplace_back();
    for (const batch::QueryBlock& block : step)
      blocks.push_back({.q = block.q, .qn = block.qn, .k = block.k, .kn = block.kn, .causal = block.causal});
  }
  if (settings.flash) {
    const i64 received = keys.seen[static_cast<size_t>(settings.ring_rank)].rows;
    std::vector<kernels::FlashStep> steps;
    for (const auto& blocks : feeds.blocks)
      steps.push_back({blocks, feeds.T, steps.empty() || received == 0 ? feeds.T : received});
    feeds.flash = kernels::flash_calls(steps, settings.device, settings.padded ? ir::padded_attention_rows : nullptr);
  }
  if (keys.seen.size() > 1) feeds.ring_keys = std::move(keys);
  feeds.positions = kernels::upload(positions, settings.device);
  rows.give(feeds, settings);
  return feeds;
}

}  // namespace switchyard::runtime
