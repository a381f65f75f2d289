#include "batch/ring_assignment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "base/errors.hpp"
#include "batch/key_exchange.hpp"

namespace switchyard::batch {
namespace {

using testing::Each;
using testing::ElementsAre;

bool keeps_to_hosts(const Span& span, int per_host) {
  const int end = span.first + span.degree;
  return span.first / per_host == (end - 1) / per_host ||
         (span.degree > per_host && (span.first % per_host == 0 || end % per_host == 0));
}

// Loads of the ring ranks, from the micro-batch that the spans make.
std::vector<RingLoad> loads_of(const std::vector<i64>& lengths, const std::vector<Span>& spans, const Ring& ring) {
  std::vector<PlacedDocument> documents;
  for (std::size_t i = 0; i < lengths.size(); ++i) documents.push_back({static_cast<i64>(i), lengths[i], spans[i]});
  const MicroBatch micro_batch = lay_out(documents, ring.ranks, 1);
  std::vector<RingLoad> loads(micro_batch.shard.size());
  for (std::size_t rank = 0; rank < loads.size(); ++rank) {
    for (const Piece& piece : micro_batch.shard[rank]) {
      if (piece.doc < 0) continue;
      loads[rank].tokens += piece.count;
      loads[rank].pairs += attention_pairs(piece);
    }
  }
  std::vector<int> hosts(loads.size());
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) hosts[rank] = static_cast<int>(rank) / ring.ranks_per_host;
  for (const std::vector<KeyMessage>& round : key_exchange(micro_batch, KeyPassing::gather, hosts).rounds)
    for (const KeyMessage& message : round) {
      const auto from = static_cast<std::size_t>(message.from), to = static_cast<std::size_t>(message.to);
      (hosts[from] == hosts[to] ? loads[to].keys.inside : loads[to].keys.across) += message.count;
    }
  for (const Span& span : spans)
    for (int rank = span.first; rank < span.first + span.degree; ++rank)
      loads[static_cast<std::size_t>(rank)].steps =
          std::max(loads[static_cast<std::size_t>(rank)].steps, span.degree - 1);
  return loads;
}

double slowest(const std::vector<RingLoad>& loads, const Ring& ring) {
  double most = 0;
  for (const RingLoad& load : loads)
    most = std::max(most,
                    load.tokens <= ring.capacity ? seconds(load, ring.costs) : std::numeric_limits<double>::infinity());
  return most;
}

void expect_consistent(const RingAssignment& found, const std::vector<i64>& lengths, const Ring& ring) {
  ASSERT_EQ(found.span.size(), lengths.size());
  for (const Span& span : found.span) EXPECT_TRUE(keeps_to_hosts(span, ring.ranks_per_host));
  EXPECT_EQ(found.load, loads_of(lengths, found.span, ring));
  EXPECT_EQ(found.seconds, slowest(found.load, ring));
  EXPECT_GE(found.seconds, found.bound * (1 - 1e-12));
}

// The least time of all assignments.
double optimum(const std::vector<i64>& lengths, const Ring& ring) {
  std::vector<Span> choices;
  for (int degree = 1; degree <= ring.ranks; ++degree)
    for (int first = 0; first + degree <= ring.ranks; ++first)
      for (const bool mirrored : {false, true})
        if (keeps_to_hosts({first, degree}, ring.ranks_per_host) && (degree > 1 || !mirrored))
          choices.push_back({first, degree, mirrored});
  std::vector<Span> spans(lengths.size());
  double best = std::numeric_limits<double>::infinity();
  const std::function<void(std::size_t)> place = [&](std::size_t i) {
    if (i == lengths.size()) {
      best = std::min(best, slowest(loads_of(lengths, spans, ring), ring));
      return;
    }
    for (const Span& span : choices) spans[i] = span, place(i + 1);
  };
  place(0);
  return best;
}

TEST(RingAssignment, is_near_the_best_of_all_and_the_bound_is_below_it) {
  constexpr int kCases = 120;
  std::mt19937_64 random(3);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  double ratios = 0, worst = 1;
  for (int test = 0; test < kCases; ++test) {
    Ring ring{.ranks = 2 + draw(3), .ranks_per_host = draw(2) == 0 ? 2 : 4};
    std::vector<i64> lengths(static_cast<std::size_t>(1 + draw(ring.ranks == 4 ? 2 : 3)));
    for (i64& length : lengths) length = static_cast<i64>(std::exp(draw(1000) * 0.0057));
    const i64 all = std::accumulate(lengths.begin(), lengths.end(), i64{0});
    ring.capacity = draw(3) == 0 ? all / ring.ranks + ring.ranks + draw(50) : all;
    ring.costs = {1, 0.02 * draw(3), 0.3 * draw(3), 0.9 * draw(3), 2.0 * draw(3)};
    const auto found = assign(lengths, ring), uniform = assign_uniform(lengths, ring);
    ASSERT_TRUE(found);
    expect_consistent(*found, lengths, ring);
    EXPECT_TRUE(!uniform || uniform->seconds >= found->seconds);
    const double best = optimum(lengths, ring);
    EXPECT_LE(found->bound, best * (1 + 1e-12)) << test;
    EXPECT_GE(found->seconds, best * (1 - 1e-12)) << test;
    ratios += found->seconds / best / kCases;
    worst = std::max(worst, found->seconds / best);
  }
  EXPECT_LE(ratios, 1.01);
  EXPECT_LE(worst, 1.25);
}

// Seconds of a model of 7e9 parameters, 4096 wide and with 32 layers, on devices of 300 TFLOP/s with links of 400 GB/s
// inside hosts of 8 and 50 GB/s between them.
Ring large_ring(int ranks) {
  constexpr double flops = 3e14, bytes_per_key = 2.0 * 4096 * 2 * 32 * 3;
  return {.ranks = ranks,
          .ranks_per_host = 8,
          .capacity = 40000,
          .costs = {6 * 7e9 / flops, 12.0 * 4096 * 32 / flops, bytes_per_key / 4e11, bytes_per_key / 5e10, 1e-4}};
}

TEST(RingAssignment, of_documents_with_a_long_tail_is_within_a_percent_of_the_bound) {
  std::mt19937_64 random(5);
  double gaps = 0;
  int cases = 0;
  for (const int ranks : {8, 16, 32})
    for (const i64 context : {i64{32768}, i64{131072}, i64{524288}}) {
      const Ring ring = large_ring(ranks);
      std::vector<i64> lengths;
      for (i64 all = 0; all < 16384 * ranks; all += lengths.back()) {
        const double share = static_cast<double>(random() % 100000 + 1) / 1e5;
        lengths.push_back(std::clamp<i64>(static_cast<i64>(400 / share), 16, std::min<i64>(context, 16384 * ranks)));
      }
      const auto found = assign(lengths, ring), uniform = assign_uniform(lengths, ring);
      ASSERT_TRUE(found);
      expect_consistent(*found, lengths, ring);
      EXPECT_TRUE(!uniform || uniform->seconds >= found->seconds);
      EXPECT_EQ(assign(lengths, ring)->span, found->span);
      const double gap = found->seconds / found->bound - 1;
      EXPECT_LE(gap, 0.05) << ranks << " ranks, context " << context;
      gaps += gap, ++cases;
    }
  EXPECT_LE(gaps / cases, 0.01);
}

TEST(RingAssignment, of_a_million_tokens_on_64_ranks_is_near_the_bound) {
  constexpr i64 kTokens = 1 << 20;
  const Ring ring = large_ring(64);
  for (const i64 longest : {kTokens / 16, kTokens / 4, kTokens * 3 / 4}) {
    std::mt19937_64 random(7);
    std::vector<i64> lengths{longest};
    for (i64 all = longest; all < kTokens; all += lengths.back()) {
      const double share = static_cast<double>(random() % 100000 + 1) / 1e5;
      lengths.push_back(std::clamp<i64>(static_cast<i64>(400 / share), 16, longest));
    }
    const auto found = assign(lengths, ring);
    ASSERT_TRUE(found);
    expect_consistent(*found, lengths, ring);
    EXPECT_LE(found->seconds / found->bound - 1, 0.05) << longest;
  }
  const auto alone = assign(std::vector<i64>{kTokens}, ring);
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->span[0].degree, 64) << "all ranks are needed to hold it";
}

TEST(RingAssignment, gives_a_long_document_many_ranks_and_leaves_short_ones_whole) {
  const Ring ring{.ranks = 4, .ranks_per_host = 4, .capacity = 1000, .costs = {1, 1, 0.1, 0.1, 0}};
  const auto found = assign(std::vector<i64>{400, 4, 4, 4, 4}, ring);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->span[0].degree, 4);
  std::vector<int> ranks;
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(found->span[i].degree, 1);
    ranks.push_back(found->span[i].first);
  }
  EXPECT_THAT(ranks, testing::UnorderedElementsAre(0, 1, 2, 3));
}

TEST(RingAssignment, spreads_no_further_than_pays) {
  Ring ring{.ranks = 8, .ranks_per_host = 8, .capacity = 1000, .costs = {.per_token = 1, .per_ring_step = 20}};
  // 120 / d + 20 (d - 1) is least with a degree of 2.
  EXPECT_EQ(assign(std::vector<i64>{120}, ring)->span[0].degree, 2);
  EXPECT_DOUBLE_EQ(assign(std::vector<i64>{120}, ring)->seconds, 80);
  EXPECT_DOUBLE_EQ(assign(std::vector<i64>{120}, ring)->bound, 80);
  ring.costs.per_ring_step = 0;
  EXPECT_EQ(assign(std::vector<i64>{120}, ring)->span[0].degree, 8);
}

TEST(RingAssignment, keeps_a_document_in_a_host_where_links_between_hosts_are_slow) {
  Ring ring{.ranks = 8, .ranks_per_host = 4, .capacity = 1000, .costs = {1, 0, 0.01, 100, 0}};
  EXPECT_EQ(assign(std::vector<i64>{800}, ring)->span[0].degree, 4);
  ring.costs.per_key_across = 0.01;
  EXPECT_EQ(assign(std::vector<i64>{800}, ring)->span[0].degree, 8);
}

TEST(RingAssignment, takes_the_ranks_that_a_document_needs_to_fit) {
  Ring ring{.ranks = 4, .ranks_per_host = 4, .capacity = 30, .costs = {.per_token = 1, .per_ring_step = 1000}};
  const auto found = assign(std::vector<i64>{85, 7}, ring);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->span[0].degree, 3);
  for (const RingLoad& load : found->load) EXPECT_LE(load.tokens, 30);
  ring.capacity = 22;
  EXPECT_FALSE(assign(std::vector<i64>{85, 7}, ring));
}

TEST(RingAssignment, spreads_a_document_where_no_rank_has_room_for_it) {
  const Ring ring{.ranks = 2, .ranks_per_host = 2, .capacity = 10, .costs = {.per_token = 1, .per_key_inside = 10}};
  const std::vector<i64> lengths{8, 8, 4};
  const auto found = assign(lengths, ring);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->span[0].degree, 1);
  EXPECT_EQ(found->span[2].degree, 2);
  EXPECT_LT(found->seconds, assign_uniform(lengths, ring)->seconds);
}

TEST(RingAssignment, that_is_uniform_has_the_one_degree_that_is_quickest) {
  const Ring ring{.ranks = 4, .ranks_per_host = 4, .capacity = 1000, .costs = {1, 1, 0, 0, 0}};
  const auto uniform = assign_uniform(std::vector<i64>{100, 40, 40}, ring);
  ASSERT_TRUE(uniform);
  for (const Span& span : uniform->span) EXPECT_EQ(span.degree, 4);
  EXPECT_THAT(assign_uniform(std::vector<i64>{8, 8, 8, 8}, ring)->load, Each(RingLoad{.tokens = 8, .pairs = 36}));
}

TEST(RingAssignment, of_nothing_takes_no_time_and_empty_documents_are_a_bug) {
  const Ring ring{.ranks = 2, .ranks_per_host = 2, .capacity = 8, .costs = {1, 1, 1, 1, 1}};
  const auto found = assign({}, ring);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->seconds, 0);
  EXPECT_EQ(found->bound, 0);
  EXPECT_THAT(found->load, ElementsAre(RingLoad{}, RingLoad{}));
  EXPECT_THROW(assign(std::vector<i64>{4, 0}, ring), InternalError);
  EXPECT_THROW(assign(std::vector<i64>{4}, {.ranks = 0, .capacity = 8}), InternalError);
}

TEST(RingSeconds, count_the_longer_of_attention_and_what_arrives_meanwhile) {
  const RingCosts costs{
      .per_token = 1, .per_pair = 10, .per_key_inside = 100, .per_key_across = 1000, .per_ring_step = 7};
  EXPECT_EQ(seconds({.tokens = 3, .pairs = 40, .keys = {1, 0}, .steps = 2}, costs), 3 + 400 + 14);
  EXPECT_EQ(seconds({.tokens = 3, .pairs = 40, .keys = {5, 2}, .steps = 2}, costs), 3 + 2500 + 14);
}

}  // namespace
}  // namespace switchyard::batch
