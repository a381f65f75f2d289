#include "runtime/key_transfer.hpp"

#include <ATen/ops/ones_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "../comm/rank_threads.hpp"
#include "batch/ring_map.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

constexpr i64 kFeatures = 3;

// A document on ranks 0 and 1, one on all three, mirrored, and a whole one on rank 2.
batch::MicroBatch micro_batch() {
  const std::vector<batch::PlacedDocument> documents = {{0, 9, {0, 2}}, {1, 13, {0, 3, true}}, {2, 4, {2, 1}}};
  return batch::lay_out(documents, 3, 2);
}

struct Result {
  at::Tensor keys, values, key_gradients, value_gradients;
};

// Keys are 1000 * document + position, values the same and a half; each gathered row has a gradient of 1 and 2.
std::vector<Result> run(const batch::MicroBatch& mb, DType type, DType state, const std::vector<int>& hosts = {}) {
  const int ranks = static_cast<int>(mb.T.size());
  std::vector<Result> results(mb.T.size());
  const cluster::Cluster cluster = cluster::uniform(1, ranks);
  const auto ends = comm::run_ranks(comm::thread_fabrics(ranks, cluster, {}), [&](comm::Fabric& fabric) {
    const auto rank = static_cast<size_t>(fabric.rank());
    MicroBatchFeeds feeds;
    feeds.T = mb.T[rank];
    feeds.ring_keys = batch::key_exchange(mb, hosts);
    feeds.ring_rank = fabric.rank();
    at::Tensor keys = zeros({feeds.T, kFeatures}, type, at::kCPU);
    i64 row = 0;
    for (const batch::Piece& piece : mb.shard[rank])
      for (int i = 0; i < piece.count; ++i, ++row)
        keys.select(0, row).fill_(piece.doc < 0 ? -1.0 : static_cast<double>(1000 * piece.doc + piece.first + i));
    at::Tensor values = keys.add(0.5), dk = empty({feeds.T, kFeatures}, type, at::kCPU), dv = dk.clone();
    const ir::Instr instr;
    const ir::StageCode stage;
    RopeTables rope(10000, {});
    i64 number = 0;
    int exchanges = 0;
    ReplicaLink link{.fabric = &fabric, .channel = {}};
    link.ring = {.channel = {7, {0, 1, 2}}, .row = &number, .peers = {0, 1, 2}, .exchanged = [&](auto begin, auto end) {
                   exchanges += begin <= end;
                 }};
    KernelCall call{instr, stage, 0, {}, {}, feeds, rope, link, state};
    KeyTransfer transfer(call);
    const auto [seen_keys, seen_values] = transfer.gathered(keys, values);
    auto gradients = transfer.gradients(dk, dv);
    gradients.first.fill_(1);
    gradients.second.fill_(2);
    transfer.returned(gradients, dk, dv);
    EXPECT_EQ(number, exchanges) << "each exchange has a number and is told";
    results[rank] = {seen_keys, seen_values, dk, dv};
  });
  EXPECT_EQ(ends, std::vector<std::string>(mb.T.size()));
  return results;
}

// On one host, and on two, where one of two ranks passes on what the third one sends.
const std::vector<std::vector<int>> kHosts = {{}, {0, 0, 1}, {0, 1, 1}};

TEST(KeyTransfer, brings_documents_together_in_their_order) {
  const batch::MicroBatch mb = micro_batch();
  for (const std::vector<int>& hosts : kHosts) {
    const batch::KeyExchange exchange = batch::key_exchange(mb, hosts);
    EXPECT_EQ(exchange.rounds.size(), hosts.empty() ? 1u : 2u);
    const std::vector<Result> results = run(mb, DType::f64, DType::f64, hosts);
    for (size_t rank = 0; rank < results.size(); ++rank) {
      ASSERT_EQ(results[rank].keys.size(0), exchange.seen[rank].rows);
      for (const batch::QueryBlock& block : exchange.seen[rank].blocks)
        for (int key = 0; key < block.kn; ++key) {
          const double* found = results[rank].keys.select(0, block.k + key).data_ptr<double>();
          EXPECT_EQ(static_cast<i64>(found[0]) % 1000, key) << "rank " << rank;
          EXPECT_EQ(found[kFeatures - 1], found[0]);
          EXPECT_EQ(results[rank].values.select(0, block.k + key).data_ptr<double>()[0], found[0] + 0.5);
        }
    }
  }
}

// A key has a gradient from each rank that sees it.
TEST(KeyTransfer, brings_gradients_home_and_adds_them) {
  const batch::MicroBatch mb = micro_batch();
  for (const std::vector<int>& hosts : kHosts)
    for (const DType type : {DType::f64, DType::bf16}) {
      const std::vector<Result> results = run(mb, type, type == DType::f64 ? DType::f64 : DType::f32, hosts);
      for (size_t rank = 0; rank < results.size(); ++rank) {
        std::vector<double> expected;
        for (const batch::Piece& piece : mb.shard[rank])
          for (int i = 0; i < piece.count; ++i) {
            const auto sees = [&](const std::vector<batch::Piece>& shard) {
              return batch::keys_brought_together(shard) > 0 &&
                     std::ranges::any_of(shard, [&](const batch::Piece& queries) {
                       return queries.doc == piece.doc && queries.doc >= 0 && end_of(queries) > piece.first + i;
                     });
            };
            expected.push_back(static_cast<double>(std::ranges::count_if(mb.shard, sees)));
          }
        for (i64 row = 0; row < mb.T[rank]; ++row) {
          const double times = expected[static_cast<size_t>(row)];
          EXPECT_EQ(results[rank].key_gradients.select(0, row).select(0, 1).item<double>(), times) << rank << ", " << row;
          EXPECT_EQ(results[rank].value_gradients.select(0, row).select(0, 1).item<double>(), 2 * times);
        }
        EXPECT_EQ(dtype_of(results[rank].key_gradients), type);
      }
    }
}

TEST(KeyTransfer, of_whole_documents_passes_nothing_on) {
  const batch::MicroBatch mb = batch::lay_out(std::vector<batch::PlacedDocument>{{0, 5, {}}, {1, 4, {2, 1}}}, 3, 1);
  const std::vector<Result> results = run(mb, DType::f32, DType::f32);
  EXPECT_EQ(results[0].keys.size(0), 5) << "its own";
  EXPECT_EQ(results[0].key_gradients.select(0, 4).select(0, 0).item<double>(), 1);
}

}  // namespace
}  // namespace switchyard::runtime
