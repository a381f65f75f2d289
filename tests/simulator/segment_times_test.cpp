#include "simulator/segment_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "../collective_of.hpp"
#include "ir/operators/head.hpp"
#include "simple_steps.hpp"

namespace switchyard::simulator {
namespace {

// Reshards of activations in the forward pass.
std::vector<const ir::Instr*> all_gathers(const ir::StageCode& stage) {
  std::vector<const ir::Instr*> found;
  for (const ir::Instr& instr : stage.forward.code) {
    if (instr.op) continue;
    const ir::Buffer& from = stage.buffers[static_cast<size_t>(instr.in[0])];
    if (from.kind != ir::ValueKind::feed && collective_of(stage, instr) == Collective::all_gather)
      found.push_back(&instr);
  }
  return found;
}

TEST(SegmentTimes, of_collectives_are_those_of_the_ring) {
  const compiler::Plans plans = plans_under({"1,4,1"}, 1, 4);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  cluster::Hardware hardware = arithmetic_only(1, 4);
  hardware.intra_host = {{1e-3}, {1e6}, 1, {}};
  int gathers = 0;
  const std::vector<int> ranks = {0, 1, 2, 3};
  for (const ir::Instr* instr : all_gathers(stage)) {
    const ir::Buffer& from = stage.buffers[static_cast<size_t>(instr->in[0])];
    ir::Segment alone{Pass::F, {*instr}, {}, {}};
    const SegmentTimes times = segment_times(stage, alone, 32, ranks, hardware, plans.cluster());
    const double bytes =
        32.0 * static_cast<double>(from.type.shape.size[1]) * static_cast<double>(size_of(from.type.dtype));
    ASSERT_EQ(times.pieces.size(), 1u);
    EXPECT_EQ(times.pieces[0].what, Activity::communication);
    EXPECT_NEAR(times.pieces[0].fixed, 3 * 1e-3 + 0.75 * bytes / 1e6, 1e-12);
    const cost::Exchange& exchange = times.exchanges.at(static_cast<size_t>(times.pieces[0].exchange));
    EXPECT_DOUBLE_EQ(exchange.time.count, times.pieces[0].fixed);
    ASSERT_EQ(exchange.ports.size(), 8u) << "each rank's, in and out";
    for (const cost::Exchange::PortShare& use : exchange.ports)
      EXPECT_NEAR(use.share, 0.75 * bytes / 1e6 / times.pieces[0].fixed, 1e-12);
    ++gathers;
  }
  EXPECT_GT(gathers, 2);
}

TEST(SegmentTimes, of_encoded_collectives_are_those_of_their_bytes_and_of_coding) {
  const compiler::Plans plans = plans_under({"1,4,1"}, 1, 4);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  cluster::Hardware hardware = arithmetic_only(1, 4);
  hardware.intra_host = {{1e-3}, {1e6}, 1, {}};
  hardware.device.codecs["int8"] = {{1e5}, {2e5}};
  int gathers = 0;
  const std::vector<int> ranks = {0, 1, 2, 3};
  for (const ir::Instr* instr : all_gathers(stage)) {
    const ir::Buffer& from = stage.buffers[static_cast<size_t>(instr->in[0])];
    const ir::Segment alone{Pass::F, {*instr}, {}, {}};
    const SegmentTimes times = SegmentTimer(stage, alone, ir::kWhole, ranks, hardware, plans.cluster(),
                                            {.activations = codecs::Codec::int8, .smallest = {0}})
                                   .at(32);
    const i64 part = 32 / 4 * from.type.shape.size[1];
    const auto plain = static_cast<double>(part * size_of(from.type.dtype)),
               encoded = static_cast<double>(codecs::encoded_bytes(codecs::Codec::int8, from.type.dtype, part));
    ASSERT_LT(encoded, plain);
    EXPECT_NEAR(times.pieces.at(0).fixed, 3 * (1e-3 + encoded / 1e6 + plain / 1e5 + plain / 2e5), 1e-12);
    ++gathers;
  }
  EXPECT_GT(gathers, 2);
}

// Hosts of eight devices with a network port each. Rings over all ports carry (n - 1) / n of N through the ports of a
// host, an eighth through each; what goes over hosts carries N / 16, and no step inside takes longer than a ring's.
TEST(SegmentTimes, of_collectives_over_hosts_are_no_longer_than_rings_over_all_ports) {
  config::ModelConfig model = compiler::small_llama();
  model.heads = model.kv_heads = 16;
  model.ffn_size = 64;
  model.vocab_size = 64;
  const compiler::Plans plans(compiler::training_graph(model), {config::strategy_from_spec("1,16,1", 16, model.layers)},
                              0, cluster::uniform(2, 8), switching::Planner::relay);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  cluster::Hardware hardware = arithmetic_only(2, 8);
  constexpr double kIntra = 12e6, kInter = 1e6;
  hardware.intra_host = {{0}, {kIntra}, 1, {}};
  hardware.inter_host = cluster::LinkClass{{0}, {kInter}, 1, {}};
  const std::vector<int> ranks = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  int gathers = 0, sums = 0;
  for (const ir::Segment* segment : {&stage.forward, &stage.backward})
    for (const ir::Instr& instr : segment->code) {
      if (instr.op) continue;
      const ir::Buffer& from = stage.buffers[static_cast<size_t>(instr.in[0])];
      if (from.kind == ir::ValueKind::feed) continue;
      const Collective collective = collective_of(stage, instr);
      if (collective != Collective::all_gather && collective != Collective::reduce_scatter) continue;
      ir::Segment alone{Pass::F, {instr}, {}, {}};
      alone.code[0].after.clear();
      double seconds = 0, between = 0;
      const SegmentTimes times = segment_times(stage, alone, 64, ranks, hardware, plans.cluster());
      for (const Piece& piece : times.pieces) {
        seconds += piece.fixed;
        for (const cost::Exchange::PortShare& use : times.exchanges[static_cast<size_t>(piece.exchange)].ports)
          if (use.port.link == cluster::Link::inter_host && use.port.out && use.port.host == 0 && use.port.number == 3)
            between += use.share * piece.fixed * kInter;
      }
      const double N = 64.0 * static_cast<double>(from.type.shape.size[1] * size_of(from.type.dtype));
      EXPECT_NEAR(between, N / 16, 1e-6) << "bytes through one network port: the bound";
      const double ring = std::max(15.0 / 16 * N / 8 / kInter, 15.0 / 16 * N / kIntra);
      EXPECT_LT(seconds, ring);
      EXPECT_NEAR(seconds, N / 16 / kInter + 7.0 / 16 * N / kIntra, 1e-9);
      (collective == Collective::all_gather ? gathers : sums)++;
    }
  EXPECT_GT(gathers, 2);
  EXPECT_GT(sums, 2);
}

// Exchanges 0 and 1 are collectives, which run one after the other.
TEST(Queues, tell_what_goes_on_at_the_same_time) {
  const auto parts_of = [](const std::vector<std::pair<Piece, double>>& pieces) {
    Queues queues;
    std::vector<Part> parts;
    for (const auto& [piece, seconds] : pieces) queues.add(piece, seconds, parts);
    queues.finish(parts);
    std::vector<std::tuple<double, bool, int>> list;
    for (const Part& part : parts) list.emplace_back(part.seconds, part.computes, part.exchange);
    return list;
  };
  const auto collective = [](int exchange) {
    return Piece{.what = Activity::communication, .exchange = exchange, .queue = ir::Queue::collective};
  };
  const auto compute = [](int needs) { return Piece{.needs = needs}; };
  using List = std::vector<std::tuple<double, bool, int>>;
  EXPECT_EQ(parts_of({{collective(0), 3}, {compute(0), 1}, {compute(1), 4}}),
            (List{{1, true, 0}, {2, false, 0}, {4, true, -1}}));
  EXPECT_EQ(parts_of({{collective(0), 3}, {compute(0), 5}, {compute(1), 1}}),
            (List{{3, true, 0}, {2, true, -1}, {1, true, -1}}))
      << "all of it is hidden";
  EXPECT_EQ(parts_of({{collective(0), 3}, {collective(1), 2}, {compute(0), 4}, {compute(2), 1}}),
            (List{{3, true, 0}, {1, true, 1}, {1, false, 1}, {1, true, -1}}));
  EXPECT_EQ(parts_of({{collective(0), 3}, {compute(0), 1}}), (List{{1, true, 0}, {2, false, 0}}))
      << "the end waits for all";
  const Piece within_an_operator{.what = Activity::communication, .exchange = 1, .needs = 1};
  EXPECT_EQ(parts_of({{collective(0), 3}, {compute(0), 1}, {within_an_operator, 2}}),
            (List{{1, true, 0}, {2, false, 0}, {2, false, 1}}));
}

TEST(SegmentTimes, of_an_operator_are_the_longer_of_arithmetic_and_memory) {
  const compiler::Plans plans = plans_under({"1,1,1"}, 1, 1);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  cluster::Hardware hardware = arithmetic_only(1, 1);
  for (auto& [type, rates] : hardware.device.rates) rates.memory = {1e9};
  hardware.device.launch = {1e-6};
  for (const ir::Instr& instr : stage.forward.code) {
    if (!instr.op || instr.op->name() == "attention") continue;
    const ir::Cost cost = ir::local_cost(stage, instr, 0);
    const double flops = cost.flops_per_token * 32, bytes = cost.bytes_per_token * 32 + cost.bytes_fixed;
    ir::Segment alone{Pass::F, {instr}, {}, {}};
    EXPECT_NEAR(segment_times(stage, alone, 32, {0}, hardware, plans.cluster()).pieces[0].fixed,
                1e-6 + std::max(flops, bytes) / 1e9, 1e-12)
        << instr.op->name();
  }
}

// A segment as long as its host's time for all calls, or as its device's; both, one after the other, where the host
// waits. Collectives that run beside computing take none of the host's time away.
TEST(SegmentTimes, are_no_shorter_than_the_host_takes_to_issue_their_calls) {
  for (const bool overlap : {false, true}) {
    const compiler::Plans plans = plans_under({"1,2,1"}, 1, 2, 1, {.overlap = overlap});
    const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
    const ir::Segment& segment = stage.backward;
    cluster::Hardware hardware = arithmetic_only(1, 2);
    hardware.intra_host = {{1e-4}, {1e9}, 1, {}};
    hardware.device.launch = {1e-5};
    double transfers = 0;
    const auto seconds = [&](double launch, bool waits) {
      hardware.device.host_launch = {launch};
      hardware.device.host_waits = waits;
      Queues queues;
      std::vector<Part> parts;
      transfers = 0;
      for (const Piece& piece : segment_times(stage, segment, 32, {0, 1}, hardware, plans.cluster()).pieces) {
        const double alone = piece.fixed + 0.5 * piece.per_pair * 32 * 32;
        if (piece.what == Activity::communication) transfers += alone;
        queues.add(piece, alone, parts);
      }
      queues.finish(parts);
      double sum = 0;
      for (const Part& part : parts) sum += part.seconds;
      return sum;
    };
    const double busy = seconds(0, false), alone = transfers;
    ASSERT_GT(alone, 0);
    size_t calls = 0;  // operators, their sums among ranks, and steps of collectives on one host
    for (const ir::Instr& instr : segment.code)
      calls += instr.op ? 1 + ir::statistic_sums(stage, instr).has_value() : instr.exchanges[0]->steps.size();
    const double per_call = busy / static_cast<double>(calls);
    EXPECT_DOUBLE_EQ(seconds(0.9 * per_call, false), busy) << "the host is ahead";
    for (const double times : {1.1, 3.0, 30.0})
      EXPECT_NEAR(seconds(times * per_call, false), times * busy, 1e-8 * times * busy) << "the device waits";
    EXPECT_DOUBLE_EQ(transfers, alone);
    const double one_by_one = seconds(0, true);
    EXPECT_NEAR(seconds(0.9 * per_call, true), one_by_one + 0.9 * busy, 1e-12) << "either waits for the other";
  }
}

// Two ranks with half of the features each: for 32 tokens a reduction and a gather of 16 fp32 numbers to the other.
TEST(SegmentTimes, have_the_sums_of_norms_whose_features_are_cut) {
  const compiler::Plans plans = plans_under({"tp=2,inner=2,sequence_parallel=false"}, 1, 2);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.intra_host = {{1e-6}, {1e9}, 1, {}};
  for (const bool forward : {true, false}) {
    const ir::Segment* segment = forward ? &stage.forward : &stage.backward;
    const std::string name = forward ? "rms_norm" : "rms_norm_dx";
    const auto norm =
        std::ranges::find_if(segment->code, [&](const ir::Instr& i) { return i.op && i.op->name() == name; });
    ASSERT_NE(norm, segment->code.end());
    ir::Segment alone{Pass::F, {*norm}, {}, {}};
    alone.code[0].after.clear();
    const SegmentTimes times = segment_times(stage, alone, 32, {0, 1}, hardware, plans.cluster());
    ASSERT_EQ(times.pieces.size(), 2u);
    EXPECT_EQ(times.pieces[1].what, Activity::communication);
    EXPECT_NEAR(times.pieces[1].fixed, 2 * (1e-6 + 16 * 4 / 1e9), 1e-12) << name;
  }
}

TEST(SegmentTimes, hide_no_collective_if_the_host_waits_for_each_call) {
  const compiler::Plans plans = plans_under({"1,2,1"}, 1, 2);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.intra_host = {{1e-6}, {1e9}, 1, {}};
  const auto hidden = [&](bool waits) {
    hardware.device.host_waits = waits;
    Queues queues;
    std::vector<Part> parts;
    for (const Piece& piece : segment_times(stage, stage.backward, 32, {0, 1}, hardware, plans.cluster()).pieces)
      queues.add(piece, piece.fixed, parts);
    queues.finish(parts);
    double both = 0;
    for (const Part& part : parts)
      if (part.computes && part.exchange >= 0) both += part.seconds;
    return both;
  };
  EXPECT_GT(hidden(false), 0);
  EXPECT_EQ(hidden(true), 0);
}

TEST(SegmentTimes, of_fused_attention_take_its_own_rates_forward_and_backward) {
  const compiler::Plans plans = plans_under({"1,1,1"}, 1, 1);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  cluster::Hardware hardware = arithmetic_only(1, 1);
  for (auto& [type, rates] : hardware.device.rates) {
    rates.attention = {2e9};
    rates.attention_backward = {5e8};
  }
  const auto per_pair = [&](const ir::Segment& segment, const std::string& name) {
    const auto instr =
        std::ranges::find_if(segment.code, [&](const ir::Instr& i) { return i.op && i.op->name() == name; });
    const ir::Segment alone{segment.pass, {*instr}, {}, {}};
    return std::pair(segment_times(stage, alone, 32, {0}, hardware, plans.cluster()).pieces[0].per_pair,
                     ir::local_cost(stage, *instr, 0).flops_per_pair);
  };
  const auto [forward, flops] = per_pair(stage.forward, "attention");
  EXPECT_NEAR(forward, flops / 2e9, 1e-18);
  const auto [backward, gradients] = per_pair(stage.backward, "attention_dx");
  EXPECT_NEAR(backward, gradients / 5e8, 1e-18);
}

TEST(SegmentTimes, of_a_head_count_the_traffic_of_its_logits) {
  const compiler::Plans plans = plans_under({"1,1,1"}, 1, 1);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  const auto head =
      std::ranges::find_if(stage.backward.code, [](const ir::Instr& i) { return i.op && i.op->name() == "head_loss"; });
  ASSERT_NE(head, stage.backward.code.end());
  const auto seconds = [&](double memory) -> double {
    cluster::Hardware hardware = arithmetic_only(1, 1);
    for (auto& [type, rates] : hardware.device.rates) rates.memory = {memory};
    return segment_times(stage, {Pass::B, {*head}, {}, {}}, 32, {0}, hardware, plans.cluster()).pieces[0].fixed;
  };
  const ir::Cost cost = ir::local_cost(stage, *head, 0);
  EXPECT_GT(cost.bytes_after_per_token, 0);
  EXPECT_GT(cost.bytes_accumulated, 0);
  const double bytes = cost.bytes_after_per_token * 32 + cost.bytes_accumulated;
  EXPECT_NEAR(seconds(1e12) - seconds(1e13), bytes * 0.9e-12, bytes * 1e-16)
      << "products take longer than what they move themselves";
}

// Kernels for devices read logits in bf16 as they are, in larger chunks; where libtorch converts them, that is traffic,
// too. Each chunk's part of the weight's gradient is added to the whole.
TEST(SegmentTimes, of_a_head_count_what_the_kernels_of_its_device_move) {
  struct Kernels {
    const char* what;
    compiler::CodeOptions how;
    double chunk, converted;
  };
  constexpr i64 kTokens = 8192;
  const double copies = 18 * 4;
  for (const Kernels& kernels :
       {Kernels{.what = "cores", .how = {}, .chunk = 512, .converted = copies},
        Kernels{.what = "devices", .how = {.on_devices = true, .element_kernels = true}, .chunk = 4096, .converted = 0},
        Kernels{.what = "libtorch on devices", .how = {.on_devices = true}, .chunk = kTokens, .converted = copies}}) {
    const compiler::Plans plans = plans_under({"1,1,1"}, 1, 1, 1, kernels.how);
    const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
    const auto head = std::ranges::find_if(stage.backward.code,
                                           [](const ir::Instr& i) { return i.op && i.op->name() == "head_loss"; });
    const ir::Cost cost = ir::local_cost(stage, *head, 0);
    EXPECT_EQ(cost.bytes_after_per_token,
              (4 * 2 + kernels.converted) * static_cast<double>(compiler::small_llama().vocab_size))
        << kernels.what;
    cluster::Hardware hardware = arithmetic_only(1, 1);
    const auto seconds = [&](double memory) {
      for (auto& [type, rates] : hardware.device.rates) rates.memory = {memory};
      return segment_times(stage, {Pass::B, {*head}, {}, {}}, kTokens, {0}, hardware, plans.cluster()).pieces[0].fixed;
    };
    const double bytes = (seconds(1e12) - seconds(1e13)) / 0.9e-12;
    EXPECT_NEAR(bytes, cost.bytes_after_per_token * kTokens + cost.bytes_accumulated * kTokens / kernels.chunk,
                bytes * 1e-4)
        << kernels.what;
  }
}

TEST(LocalWork, is_accumulated_once_for_a_part_of_a_chunk) {
  const ir::LocalWork work{.cost = {}, .share = 0.5, .chunk = 100};
  EXPECT_EQ(work.accumulations(10), 1);
  EXPECT_EQ(work.accumulations(200), 1);
  EXPECT_EQ(work.accumulations(600), 3);
  EXPECT_EQ(ir::LocalWork().accumulations(600), 1);
}

// Each of two ranks has half of the tokens, so a product's narrowest dim is 16 of 32 tokens.
TEST(SegmentTimes, of_a_head_whose_tokens_are_cut_are_those_of_a_part) {
  const auto head_of = [](const compiler::Plans& plans) {
    const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
    return std::pair(&stage, std::ranges::find_if(stage.backward.code, [](const ir::Instr& i) {
      return i.op && i.op->name() == "head_loss";
    }));
  };
  const compiler::Plans one = plans_under({"1,1,1"}, 1, 1), two = plans_under({"ulysses=2"}, 1, 2);
  const auto [stage, head] = head_of(one);
  const auto [cut_stage, cut_head] = head_of(two);
  ASSERT_EQ(ir::local_work(*cut_stage, *cut_head, 0).share, 0.5);
  EXPECT_GT(ir::local_cost(*stage, *head, 0).bytes_after_per_token, 0);
  EXPECT_EQ(ir::local_cost(*cut_stage, *cut_head, 0).bytes_after_per_token,
            0.5 * ir::local_cost(*stage, *head, 0).bytes_after_per_token);
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.device.width_curve = {{{16, 0.5}, {32, 1}}};
  ir::Segment alone{Pass::B, {*cut_head}, {}, {}};
  alone.code[0].after.clear();
  const double seconds = segment_times(*cut_stage, alone, 32, {0, 1}, hardware, two.cluster()).pieces[0].fixed;
  const double narrowest = ir::local_cost(*cut_stage, *cut_head, 0).narrowest;
  ASSERT_GE(narrowest, 16);
  EXPECT_NEAR(seconds, 2 * ir::local_cost(*cut_stage, *cut_head, 0).flops_per_token * 32 / 1e9, 1e-12);
}

TEST(SegmentTimes, of_collectives_count_what_a_rank_takes_over_from_itself) {
  const compiler::Plans plans = plans_under({"1,2,1"}, 1, 2);
  const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
  cluster::Hardware hardware = arithmetic_only(1, 2);
  hardware.intra_host.bandwidth = {1e6};
  const SegmentTimes without = segment_times(stage, stage.forward, 32, {0, 1}, hardware, plans.cluster());
  for (auto& [type, rates] : hardware.device.rates) hardware.device.operators[type]["copy"] = {{{1, 1, 1, 1e-6}}, {}};
  const SegmentTimes with = segment_times(stage, stage.forward, 32, {0, 1}, hardware, plans.cluster());
  ASSERT_EQ(with.exchanges.size(), without.exchanges.size());
  int copying = 0;
  for (size_t i = 0; i < with.exchanges.size(); ++i) {
    const double copied = with.exchanges[i].time.count - without.exchanges[i].time.count;
    if (copied == 0) continue;
    double local = 0;
    for (const cost::Exchange::DeviceShare& use : with.exchanges[i].devices)
      local += use.link == cluster::Link::local ? use.share : 0;
    EXPECT_NEAR(local, 2 * copied / with.exchanges[i].time.count, 1e-12) << "all of both devices meanwhile";
    ++copying;
  }
  EXPECT_GT(copying, 0);
}

// A maximum and two sums for each chunk of tokens, which are more on devices: of a reduction and a gather each.
TEST(SegmentTimes, of_a_head_over_parts_of_the_vocabulary_count_its_sums) {
  cluster::Hardware hardware = arithmetic_only(1, 4);
  hardware.intra_host = {{1e-3}, {1e6}, 1, {}};
  for (const bool on_devices : {false, true}) {
    const compiler::Plans plans = plans_under({"1,4,1"}, 1, 4, 1, {.on_devices = on_devices});
    const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
    const auto head = std::ranges::find_if(
        stage.backward.code, [](const ir::Instr& instr) { return instr.op && instr.op->name() == "head_loss"; });
    ASSERT_NE(head, stage.backward.code.end());
    const ir::Segment alone{Pass::F, {*head}, {}, {}};
    const double element = static_cast<double>(size_of(stage.buffers[static_cast<size_t>(head->in[3])].type.dtype));
    const i64 chunk = ir::HeadLoss::chunk(on_devices);
    for (const auto& [tokens, chunks] :
         {std::pair(i64{32}, 1), std::pair(chunk, 1), std::pair(3 * chunk, 3), std::pair(2 * chunk + 32, 3)}) {
      const SegmentTimes times = segment_times(stage, alone, tokens, {0, 1, 2, 3}, hardware, plans.cluster());
      double seconds = 0;
      for (const Piece& piece : times.pieces)
        if (piece.what == Activity::communication) seconds += piece.fixed;
      EXPECT_NEAR(seconds, 2 * (chunks * 2 * 3e-3 + 3 * 0.75 * static_cast<double>(tokens) * element / 1e6), 1e-9)
          << tokens;
      ASSERT_EQ(times.exchanges.size(), 1u);
      EXPECT_EQ(times.exchanges[0].ports.size(), 8u);
    }
  }
}

// Between two collectives by the time between them; without any by the last point.
TEST(SegmentTimes, of_ranks_that_wait_for_one_another_are_the_slowest_ones) {
  const auto times = [](const std::string& strategy, int ranks, const cluster::EfficiencyCurve& curve) {
    const compiler::Plans plans = plans_under({strategy}, 1, ranks);
    cluster::Hardware hardware = arithmetic_only(1, ranks);
    hardware.device.lockstep_curve = curve;
    std::vector<int> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
    return segment_times(stage, stage.forward, 32, all, hardware, plans.cluster()).pieces;
  };
  const auto seconds = [](const Piece& piece) { return piece.fixed + 0.5 * piece.per_pair * 32 * 32; };
  const cluster::EfficiencyCurve curve{{{1e-9, 0.5}, {1, 0.8}}};
  const std::vector<Piece> quiet = times("1,2,1", 2, {}), together = times("1,2,1", 2, curve);
  ASSERT_EQ(quiet.size(), together.size());
  int stretches = 0;
  double before = 0, after = 0;
  for (size_t i = 0; i < quiet.size(); ++i) {
    if (quiet[i].what == Activity::compute) {
      before += seconds(quiet[i]);
      after += seconds(together[i]);
    }
    if (before > 0 && (quiet[i].what == Activity::communication || i + 1 == quiet.size())) {
      EXPECT_DOUBLE_EQ(after, before / curve.at(before));
      ++stretches;
      before = after = 0;
    }
  }
  EXPECT_GT(stretches, 4);
  const std::vector<Piece> alone = times("1,1,1", 1, {}), slowed = times("1,1,1", 1, curve);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_DOUBLE_EQ(seconds(slowed[i]), seconds(alone[i]) / 0.8);
}

}  // namespace
}  // namespace switchyard::simulator
