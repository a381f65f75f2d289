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
  RingLoadsTest() : units_(model_of(4, 64, 100), precision_from("fp32"), hardware()), loads_(units_) {}
  static cluster::Hardware hardware() {
    cluster::Hardware hardware = hardware_of(2, 4, 1e-6, 1e10, 1e9);
    hardware.intra_host.sum_share = hardware.inter_host->sum_share = 0.8;
    return hardware;
  }
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
      EXPECT_EQ(even.values, 0);
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
  EXPECT_EQ(of.values, 0);
  EXPECT_EQ(of.gradients, 0);
  EXPECT_EQ(of.T, 100);
}

// Seconds of so many keys in one message. Rates rise with its size; sums are slower.
double seconds_of(const cluster::LinkClass& link, double keys, i64 bytes_of_key, bool summed) {
  const double bytes = keys * static_cast<double>(bytes_of_key);
  return bytes / (link.bandwidth.count * link.curve.at(bytes) * (summed ? link.sum_share : 1));
}

// A document on two ranks: the one with the first and the last quarter sees all of the other's keys. On another host it
// has half of the adapter, whose other half the code's other rank fills, or all of it.
TEST_F(RingLoadsTest, keys_take_what_their_messages_do_on_the_link) {
  const auto lay_out = [](int first) {
    return batch::lay_out(std::vector<batch::PlacedDocument>{{0, 4096, {first, 2}}}, 4, 1);
  };
  const cluster::Hardware& hardware = units_.hardware();
  const cluster::LinkClass &in = hardware.intra_host, &between = *hardware.inter_host;
  for (const auto& [placement, first, link, shared_by] :
       {std::tuple(ring_of(4, 2), 0, &in, 1.0), {ring_of(4, 2), 1, &between, 2.0}}) {
    const PackedSequence of = loads_.assigned(lay_out(first), placement);
    const ir::KeyBytes& bytes = units_.keys(StageKind::middle, placement.code_mesh());
    ASSERT_EQ(bytes.columns, 64 / 2);
    const i64 key = 2 * bytes.columns * 4;  // keys and values
    EXPECT_NEAR(of.values, link->latency.count + shared_by * seconds_of(*link, 2048, key, false), 1e-12);
    EXPECT_NEAR(of.gradients, link->latency.count + shared_by * seconds_of(*link, 2048, key, true), 1e-12);
    EXPECT_GT(of.gradients, of.values) << "sums";
    EXPECT_GT(of.values, 1.1 * link->latency.count + 2048.0 * static_cast<double>(key) / link->bandwidth.count)
        << "short messages";
  }
}

// Two hosts of four: what crosses comes first, an eighth of the document to each rank of the first host, and from each
// rank of the second one; meanwhile come those of the own host, and then the host's ranks pass on what crossed.
TEST_F(RingLoadsTest, keys_cross_to_a_host_once_and_are_passed_on_inside) {
  const Placement placement = ring_of(8, 1);
  const cluster::LinkClass &in = units_.hardware().intra_host, &between = *units_.hardware().inter_host;
  const i64 key = 2 * units_.keys(StageKind::middle, {}).columns * 4;
  const PackedSequence of =
      loads_.assigned(batch::lay_out(std::vector<batch::PlacedDocument>{{0, 4096, {0, 8}}}, 8, 1), placement);
  const double crossing = between.latency.count + 2 * seconds_of(between, 512, key, false),
               inside = 3 * (in.latency.count + seconds_of(in, 512, key, false));
  EXPECT_NEAR(of.values, std::max(crossing, inside) + inside, 1e-12);
}

TEST_F(RingLoadsTest, ring_ranks_of_a_host_are_as_many_as_fit) {
  EXPECT_EQ(loads_.ring(ring_of(8, 1)).ranks_per_host, 4);
  EXPECT_EQ(loads_.ring(ring_of(4, 2)).ranks_per_host, 2);
  EXPECT_EQ(loads_.ring(ring_of(2, 1)).ranks_per_host, 2);
  EXPECT_NEAR(loads_.ring(ring_of(4, 2)).costs.per_pair, loads_.ring(ring_of(8, 1)).costs.per_pair / 2, 1e-20);
}

}  // namespace
}  // namespace switchyard::planner
