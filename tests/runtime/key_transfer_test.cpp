#include "runtime/key_transfer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "../comm/rank_threads.hpp"
#include "../comm/tcp_ranks.hpp"
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

// What a step saw: where, the first number of each key, and the same of the values.
struct Seen {
  bool first = false;
  std::vector<kernels::AttentionBlock> blocks;
  std::vector<double> keys, values;
};
struct Result {
  std::vector<Seen> steps;
  at::Tensor key_gradients, value_gradients;
};

std::vector<double> column(const at::Tensor& rows) {
  std::vector<double> numbers;
  for (i64 row = 0; row < rows.size(0); ++row) numbers.push_back(rows.select(0, row).select(0, 1).item<double>());
  return numbers;
}

struct Way {
  KeyPassing passing = KeyPassing::gather;
  std::vector<int> hosts{};
  bool beside = false;
  double part = 0;  // part of a gradient that depends on rank and step, so that the order of sums shows
  bool tcp = false;
};

// Keys are 64 * document + position, values the same and a half; each block adds 1 and 2 to the gradients of its
// keys and values.
std::vector<Result> run(const batch::MicroBatch& mb, DType type, DType state, const Way& way) {
  const int ranks = static_cast<int>(mb.T.size());
  std::vector<Result> results(mb.T.size());
  const auto body = [&](comm::Fabric& fabric) {
    const auto rank = static_cast<size_t>(fabric.rank());
    MicroBatchFeeds feeds;
    feeds.T = mb.T[rank];
    feeds.ring_keys = batch::key_exchange(mb, way.passing, way.hosts);
    feeds.ring_rank = fabric.rank();
    for (const auto& step : feeds.ring_keys.seen[rank].blocks) {
      feeds.blocks.emplace_back();
      for (const auto& [q, qn, k, kn, causal] : step) feeds.blocks.back().push_back({q, qn, k, kn, causal});
    }
    at::Tensor keys = zeros({feeds.T, kFeatures}, type, at::kCPU);
    i64 row = 0;
    for (const batch::Piece& piece : mb.shard[rank])
      for (int i = 0; i < piece.count; ++i, ++row)
        keys.select(0, row).fill_(piece.doc < 0 ? -1.0 : static_cast<double>(64 * piece.doc + piece.first + i));
    at::Tensor values = keys.add(0.5), dk = empty({feeds.T, kFeatures}, type, at::kCPU), dv = dk.clone();
    const ir::Instr instr;
    ir::StageCode stage;
    stage.passing = way.passing;
    RopeTables rope(10000, {});
    i64 number = 0;
    int exchanges = 0;
    Stream stream([] {});
    ReplicaLink link{.fabric = &fabric, .channel = {}};
    link.ring = {.channel = {7, {0, 1, 2}},
                 .number = &number,
                 .peers = {0, 1, 2},
                 .stream = way.beside ? &stream : nullptr,
                 .exchanged = [&](const Flight::Times& times) {
                   exchanges += times.end.seconds_since(times.begin) >= 0 &&
                                (way.beside || times.waiting.seconds_since(times.begin) == 0);
                 }};
    KernelCall call{instr, stage, 0, {}, {}, feeds, rope, link, state};
    Result& result = results[rank];
    KeyTransfer(call, keys, values).forward([&](const KeyTransfer::Step& step) {
      result.steps.push_back({step.first, step.blocks, column(step.keys.first), column(step.keys.second)});
    });
    size_t at = 0;
    KeyTransfer(call, keys, values).backward(dk, dv, [&](const KeyTransfer::Step& step) {
      ASSERT_LT(at, result.steps.size());
      for (const kernels::AttentionBlock& block : step.blocks) {
        const std::vector<double> now = column(step.keys.first);
        for (int key = block.k; key < block.k + block.kn; ++key)
          EXPECT_EQ(now[static_cast<size_t>(key)], result.steps[at].keys[static_cast<size_t>(key)]);
        const double more = way.part * static_cast<double>(rank + at);
        step.gradients.first.narrow(0, block.k, block.kn).add_(1 + more);
        step.gradients.second.narrow(0, block.k, block.kn).add_(2 + more);
      }
      ++at;
    });
    EXPECT_EQ(number, exchanges) << "each exchange has a number and is told";
    result.key_gradients = dk;
    result.value_gradients = dv;
  };
  const auto ends = way.tcp ? comm::run_tcp(ranks, {}, body)
                            : comm::run_ranks(comm::thread_fabrics(ranks, cluster::uniform(1, ranks), {}), body);
  EXPECT_EQ(ends, std::vector<std::string>(mb.T.size()));
  return results;
}

// On one host, and on two, where one of two ranks passes on what the third one sends; all at once, in steps, and in
// steps beside what is computed.
std::vector<Way> ways() {
  std::vector<Way> ways;
  for (const std::vector<int>& hosts : {std::vector<int>{}, {0, 0, 1}, {0, 1, 1}})
    for (const KeyPassing passing : {KeyPassing::gather, KeyPassing::ring})
      for (const bool beside : {false, true}) ways.push_back({passing, hosts, beside});
  return ways;
}

TEST(KeyTransfer, brings_each_block_its_keys) {
  const batch::MicroBatch mb = micro_batch();
  for (const Way& way : ways()) {
    const std::vector<Result> results = run(mb, DType::f64, DType::f64, way);
    for (size_t rank = 0; rank < results.size(); ++rank) {
      const std::vector<Seen>& steps = results[rank].steps;
      EXPECT_EQ(way.passing == KeyPassing::gather, steps.size() == 1) << "rank " << rank;
      std::map<i64, i64> queries;  // queries of a document
      for (const Seen& step : steps) {
        EXPECT_EQ(step.first, &step == &steps.front());
        for (const kernels::AttentionBlock& block : step.blocks) {
          const auto document = static_cast<i64>(step.keys[static_cast<size_t>(block.k)]) / 64;
          for (int i = 0; i < block.kn; ++i) {
            const double key = step.keys[static_cast<size_t>(block.k + i)];
            EXPECT_EQ(static_cast<i64>(key) / 64, document);
            EXPECT_EQ(step.values[static_cast<size_t>(block.k + i)], key + 0.5);
          }
          if (block.causal) queries[document] += block.qn;
        }
      }
      i64 own = 0, seen = 0;
      for (const batch::Piece& piece : mb.shard[rank]) own += piece.doc < 0 ? 0 : piece.count;
      for (const auto& [document, count] : queries) seen += count;
      EXPECT_EQ(seen, own);
    }
  }
}

// A key has a gradient from each block that sees it.
TEST(KeyTransfer, brings_gradients_home_and_adds_them) {
  const batch::MicroBatch mb = micro_batch();
  for (const Way& way : ways())
    for (const DType type : {DType::f64, DType::bf16}) {
      const std::vector<Result> results = run(mb, type, type == DType::f64 ? DType::f64 : DType::f32, way);
      std::map<double, double> expected;
      for (const Result& result : results)
        for (const Seen& step : result.steps)
          for (const kernels::AttentionBlock& block : step.blocks)
            for (int i = 0; i < block.kn; ++i) ++expected[step.keys[static_cast<size_t>(block.k + i)]];
      for (size_t rank = 0; rank < results.size(); ++rank) {
        const std::vector<double> keys = column(results[rank].key_gradients),
                                  values = column(results[rank].value_gradients);
        size_t row = 0;
        for (const batch::Piece& piece : mb.shard[rank])
          for (int i = 0; i < piece.count; ++i, ++row) {
            const double times = piece.doc < 0 ? 0 : expected[static_cast<double>(64 * piece.doc + piece.first + i)];
            EXPECT_EQ(keys[row], times) << "rank " << rank << ", row " << row;
            EXPECT_EQ(values[row], 2 * times);
          }
        EXPECT_EQ(dtype_of(results[rank].key_gradients), type);
      }
    }
}

// 3 / 7 rounds otherwise in another order of sums.
TEST(KeyTransfer, adds_gradients_with_the_same_bits_wherever_messages_go) {
  const batch::MicroBatch mb = micro_batch();
  for (Way way : ways()) {
    if (way.beside) continue;
    way.part = 3.0 / 7;
    const std::vector<Result> one = run(mb, DType::f32, DType::f32, way);
    way.beside = true;
    for (const bool tcp : {false, true}) {
      way.tcp = tcp;
      const std::vector<Result> other = run(mb, DType::f32, DType::f32, way);
      for (size_t rank = 0; rank < one.size(); ++rank) {
        EXPECT_TRUE(other[rank].key_gradients.equal(one[rank].key_gradients));
        EXPECT_TRUE(other[rank].value_gradients.equal(one[rank].value_gradients));
      }
    }
  }
}

TEST(KeyTransfer, of_whole_documents_passes_nothing_on) {
  const batch::MicroBatch mb = batch::lay_out(std::vector<batch::PlacedDocument>{{0, 5, {}}, {1, 4, {2, 1}}}, 3, 1);
  const std::vector<Result> results = run(mb, DType::f32, DType::f32, {KeyPassing::ring});
  ASSERT_EQ(results[0].steps.size(), 1u);
  EXPECT_EQ(results[0].steps[0].keys.size(), 5u) << "its own";
  EXPECT_EQ(column(results[0].key_gradients).back(), 1);
}

}  // namespace
}  // namespace switchyard::runtime
