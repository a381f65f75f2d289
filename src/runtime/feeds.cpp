#include "runtime/feeds.hpp"

#include "base/errors.hpp"
#include "base/random.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

at::Tensor keys_of(const batch::MicroBatch& micro_batch, const DropoutSeed& seed) {
  at::Tensor keys = zeros({micro_batch.T}, DType::i64, at::kCPU);
  i64* key = keys.data_ptr<i64>();
  const std::uint64_t step = mix(mix(seed.seed) ^ static_cast<std::uint64_t>(seed.step));
  for (const batch::Piece& piece : micro_batch.shard[0]) {
    const std::uint64_t document = mix(step ^ static_cast<std::uint64_t>(piece.doc));
    for (int i = 0; i < piece.count; ++i) *key++ = static_cast<i64>(mix(document ^ static_cast<std::uint64_t>(i)));
  }
  return keys;
}

}  // namespace

MicroBatchFeeds feeds_of(const batch::MicroBatch& micro_batch, const Documents& documents, i64 valid_tokens,
                         DType state, const at::Device& device, std::optional<DropoutSeed> seed) {
  check(micro_batch.shard.size() == 1, "a micro-batch of {} ring shards", micro_batch.shard.size());
  MicroBatchFeeds feeds;
  feeds.T = micro_batch.T;
  feeds.squared_lengths = batch::squared_lengths(micro_batch);
  if (seed) feeds.keys = keys_of(micro_batch, *seed).to(device);
  at::Tensor ids = zeros({feeds.T}, DType::i64, at::kCPU), positions = zeros({feeds.T}, DType::i64, at::kCPU),
             labels = empty({feeds.T}, DType::i64, at::kCPU), weights = zeros({feeds.T}, DType::f64, at::kCPU);
  i64 *id = ids.data_ptr<i64>(), *position = positions.data_ptr<i64>(), *label = labels.data_ptr<i64>();
  double* weight = weights.data_ptr<double>();
  i64 row = 0;
  for (const batch::Piece& piece : micro_batch.shard[0]) {
    if (piece.doc < 0) {
      for (int i = 0; i < piece.count; ++i) label[row + i] = -1;
      row += piece.count;
      continue;
    }
    const auto& document = documents.at(static_cast<size_t>(piece.doc));
    check(piece.first == 0 && piece.stride == 1 && piece.count == static_cast<int>(document.size()),
          "document {} is not whole in its micro-batch", piece.doc);
    for (int i = 0; i < piece.count; ++i) {
      const bool labelled = i + 1 < piece.count;
      id[row + i] = document[static_cast<size_t>(i)];
      position[row + i] = i;
      label[row + i] = labelled ? document[static_cast<size_t>(i) + 1] : -1;
      weight[row + i] = labelled ? 1.0 / static_cast<double>(valid_tokens) : 0;
    }
    const int first = static_cast<int>(row);
    feeds.blocks.push_back({.q = first, .qn = piece.count, .k = first, .kn = piece.count, .causal = true});
    row += piece.count;
  }
  check(row == feeds.T, "pieces of {} tokens in a micro-batch of {}", row, feeds.T);
  feeds.ids = ids.to(device);
  feeds.positions = positions.to(device);
  feeds.labels = labels.to(device);
  feeds.weights = weights.to(device, scalar_type(state));
  return feeds;
}

}  // namespace switchyard::runtime
