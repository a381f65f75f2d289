#include "runtime/feeds.hpp"

#include "base/errors.hpp"
#include "base/random.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

at::Tensor keys_of(const batch::MicroBatch& micro_batch, const DropoutSeed& seed) {
  at::Tensor keys = zeros({batch::tokens(micro_batch)}, DType::i64, at::kCPU);
  i64* key = keys.data_ptr<i64>();
  const std::uint64_t step = mix(mix(seed.seed) ^ static_cast<std::uint64_t>(seed.step));
  for (const batch::Piece& piece : micro_batch.shard[0]) {
    const std::uint64_t document = mix(step ^ static_cast<std::uint64_t>(piece.doc));
    for (int i = 0; i < piece.count; ++i) *key++ = static_cast<i64>(mix(document ^ static_cast<std::uint64_t>(i)));
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
  }

  // A document whose first token has this row.
  void fill(i64 row, i64 number, const std::vector<std::int32_t>& document) {
    const auto size = static_cast<i64>(document.size());
    const std::vector<std::uint8_t>* counts =
        given_.counts.empty() ? nullptr : &given_.counts.at(static_cast<size_t>(number));
    check(!counts || counts->empty() || counts->size() == document.size(), "document {} of {} tokens has a mask of {}",
          number, size, counts ? counts->size() : 0);
    i64 *id = ids_.data_ptr<i64>() + row, *label = labels_.data_ptr<i64>() + row;
    double* weight = weights_.data_ptr<double>() + row;
    for (i64 i = 0; i < size; ++i) id[i] = document[static_cast<size_t>(i)];
    for (i64 i = 0; i + 1 < size; ++i) {
      if (counts && !counts->empty() && (*counts)[static_cast<size_t>(i) + 1] == 0) continue;
      label[i] = id[i + 1];
      weight[i] = weight_;
    }
  }

  void give(MicroBatchFeeds& feeds, const FeedSettings& settings) const {
    feeds.ids = ids_.to(settings.device);
    feeds.labels = labels_.to(settings.device);
    feeds.weights = weights_.to(settings.device, scalar_type(settings.state));
  }

 private:
  const Labels& given_;
  const double weight_;
  at::Tensor ids_, labels_, weights_;
};

}  // namespace

MicroBatchFeeds feeds_of(const batch::MicroBatch& micro_batch, const Documents& documents, const Labels& labels,
                         i64 valid_tokens, const FeedSettings& settings) {
  check(micro_batch.shard.size() == 1, "a micro-batch of {} ring shards", micro_batch.shard.size());
  MicroBatchFeeds feeds;
  feeds.T = batch::tokens(micro_batch);
  feeds.squared_lengths = batch::squared_lengths(micro_batch);
  if (settings.seed) feeds.keys = keys_of(micro_batch, *settings.seed).to(settings.device);
  at::Tensor positions = zeros({feeds.T}, DType::i64, at::kCPU);
  i64* position = positions.data_ptr<i64>();
  TokenRows rows(feeds.T, labels, valid_tokens);
  i64 row = 0;
  for (const batch::Piece& piece : micro_batch.shard[0]) {
    if (piece.doc < 0) {
      row += piece.count;
      continue;
    }
    const int first = static_cast<int>(row);
    const auto& document = documents.at(static_cast<size_t>(piece.doc));
    check(piece.first == 0 && piece.stride == 1 &&
              (!settings.reads_tokens || piece.count == static_cast<int>(document.size())),
          "document {} is not whole in its micro-batch", piece.doc);
    check(row + piece.count <= feeds.T, "pieces of more than {} tokens in a micro-batch of {}", feeds.T, feeds.T);
    for (int i = 0; i < piece.count; ++i) position[row + i] = i;
    if (settings.reads_tokens) rows.fill(row, piece.doc, document);
    feeds.blocks.push_back({.q = first, .qn = piece.count, .k = first, .kn = piece.count, .causal = true});
    row += piece.count;
  }
  check(row == feeds.T, "pieces of {} tokens in a micro-batch of {}", row, feeds.T);
  feeds.positions = positions.to(settings.device);
  rows.give(feeds, settings);
  return feeds;
}

}  // namespace switchyard::runtime
