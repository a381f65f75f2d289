#include "planner/ring_loads.hpp"

#include <gtest/gtest.h>

#include "batch/planner.hpp"
#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

Placement ring_of(int ring, int tp) {
  Placement placement{1, outer(tp), 1};
  placement.mesh[layout::StageAxis::ring] = ring;
  return placement;
}

batch::MicroBatch on_ring(const RingLoads& loads, const Placement& placement, const std::vector<i64>& lengths) {
  i64 tokens = 0;
  for (const i64 length : lengths) tokens += length;
  batch::BucketSpec spec{.max_length = 4096, .micro_batch_tokens = std::max<i64>(tokens, 4096)};
  spec.multiple = placement.code_ranks();
  spec.rings = {loads.ring(placement)};
  return batch::plan_batch(0, lengths, {&spec, 1}, {1, 0.001}).phases[0].replica[0].at(0);
}

class RingLoadsTest : public testing::Test {
 protected:
  RingLoadsTest()
      : units_(model_of(4, 64, 100), precision_from("fp32"), hardware_of(2, 4, 1e-6, 1e10, 1e9)), loads_(units_) {}
  UnitCosts units_;
  RingLoads loads_;
};

TEST_F(RingLoadsTest, no_assignment_is_quicker_than_even_shares) {
  for (const int ring : {2, 4, 8})
    for (const std::vector<i64>& lengths :
         {std::vector<i64>{4096}, {1000, 900, 7, 5, 3}, {64, 64, 64, 64, 64, 64, 64, 64}, {3000, 2000, 1000}}) {
      const Placement placement = ring_of(ring, 1);
      const batch::MicroBatch micro_batch = on_ring(loads_, placement, lengths);
      const PackedSequence assigned = loads_.assigned(micro_batch, placement),
                           even = RingLoads::even(micro_batch, ring);
      EXPECT_GE(assigned.T, even.T);
      EXPECT_GE(assigned.attention_pairs, even.attention_pairs * (1 - 1e-12));
      EXPECT_EQ(even.keys, 0);
    }
}

// Where passing keys on takes endlessly long, a document lies on one rank, and where it takes nothing, on all.
TEST_F(RingLoadsTest, a_document_takes_what_its_best_degree_does) {
  const Placement placement = ring_of(8, 1);
  const batch::RingCosts& nominal = loads_.ring(placement).costs;
  Spent rates{.compute = nominal.per_token, .per_pair = nominal.per_pair};
  const double whole = nominal.per_token * 4096 + nominal.per_pair * attention_pairs_of(4096);
  EXPECT_DOUBLE_EQ(loads_.least(placement, 4096, rates, 0), whole / 8);
  EXPECT_DOUBLE_EQ(loads_.least(placement, 4096, rates, whole / 3), whole / 3) << "other documents take longer";
  rates.per_key = 1;
  EXPECT_DOUBLE_EQ(loads_.least(placement, 4096, rates, 0), whole);
  rates.per_key = 0.2 * whole / 4096;  // two ranks: half the work, and half of the keys
  const double shared = loads_.least(placement, 4096, rates, 0);
  EXPECT_LT(shared, 0.6 * whole);
  EXPECT_GT(shared, whole / 8 + 0.09 * whole);
}

TEST_F(RingLoadsTest, whole_documents_pass_nothing_on) {
  const Placement placement = ring_of(4, 1);
  const PackedSequence of = loads_.assigned(on_ring(loads_, placement, {100, 100, 100, 100}), placement);
  EXPECT_EQ(of.keys, 0);
  EXPECT_EQ(of.latency, 0);
  EXPECT_EQ(of.T, 100);
}

// A document on two ranks: the one with the first and the last quarter sees all of the other's keys. On another host it
// has the adapter for itself.
TEST_F(RingLoadsTest, keys_of_another_host_count_as_the_links_differ) {
  const auto lay_out = [](int first) {
    return batch::lay_out(std::vector<batch::PlacedDocument>{{0, 4096, {first, 2}}}, 8, 1);
  };
  const Placement placement = ring_of(8, 1);  // four ring ranks on a host
  const PackedSequence inside = loads_.assigned(lay_out(0), placement), across = loads_.assigned(lay_out(3), placement);
  const cluster::Hardware& hardware = units_.hardware();
  EXPECT_EQ(inside.keys, 2048);
  EXPECT_DOUBLE_EQ(inside.latency, hardware.intra_host.latency.count);
  EXPECT_DOUBLE_EQ(across.keys, 2048 / hardware.inter_host->bandwidth.count /
                                    (hardware.intra_host.shared_by / hardware.intra_host.bandwidth.count));
  EXPECT_DOUBLE_EQ(across.latency, hardware.inter_host->latency.count);
}

// Two hosts of four: what crosses comes first, an eighth of the document to each rank of the first host, and from each
// rank of the second one; the host's ranks pass it on. The first rank sees all keys of the other seven.
TEST_F(RingLoadsTest, keys_cross_to_a_host_once_and_are_passed_on_inside) {
  const Placement placement = ring_of(8, 1);
  const cluster::Hardware& hardware = units_.hardware();
  const double across = hardware.inter_host->shared_by / hardware.inter_host->bandwidth.count /
                        (hardware.intra_host.shared_by / hardware.intra_host.bandwidth.count);
  const PackedSequence of =
      loads_.assigned(batch::lay_out(std::vector<batch::PlacedDocument>{{0, 4096, {0, 8}}}, 8, 1), placement);
  const double first_round = 512 * across + 3 * 512, second_round = 3 * 512;
  EXPECT_DOUBLE_EQ(of.keys, first_round + second_round);
  EXPECT_DOUBLE_EQ(of.latency, hardware.inter_host->latency.count + 6 * hardware.intra_host.latency.count);
}

TEST_F(RingLoadsTest, ring_ranks_of_a_host_are_as_many_as_fit) {
  EXPECT_EQ(loads_.ring(ring_of(8, 1)).ranks_per_host, 4);
  EXPECT_EQ(loads_.ring(ring_of(4, 2)).ranks_per_host, 2);
  EXPECT_EQ(loads_.ring(ring_of(2, 1)).ranks_per_host, 2);
  EXPECT_NEAR(loads_.ring(ring_of(4, 2)).costs.per_pair, loads_.ring(ring_of(8, 1)).costs.per_pair / 2, 1e-20);
}

}  // namespace
}  // namespace switchyard::planner
