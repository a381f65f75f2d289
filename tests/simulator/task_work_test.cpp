#include "simulator/task_work.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "batch/ring_map.hpp"
#include "simple_steps.hpp"

namespace switchyard::simulator {
namespace {

// Two hosts of two devices: 1 GB/s of memory, so that arithmetic takes no time.
class TaskWorkTest : public testing::Test {
 protected:
  TaskWorkTest() : plans_(plans_under({"4,1,1"}, 2, 2)), step_(plans_, 4), hardware_(arithmetic_only(2, 2)) {
    for (auto& [type, rates] : hardware_.device.rates) rates = {{kEndless}, {1e9}, {}};
    hardware_.intra_host.latency = {1e-4};
    hardware_.inter_host->latency = {1e-3};
  }
  const ir::Task& first(ir::TaskKind kind) const {
    return *std::ranges::find(step_.program.tasks, kind, &ir::Task::kind);
  }
  // Largest number of elements of a unit on any rank; -1: of all units.
  double most_elements(const std::vector<layout::ShardMap>& maps, int unit) const {
    std::map<int, i64> elements;
    for (size_t u = 0; u < plans_.units().size(); ++u)
      for (const int tensor : plans_.units()[u].tensors)
        for (const layout::Shard& shard : maps[static_cast<size_t>(tensor)].shards)
          if (unit < 0 || static_cast<int>(u) == unit) elements[shard.rank] += shard.box.elements();
    return static_cast<double>(
        std::ranges::max_element(elements, {}, [](const auto& entry) { return entry.second; })->second);
  }

  const compiler::Plans plans_;
  const Step step_;
  cluster::Hardware hardware_;
  KnownSegments known_;
};

TEST_F(TaskWorkTest, resources_are_ranks_ports_and_hosts) {
  const std::vector<int> kinds = TaskWork(step_.plan, plans_, hardware_, known_).kinds_of_resources();
  ASSERT_EQ(kinds.size(), 4u + 4 * 4 + 2);
  EXPECT_EQ(std::set<int>(kinds.begin(), kinds.end()).size(), 1u + 4 + 1);
  EXPECT_EQ(std::set<int>(kinds.begin(), kinds.begin() + 4).size(), 1u);
  EXPECT_EQ(kinds[4], kinds[8]) << "the same port of another device";
}

TEST_F(TaskWorkTest, an_update_moves_eight_numbers_of_the_state_and_one_to_compute_with) {
  TaskWork work(step_.plan, plans_, hardware_, known_);
  const ir::Task& update = first(ir::TaskKind::update);
  const PlacedWork& taken = work.work(update);
  EXPECT_NEAR(taken.seconds, (8 * 4 + 2) * most_elements(plans_.home(), update.unit()) / 1e9, 1e-12);
  ASSERT_EQ(taken.claims.size(), update.ranks.size());
  for (const Claim& claim : taken.claims) EXPECT_EQ(claim.share, 1) << "all of its devices";
}

TEST_F(TaskWorkTest, the_norm_reads_the_gradients_and_is_agreed_by_halves) {
  TaskWork work(step_.plan, plans_, hardware_, known_);
  EXPECT_NEAR(work.work(first(ir::TaskKind::norm)).seconds, 4 * most_elements(plans_.owners(), -1) / 1e9 + 2 * 2 * 1e-3,
              1e-12);
}

TEST_F(TaskWorkTest, accumulators_are_zeroed_as_they_lie) {
  const TaskWork work(step_.plan, plans_, hardware_, known_);
  i64 elements = 0;
  for (const ir::Param& param : plans_.graph().params()) elements += ir::elements({DType::f32, param.shape}, {});
  EXPECT_NEAR(work.zeroing(first(ir::TaskKind::run)), 4 * static_cast<double>(elements) / 1e9, 1e-12);
}

TEST_F(TaskWorkTest, a_reduce_takes_devices_and_their_ports) {
  hardware_.inter_host->bandwidth = {1e6};
  TaskWork work(step_.plan, plans_, hardware_, known_);
  const PlacedWork& reduce = work.work(first(ir::TaskKind::reduce));
  std::set<int> resources;
  for (const Claim& claim : reduce.claims) {
    EXPECT_TRUE(resources.insert(claim.resource).second) << "each once";
    EXPECT_GE(claim.share, 0);
    EXPECT_LE(claim.share, 1);
  }
  EXPECT_GT(*resources.rbegin(), 3) << "ports come after the ranks";
  EXPECT_LT(*resources.rbegin(), 4 + 4 * 4) << "and before the hosts";
}

// Links take no time for bytes here.
TEST_F(TaskWorkTest, an_encoded_transfer_takes_the_time_of_encoding_and_decoding_on_the_busiest_rank) {
  ir::Task reduce = first(ir::TaskKind::reduce);
  const double plain = TaskWork(step_.plan, plans_, hardware_, known_).work(reduce).seconds;
  reduce.encoding = {.codec = codecs::Codec::int8};
  std::map<int, double> at_rates, by_memory;
  for (const layout::Msg& m : reduce.messages) {
    if (m.src == m.dst) continue;
    const auto bytes = 4 * static_cast<double>(m.box.elements()),
               encoded = static_cast<double>(codecs::encoded_bytes(codecs::Codec::int8, DType::f32, m.box.elements()));
    if (encoded >= bytes) continue;
    at_rates[m.src] += bytes / 1e6;
    at_rates[m.dst] += bytes / 2e6;
    for (const int rank : {m.src, m.dst}) by_memory[rank] += (bytes + encoded) / 1e9;
  }
  const auto most = [](const std::map<int, double>& seconds) {
    return std::ranges::max_element(seconds, {}, [](const auto& entry) { return entry.second; })->second;
  };
  EXPECT_NEAR(TaskWork(step_.plan, plans_, hardware_, known_).work(reduce).seconds, plain + most(by_memory), 1e-9);
  hardware_.device.codecs["int8"] = {{1e6}, {2e6}};
  EXPECT_NEAR(TaskWork(step_.plan, plans_, hardware_, known_).work(reduce).seconds, plain + most(at_rates), 1e-9);
}

TEST_F(TaskWorkTest, encoded_bytes_take_less_time_on_a_link) {
  hardware_.inter_host->bandwidth = {1e6};
  hardware_.device.codecs["int8"] = {{1e18}, {1e18}};
  TaskWork work(step_.plan, plans_, hardware_, known_);
  ir::Task reduce = first(ir::TaskKind::reduce);
  for (const ir::Task& task : step_.program.tasks)
    if (task.kind() == ir::TaskKind::reduce && work.work(task).seconds > work.work(reduce).seconds) reduce = task;
  const double plain = work.work(reduce).seconds;
  reduce.encoding = {.codec = codecs::Codec::int8};
  EXPECT_LT(work.work(reduce).seconds, plain / 2);
  EXPECT_GT(work.work(reduce).seconds, plain / 5);
}

TEST_F(TaskWorkTest, replicas_with_equal_batches_and_host_patterns_share_their_times) {
  TaskWork work(step_.plan, plans_, hardware_, known_);
  std::set<const SegmentTimes*> times;
  std::set<int> devices;
  for (const ir::Task& task : step_.program.tasks)
    if (task.kind() == ir::TaskKind::run && task.forward()) {
      const ReplicaSegment& segment = work.segment(task);
      times.insert(segment.times);
      devices.insert(segment.computing[0].resource);
    }
  EXPECT_EQ(devices, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(times.size(), 2u) << "one for each place on a host";
}

// A micro-batch on ring ranks that are the only ones of a strategy, and its forward and backward runs.
struct RingStep {
  RingStep(const std::string& strategy, int hosts, int devices, batch::MicroBatch micro_batch,
           const compiler::CodeOptions& how = {}, const config::Compression& encoded = {})
      : plans(plans_under({strategy}, hosts, devices, 1, how, encoded)), step(plans, 0) {
    for (auto& replica : step.plan.phases[0].replica) replica = {micro_batch};
    step.program = compiler::assemble(step.plan, plans, {});
  }
  const ir::Task& run(Pass pass) const {
    return *std::ranges::find_if(step.program.tasks, [&](const ir::Task& task) {
      return task.kind() == ir::TaskKind::run && task.pass() == pass;
    });
  }
  compiler::Plans plans;
  Step step;
};

// 32 tokens in four chunks: the first rank needs 16 keys of the second one, which needs 8 of the first one.
const batch::MicroBatch kShared{{16, 16}, {{{0, 0, 8, 1}, {0, 24, 8, 1}}, {{0, 8, 16, 1}}}};

TEST(TaskWorkOnARing, keys_pass_in_each_attention_and_their_gradients_come_back) {
  const RingStep ring("ring=2", 1, 2, kShared);
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.intra_host.bandwidth = {1e6};
  KnownSegments known;
  TaskWork work(ring.step.plan, ring.plans, hardware, known);
  for (const Pass pass : {Pass::F, Pass::BW}) {
    const ir::StageCode& code = ring.plans.strategies()[0].groups[0].stages[0];
    double keys = 0, passed_on = 0;
    for (const ir::Instr& instr : code.segment(pass).code)
      keys += 16 * static_cast<double>(ir::key_bytes(code, instr, 0).all()) / 1e6;
    for (const Piece& piece : work.segment(ring.run(pass)).times->pieces)
      if (piece.what == Activity::communication) passed_on += piece.fixed;
    EXPECT_GT(keys, 0);
    EXPECT_NEAR(passed_on, keys, 1e-12) << name_of(pass);
  }
}

// Each way keys and values are a message each, which the one rank encodes and the other one decodes.
TEST(TaskWorkOnARing, encoded_keys_take_fewer_bytes_and_the_time_of_their_codec) {
  const RingStep ring("ring=2", 1, 2, kShared, {}, {.keys = codecs::Codec::int8, .smallest = {0}});
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.intra_host.bandwidth = {1e6};
  hardware.device.codecs["int8"] = {{1e7}, {2e7}};
  KnownSegments known;
  TaskWork work(ring.step.plan, ring.plans, hardware, known);
  const ir::StageCode& code = ring.plans.strategies()[0].groups[0].stages[0];
  const auto seconds = [&](DType type, i64 columns) {
    const auto wire = [&](i64 rows) {
      return 2 * static_cast<double>(codecs::encoded_bytes(codecs::Codec::int8, type, rows * columns));
    };
    // The first rank gets 16 rows and sends 8; gradients go the other way.
    const auto plain = [&](i64 rows) { return 2 * static_cast<double>(rows * columns * size_of(type)); };
    return std::pair(wire(16) / 1e6, std::max(plain(8) / 1e7 + plain(16) / 2e7, plain(16) / 1e7 + plain(8) / 2e7));
  };
  for (const Pass pass : {Pass::F, Pass::BW}) {
    double expected = 0, passed_on = 0;
    for (const ir::Instr& instr : code.segment(pass).code) {
      const ir::KeyBytes keys = ir::key_bytes(code, instr, 0);
      for (const auto& [bytes, type] : {std::pair(keys.values, keys.type), {keys.gradients, keys.gradient_type}}) {
        if (bytes == 0) continue;
        const auto [link, coding] = seconds(type, keys.columns);
        expected += link + coding;
      }
    }
    for (const Piece& piece : work.segment(ring.run(pass)).times->pieces)
      if (piece.what == Activity::communication) passed_on += piece.fixed;
    EXPECT_GT(expected, 0);
    EXPECT_NEAR(passed_on, expected, 1e-12) << name_of(pass);
  }
}

// Seconds of communication, and of the part that nothing hides.
std::pair<double, double> communication(const SegmentTimes& times) {
  double all = 0, exposed = 0;
  Queues queues;
  std::vector<Part> parts;
  for (const Piece& piece : times.pieces) {
    queues.add(piece, piece.fixed, parts);
    if (piece.what == Activity::communication) all += piece.fixed;
  }
  queues.finish(parts);
  for (const Part& part : parts) exposed += part.computes ? 0 : part.seconds;
  return {all, exposed};
}

// At 1 GB/s keys come in 2 microseconds while the rank computes its own blocks, which takes 35. Gradients of what came
// last can hide behind nothing.
TEST(TaskWorkOnARing, keys_that_come_in_steps_hide_behind_the_blocks_before) {
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.intra_host.bandwidth = {1e9};
  std::map<std::pair<bool, Pass>, double> computing;
  for (const bool in_steps : {false, true})
    for (const bool overlap : {false, true}) {
      const RingStep ring(in_steps ? "ring=2,exchange=ring" : "ring=2", 1, 2, kShared, {.overlap = overlap});
      KnownSegments known;
      TaskWork work(ring.step.plan, ring.plans, hardware, known);
      const ir::StageCode& code = ring.plans.strategies()[0].groups[0].stages[0];
      for (const Pass pass : {Pass::F, Pass::BW}) {
        double values = 0, gradients = 0, seconds = 0;
        for (const ir::Instr& instr : code.segment(pass).code) {
          values += 16 * static_cast<double>(ir::key_bytes(code, instr, 0).values) / 1e9;
          gradients += 16 * static_cast<double>(ir::key_bytes(code, instr, 0).gradients) / 1e9;
        }
        const SegmentTimes& times = *work.segment(ring.run(pass)).times;
        const auto [all, exposed] = communication(times);
        EXPECT_NEAR(all, values + gradients, 1e-12);
        EXPECT_NEAR(exposed, in_steps && overlap ? gradients : values + gradients, 1e-12) << name_of(pass);
        for (const Piece& piece : times.pieces) seconds += piece.what == Activity::compute ? piece.fixed : 0;
        const auto [it, fresh] = computing.try_emplace({overlap, pass}, seconds);
        EXPECT_NEAR(it->second, seconds, 1e-9) << "as many pairs";
      }
    }
}

// Chunks of 4 tokens on two hosts of two ranks: each rank of the first host gets 8 keys from the other one, which sees
// 4 of each, and passes them on.
TEST(TaskWorkOnARing, keys_cross_to_a_host_once) {
  const batch::MicroBatch shared = batch::lay_out(std::vector<batch::PlacedDocument>{{0, 32, {0, 4}}}, 4, 1);
  const RingStep ring("ring=4", 2, 2, shared);
  cluster::Hardware hardware = arithmetic_only(2, 2);
  hardware.intra_host.bandwidth = {1e9};
  hardware.inter_host->bandwidth = {1e6};
  KnownSegments known;
  TaskWork work(ring.step.plan, ring.plans, hardware, known);
  for (const Pass pass : {Pass::F, Pass::BW}) {
    const ir::StageCode& code = ring.plans.strategies()[0].groups[0].stages[0];
    double across = 0, passed_on = 0;
    for (const ir::Instr& instr : code.segment(pass).code)
      across += 8 * static_cast<double>(ir::key_bytes(code, instr, 0).all()) / 1e6;
    for (const Piece& piece : work.segment(ring.run(pass)).times->pieces)
      if (piece.what == Activity::communication) passed_on += piece.fixed;
    EXPECT_GT(passed_on, across);
    EXPECT_LT(passed_on, 1.01 * across) << name_of(pass);
  }
}

TEST(TaskWorkOnARing, a_run_takes_what_its_slowest_ring_rank_does) {
  const RingStep ring("ring=2", 1, 2, {{8, 24}, {{{0, 0, 8, 1}}, {{1, 0, 24, 1}}}});
  const cluster::Hardware hardware = arithmetic_only(1, 2);
  KnownSegments known;
  TaskWork work(ring.step.plan, ring.plans, hardware, known);
  const ReplicaSegment& segment = work.segment(ring.run(Pass::F));
  EXPECT_EQ(work.shard(ring.run(Pass::F)), ring.step.plan.phases[0].replica[0][0].shard[1]);
  const compiler::Plans alone = plans_under({"1,1,1"}, 1, 2);
  const ir::StageCode& code = alone.strategies()[0].groups[0].stages[0];
  const SegmentTimes of_24 = segment_times(code, code.forward, 24, {0}, hardware, alone.cluster());
  ASSERT_EQ(segment.times->pieces.size(), of_24.pieces.size()) << "nothing is passed on";
  EXPECT_DOUBLE_EQ(segment.times->pieces[0].fixed, of_24.pieces[0].fixed);
}

// Replicas on the same places of other hosts have other ranks.
TEST(TaskWorkOnARing, each_replica_transfers_among_its_own_ranks) {
  const RingStep ring("dp=2,ring=2,ulysses=2", 2, 4, kShared);
  cluster::Hardware hardware = arithmetic_only(2, 4);
  hardware.intra_host.bandwidth = {1e6};
  KnownSegments known;
  TaskWork work(ring.step.plan, ring.plans, hardware, known);
  int runs = 0;
  for (const ir::Task& task : ring.step.program.tasks) {
    if (task.kind() != ir::TaskKind::run) continue;
    ++runs;
    for (const Claim& claim : work.segment(task).computing)
      EXPECT_TRUE(claim.resource >= 8 || std::ranges::count(task.ranks, claim.resource) == 1);
  }
  EXPECT_EQ(runs, 4);
}

}  // namespace
}  // namespace switchyard::simulator
