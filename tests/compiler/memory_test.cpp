#include "compiler/memory.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/step_assembler.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

constexpr int kLayers = 4;

config::Strategy strategy(const std::string& spec, int ranks) {
  return config::strategy_from_spec(spec, ranks, kLayers);
}

Plans plans_of_strategies(std::vector<config::Strategy> strategies, int ranks, const std::string& precision = "fp32") {
  config::ModelConfig model = small_llama();
  model.layers = kLayers;
  return Plans(training_graph(model, precision), std::move(strategies), 0, cluster::uniform(1, ranks),
               switching::Planner::relay);
}

i64 class_bytes(const MemoryPeak& peak, MemoryClass what) { return peak.bytes[static_cast<size_t>(what)]; }

MemoryPeak peak_of(const Plans& plans, const batch::StepPlan& plan, int rank = 0, int prefetch_units = kAllUnits) {
  return predict_memory(assemble(plan, plans, {.prefetch_units = prefetch_units, .train = true}), plan, plans,
                        Holdings(plans, rank));
}

TEST(Memory, OfOneRankIsHomeGradientsAndActivationsWithoutBorrowedWeights) {
  const Plans plans = plans_of_strategies({strategy("1,1,1", 1)}, 1);
  const MemoryPeak peak = peak_of(plans, level_step(plans, 1));
  i64 elements = 0;
  for (const ir::Param& p : plans.graph().params()) elements += p.shape.elements();
  EXPECT_EQ(class_bytes(peak, MemoryClass::master), 4 * elements);
  EXPECT_EQ(class_bytes(peak, MemoryClass::moments), 8 * elements);
  EXPECT_EQ(class_bytes(peak, MemoryClass::home_gradients), 4 * elements);
  EXPECT_EQ(class_bytes(peak, MemoryClass::parameters), 0);
  EXPECT_EQ(class_bytes(peak, MemoryClass::compute_copy), 0);
  EXPECT_GT(class_bytes(peak, MemoryClass::gradients), 0);
  i64 total = 0;
  for (const i64 bytes : peak.bytes) total += bytes;
  EXPECT_EQ(peak.total, total);
  const Plans mixed = plans_of_strategies({strategy("1,1,1", 1)}, 1, "bf16");
  EXPECT_EQ(class_bytes(peak_of(mixed, level_step(mixed, 1)), MemoryClass::compute_copy), 2 * elements);
}

TEST(Memory, OfAttentionIsWithoutScoresOnDevices) {
  config::ModelConfig model = small_llama();
  model.layers = kLayers;
  const auto workspace = [&](bool on_devices, int tokens) {
    const Plans plans(training_graph(model, "bf16"), {strategy("1,1,1", 1)}, 0, cluster::uniform(1, 1),
                      switching::Planner::relay, {.on_devices = on_devices});
    return class_bytes(peak_of(plans, level_step(plans, 1, tokens)), MemoryClass::workspace);
  };
  EXPECT_LT(workspace(true, 2048), workspace(false, 2048) / 2);
  EXPECT_LT(workspace(true, 2048), 5 * workspace(true, 512)) << "in proportion to tokens";
}

TEST(Memory, OfActivationsGrowsWithTokensAndFallsWithRecomputation) {
  using enum config::Recompute;
  const auto plans_with = [](config::Recompute recompute, int tp) {
    config::Strategy s = strategy(fmt::format("1,{},1", tp), tp);
    s.recompute = recompute;
    return plans_of_strategies({s}, tp);
  };
  const auto activations = [](const Plans& plans) {
    return class_bytes(peak_of(plans, level_step(plans, 1)), MemoryClass::activations);
  };
  EXPECT_GT(activations(plans_with(none, 2)), activations(plans_with(gathers, 2)));
  EXPECT_EQ(activations(plans_with(none, 1)), activations(plans_with(gathers, 1)));
  i64 before = 0;
  for (const config::Recompute recompute : {full, selective, gathers}) {
    const Plans plans = plans_with(recompute, 1);
    const i64 now = activations(plans);
    EXPECT_GT(now, before);
    EXPECT_NEAR(static_cast<double>(class_bytes(peak_of(plans, level_step(plans, 1, 128)), MemoryClass::activations)) /
                    static_cast<double>(now),
                2, 0.01);
    before = now;
  }
}

TEST(Memory, OfAPipelineHoldsTheMicroBatchesThatItsScheduleHasInFlight) {
  std::map<config::ScheduleKind, i64> activations;
  for (const auto kind : {config::ScheduleKind::one_f_one_b, config::ScheduleKind::gpipe}) {
    config::Strategy s = strategy("1,1,2", 2);
    s.schedule = kind;
    const Plans plans = plans_of_strategies({s}, 2);
    activations[kind] = class_bytes(peak_of(plans, level_step(plans, 8)), MemoryClass::activations);
  }
  const double ratio = static_cast<double>(activations[config::ScheduleKind::gpipe]) /
                       static_cast<double>(activations[config::ScheduleKind::one_f_one_b]);
  EXPECT_GT(ratio, 3) << "8 micro-batches against 2";
  EXPECT_LE(ratio, 4.1);
}

TEST(Memory, OfAnEvaluationOfAPipelineDoesNotGrowWithItsMicroBatches) {
  config::ModelConfig model = small_llama();
  model.layers = kLayers;
  for (const char* spec : {"1,1,4", "dp=2,pp=2", "tp=2,pp=2,paired=true"}) {
    const Plans plans(models::build(model, precision_from("fp32"), models::Output::loss), {strategy(spec, 4)}, 0,
                      cluster::uniform(1, 4), switching::Planner::relay);
    const auto bounds = [&](int micro_batches) {
      const batch::StepPlan plan = level_step(plans, micro_batches);
      std::vector<i64> bytes;
      for (const MemoryPeak& peak :
           predict_all(assemble(plan, plans, {.train = false}), plan, plans, ExecutionOrder::worst))
        bytes.push_back(peak.total);
      return bytes;
    };
    EXPECT_EQ(bounds(5), bounds(40)) << spec;
  }
}

TEST(Memory, OfASwitchHoldsTheNextStrategyWhileOneRunsOnlyWithPrefetch) {
  const Plans plans = plans_of_strategies({strategy("1,2,1", 2), strategy("2,1,1", 2)}, 2);
  const batch::StepPlan plan = level_step(plans, 1, 2);  // few activations
  const MemoryPeak with = peak_of(plans, plan), without = peak_of(plans, plan, 0, 0);
  i64 working = 0;
  const Holdings holdings(plans, 0);
  for (int unit = 0; unit < static_cast<int>(plans.units().size()); ++unit)
    working += 4 * holdings.working_elements(1, 0, unit);
  EXPECT_GE(class_bytes(without, MemoryClass::parameters), working);
  EXPECT_LE(with.total - without.total, working);
  EXPECT_GE(with.total, without.total);
}

// One copy is read while the next one comes; gradients of a unit are made while those of the one before are on their
// way to their owners.
TEST(Memory, OfZero2And3HoldsWhatTwoUnitsTakeAndRowsOfTheRest) {
  for (const char* spec : {"dp=4,zero=3", "dp=4,zero=3,schedule=zero-bubble", "dp=4,zero=2"}) {
    SCOPED_TRACE(spec);
    const Plans plans = plans_of_strategies({strategy(spec, 4)}, 4),
                zero1 = plans_of_strategies({strategy("dp=4", 4)}, 4);
    const batch::StepPlan plan = level_step(plans, 3);
    const MemoryPeak peak = predict_all(assemble(plan, plans, {}), plan, plans, ExecutionOrder::worst)[0],
                     before = predict_all(assemble(plan, zero1, {}), plan, zero1, ExecutionOrder::worst)[0];
    i64 all = 0, largest = 0;
    for (const switching::UnitMaps& unit : plans.units()) {
      i64 elements = 0;
      for (const int p : unit.tensors) elements += plans.graph().param(p).shape.elements();
      all += elements;
      largest = std::max(largest, elements);
    }
    constexpr i64 kRounding = 1 << 12;
    if (plans.strategies()[0].strategy.zero == 3) {
      EXPECT_LE(class_bytes(peak, MemoryClass::parameters), 4 * 2 * largest) << "what is stored are views of home";
    }
    EXPECT_LE(class_bytes(peak, MemoryClass::gradients), 4 * (2 * largest + all / 4) + kRounding);
    EXPECT_EQ(class_bytes(before, MemoryClass::gradients), 4 * all);
    EXPECT_LT(peak.total, before.total);
  }
}

// All units of a stage lie there while a block of micro-batches reads them, and those of the next one come meanwhile.
TEST(Memory, OfBlocksOfMicroBatchesHoldsWhatTwoBlocksTake) {
  const Plans plans = plans_of_strategies({strategy("dp=4,zero=3,every=2", 4)}, 4);
  const batch::StepPlan plan = level_step(plans, 6);
  const MemoryPeak peak = predict_all(assemble(plan, plans, {}), plan, plans, ExecutionOrder::worst)[0];
  i64 all = 0;
  for (const ir::Param& param : plans.graph().params()) all += param.shape.elements();
  constexpr i64 kRounding = 1 << 12;
  EXPECT_LE(class_bytes(peak, MemoryClass::parameters), 4 * 2 * all + kRounding);
  EXPECT_LE(class_bytes(peak, MemoryClass::gradients), 4 * (2 * all + all / 4) + kRounding);
  EXPECT_GT(class_bytes(peak, MemoryClass::parameters), 4 * all);
}

TEST(Memory, OfRotaryTablesIsThereFromTheStartForTheLongestDocument) {
  const auto peak = [](i64 longest) {
    const Plans plans(std::make_shared<CompiledModel>(training_graph(small_llama(), "fp32"), cluster::uniform(1, 1)),
                      {strategy("1,1,1", 1)}, 0, switching::Planner::relay, longest);
    return std::pair(peak_of(plans, level_step(plans, 1, 32)), peak_of(plans, {}));
  };
  const auto [unknown, nothing] = peak(0);
  const auto [known, before] = peak(96);
  const i64 row = 4 * small_llama().head_dim;  // cosines and sines
  EXPECT_EQ(known.total - unknown.total, row * (96 - 32));
  EXPECT_EQ(before.total - nothing.total, row * 96) << "before the first step";
}

// Two micro-batches one after the other: the second one's tables take the place of the first one's.
TEST(Memory, OfRotaryTablesByDocumentIsThatOfAMicroBatchFromItsFirstRotationToItsEnd) {
  const auto peak = [](double factor, i64 longest) {
    config::ModelConfig model = small_llama();
    model.rope_scaling = {.factor = factor, .original_context = 4, .type = config::RopeScalingType::dynamic};
    const Plans plans(std::make_shared<CompiledModel>(training_graph(model, "fp32"), cluster::uniform(1, 1)),
                      {strategy("1,1,1", 1)}, 0, switching::Planner::relay, longest);
    return std::pair(peak_of(plans, level_step(plans, 2, 32)), peak_of(plans, {}));
  };
  const auto [plain, before_plain] = peak(0, 96);
  const auto [dynamic, before] = peak(2, 96);
  const i64 row = 4 * small_llama().head_dim;  // cosines and sines
  EXPECT_EQ(dynamic.total - plain.total, row * (32 - 96));
  EXPECT_EQ(before.total - before_plain.total, row * -96) << "none before the first step";
  EXPECT_EQ(peak(2, 0).first.total, dynamic.total);
}

// A rank that has none of the next strategy's parameters to wait for may give its own ones away at the very end.
TEST(Memory, IsBoundedForCopiesOfAFormerStrategyThatStay) {
  const Plans plans = plans_of_strategies({strategy("4,1,1", 4), strategy("1,1,4", 4), strategy("1,4,1", 4)}, 4);
  batch::StepPlan plan = level_step(plans, 1, 8);
  plan.phases = {plan.phases[2], level_step(plans, 1, 1024).phases[1]};
  batch::StepPlan last = plan;
  last.phases.erase(last.phases.begin());
  const auto bound = [&](const batch::StepPlan& of) {
    return predict_memory(assemble(of, plans, {}), of, plans, Holdings(plans, 0), ExecutionOrder::worst);
  };
  const Holdings holdings(plans, 0);
  i64 former = 0;  // units that the rank's stage lacks
  for (size_t unit = 0; unit < plans.units().size(); ++unit) {
    if (std::ranges::count(plans.strategies()[1].groups[0].stages[0].units, static_cast<int>(unit)) > 0) continue;
    for (const WorkingGroup& group : holdings.working(2, -1, static_cast<int>(unit)))
      if (group.source == WorkingGroup::Source::own) former += 4 * group.elements;
  }
  EXPECT_GT(former, 0);
  EXPECT_GE(bound(plan).total, bound(last).total + 2 * former) << former << " of its gradients, too";
}

TEST(Memory, OfPhasesThatRepeatDoesNotPileUp) {
  const Plans plans = plans_of_strategies({strategy("1,2,2", 4), strategy("4,1,1", 4), strategy("2,1,2", 4)}, 4);
  const std::vector<batch::PhasePlan> cycle = level_step(plans, 2).phases;
  const auto cycles = [&](int count) {
    batch::StepPlan plan{0, 1, {}};
    for (int i = 0; i < count; ++i) plan.phases.insert(plan.phases.end(), cycle.begin(), cycle.end());
    return plan;
  };
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(to_string(peak_of(plans, cycles(4), rank)), to_string(peak_of(plans, cycles(2), rank)));
}

TEST(Memory, AtTheWorstPaceIsAtLeastWhatIsExpectedAndEqualWithoutSwitchAndPipeline) {
  const Plans switching = plans_of_strategies({strategy("1,2,2", 4), strategy("4,1,1", 4), strategy("2,1,2", 4)}, 4),
              still = plans_of_strategies({strategy("2,2,1", 4)}, 4);
  for (int rank = 0; rank < 4; ++rank) {
    const auto peaks = [&](const Plans& plans) {
      const batch::StepPlan plan = level_step(plans, 3);
      const ir::Program program = assemble(plan, plans, {});
      const Holdings holdings(plans, rank);
      return std::pair{predict_memory(program, plan, plans, holdings).total,
                       predict_memory(program, plan, plans, holdings, ExecutionOrder::worst).total};
    };
    EXPECT_GT(peaks(switching).second, peaks(switching).first);
    EXPECT_EQ(peaks(still).second, peaks(still).first);
  }
}

TEST(Memory, ByTaskPeaksWhereThePeakIsAndBeginsWithHome) {
  const Plans plans = plans_of_strategies({strategy("1,2,2", 4), strategy("4,1,1", 4)}, 4);
  const batch::StepPlan plan = level_step(plans, 3);
  const ir::Program program = assemble(plan, plans, {});
  for (int rank = 0; rank < 4; ++rank) {
    const Holdings holdings(plans, rank);
    const MemoryPeak peak = predict_memory(program, plan, plans, holdings);
    const std::vector<MemoryPeak> moments = memory_by_task(program, plan, plans, holdings);
    ASSERT_EQ(moments.size(), 1 + program.of_rank[static_cast<size_t>(rank)].size());
    i64 highest = 0;
    for (size_t i = 0; i < moments.size(); ++i) {
      EXPECT_EQ(moments[i].task, i == 0 ? -1 : program.of_rank[static_cast<size_t>(rank)][i - 1]);
      EXPECT_GE(moments[i].total, moments.front().bytes[0] + moments.front().bytes[1] + moments.front().bytes[2]);
      highest = std::max(highest, moments[i].total);
    }
    EXPECT_EQ(highest, peak.total);
    EXPECT_TRUE(std::ranges::any_of(
        moments, [&](const MemoryPeak& moment) { return moment.task == peak.task && moment.bytes == peak.bytes; }));
  }
}

TEST(Memory, AProgramIsFittedByPrefetchingFewerUnits) {
  const Plans plans = plans_of_strategies({strategy("1,2,1", 2), strategy("2,1,1", 2)}, 2);
  const batch::StepPlan plan = level_step(plans, 1);
  std::vector<i64> peaks;
  const auto none_fits = [&](const ir::Program& program) {
    peaks.push_back(rank_with_highest_peak(program, plan, plans).second.total);
    return false;
  };
  const ir::Program last = assemble_within(plan, plans, true, none_fits);
  ASSERT_EQ(peaks.size(), 4u) << "6, 3, 1 and 0 units";
  EXPECT_TRUE(std::is_sorted(peaks.rbegin(), peaks.rend()));
  EXPECT_EQ(last.fingerprint(), assemble(plan, plans, {.prefetch_units = 0}).fingerprint());
  const ir::Program second = assemble_within(plan, plans, true, [&](const ir::Program& program) {
    return rank_with_highest_peak(program, plan, plans).second.total <= peaks[1];
  });
  EXPECT_EQ(second.fingerprint(),
            assemble(plan, plans, {.prefetch_units = peaks[1] == peaks[0] ? kAllUnits : 3}).fingerprint());
  int asked = 0;
  assemble_within(plan, plans, false, [&](const ir::Program&) { return ++asked > 9; });
  EXPECT_EQ(asked, 1);
}

// Strategies whose ranks differ: uneven stages, idle ranks, replicas without documents, documents of many lengths.
TEST(Memory, OfAllRanksIsThatOfEach) {
  config::StrategySettings chunked;
  chunked.schedule = config::ScheduleKind::interleaved;
  const Plans plans = plans_of_strategies(
      {strategy("2,2,2", 8), strategy("3,2,1", 8), config::strategy_from_spec("2,1,2", 8, kLayers, chunked),
       strategy("dp=2,tp=2,pp=2,zero=3", 8), strategy("dp=3,tp=2,zero=2", 8)},
      8, "bf16");
  batch::StepPlan plan = level_step(plans, 3);
  for (size_t replica = 0; replica < 2; ++replica)
    plan.phases[0].replica[replica][1] = micro_batch_of(100 + static_cast<i64>(replica), 32, 32);
  plan.phases[1].replica[2].clear();
  plan.phases[3].replica[1].pop_back();
  plan.phases[4].replica[2].clear();
  const ir::Program program = assemble(plan, plans, {});
  for (const ExecutionOrder order : {ExecutionOrder::expected, ExecutionOrder::worst}) {
    const std::vector<MemoryPeak> peaks = predict_all(program, plan, plans, order);
    ASSERT_EQ(peaks.size(), 8u);
    for (int rank = 0; rank < 8; ++rank) {
      const MemoryPeak alone = predict_memory(program, plan, plans, Holdings(plans, rank), order);
      EXPECT_EQ(peaks[static_cast<size_t>(rank)].bytes, alone.bytes) << rank;
      EXPECT_EQ(peaks[static_cast<size_t>(rank)].kept, alone.kept) << rank;
    }
  }
}

TEST(Memory, WithinABudgetIsTheHighestPeakAndOneRankBeyondItIsEnough) {
  const Plans plans = plans_of_strategies({strategy("2,1,2", 4), strategy("1,2,2", 4)}, 4);
  const batch::StepPlan plan = level_step(plans, 3);
  const ir::Program program = assemble(plan, plans, {});
  const std::vector<MemoryPeak> peaks = predict_all(program, plan, plans, ExecutionOrder::worst);
  const auto [rank, highest] = rank_with_highest_peak(program, plan, plans);
  BudgetCheck enough(plan, plans, highest.total), less(plan, plans, highest.total - 1);
  EXPECT_EQ(less.may_fit(program), peaks[0].total < highest.total) << "rank 0 is asked first";
  for (int again = 0; again < 2; ++again) {
    const std::optional<MemoryPeak> within = enough.peak_within(program);
    ASSERT_TRUE(within);
    EXPECT_EQ(within->bytes, highest.bytes);
    EXPECT_FALSE(less.peak_within(program));
    EXPECT_FALSE(less.may_fit(program)) << "the rank that exceeded it is asked";
  }
}

TEST(Memory, ProgramsOfAStepAreCheckedAsEachByItself) {
  const Plans plans = plans_of_strategies({strategy("2,1,2", 4), strategy("1,2,2", 4)}, 4);
  const batch::StepPlan plan = level_step(plans, 3);
  std::vector<i64> peaks;
  for (const int units : {kAllUnits, 2, 0}) {
    const ir::Program program = assemble(plan, plans, {.prefetch_units = units});
    peaks.push_back(rank_with_highest_peak(program, plan, plans).second.total);
  }
  ASSERT_LT(peaks[2], peaks[0]);
  StepAssembler assembler(plan, plans);
  BudgetCheck check(plan, plans, peaks[2]);
  for (const int units : {kAllUnits, 2, 0, kAllUnits}) {
    const AssembleOptions options{.prefetch_units = units};
    const ir::Program program = assembler.program(options);
    EXPECT_EQ(program.fingerprint(), assemble(plan, plans, options).fingerprint()) << units;
    const std::optional<MemoryPeak> within = check.peak_within(program);
    EXPECT_EQ(within.has_value(), rank_with_highest_peak(program, plan, plans).second.total <= peaks[2]) << units;
    if (within) {
      EXPECT_EQ(within->total, peaks[2]);
    }
  }
}

TEST(Memory, NumbersOfUnitsThatABudgetCheckLeavesOutDoNotFit) {
  const Plans plans = plans_of_strategies({strategy("1,2,2", 4), strategy("4,1,1", 4), strategy("1,4,1", 4)}, 4);
  batch::StepPlan plan = level_step(plans, 3);
  plan.phases[0].replica[0][1] = micro_batch_of(1000, 512, 512);  // the peak lies where the next strategy's come
  const int all = static_cast<int>(plans.units().size());
  std::vector<std::pair<int, i64>> peaks;  // by units
  for (int units = all;; units /= 2) {
    const ir::Program program = assemble(plan, plans, {.prefetch_units = units});
    peaks.emplace_back(units, rank_with_highest_peak(program, plan, plans).second.total);
    if (units == 0) break;
  }
  ASSERT_LT(peaks[2].second, peaks[1].second);
  int left_out = 0;
  for (const auto& [fitting, budget] : peaks) {
    BudgetCheck check(plan, plans, budget);
    for (size_t i = 0; i < peaks.size();) {
      const bool fits = peaks[i].second <= budget;
      ASSERT_EQ(check.peak_within(assemble(plan, plans, {.prefetch_units = peaks[i].first})).has_value(), fits);
      if (fits) break;
      const int next = check.fewer_units(peaks[i].first);
      for (++i; peaks[i].first != next; ++i, ++left_out)
        EXPECT_GT(peaks[i].second, budget) << peaks[i].first << " units within what " << fitting << " need";
    }
  }
  EXPECT_GE(left_out, 2);
}

TEST(Memory, KeptActivationsAreTheStashOfTheMicroBatchesInFlight) {
  const Plans plans = plans_of_strategies({strategy("1,1,2", 2)}, 2);
  const auto kept = [&](int rank, int micro_batches) {
    return peak_of(plans, level_step(plans, micro_batches), rank).kept;
  };
  for (int rank = 0; rank < 2; ++rank) {
    const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[static_cast<size_t>(rank)];
    i64 stash = 0;
    for (const int b : stage.stash) stash += ir::local_bytes(stage.buffers[static_cast<size_t>(b)], 0, 1, {64});
    EXPECT_GE(kept(rank, 1), stash);
    EXPECT_LT(kept(rank, 1), 1.15 * static_cast<double>(stash))
        << "queries and keys before their turn lie beside the values";
    EXPECT_EQ(kept(rank, 5), (2 - rank) * kept(rank, 1)) << "1F1B";
  }
}

TEST(Memory, OfACheckpointsCopyIsOneOfEachElementsMasterAndMoments) {
  for (const char* spec : {"1,1,1", "4,1,1", "1,2,2"}) {
    const Plans plans = plans_of_strategies({strategy(spec, 4)}, 4);
    i64 elements = 0, total = 0;
    for (const ir::Param& p : plans.graph().params()) elements += p.shape.elements();
    for (const i64 bytes : checkpoint_copies(plans)) total += bytes;
    EXPECT_EQ(total, 3 * 4 * elements) << spec
                                       << ": the sizes of this model are multiples of what blocks are rounded to";
  }
}

TEST(Memory, IsToldFromTheLargestClassToTheSmallest) {
  MemoryPeak peak;
  peak.bytes[static_cast<size_t>(MemoryClass::moments)] = 2 << 20;
  peak.bytes[static_cast<size_t>(MemoryClass::activations)] = 5 << 20;
  peak.total = 7 << 20;
  EXPECT_EQ(peak.largest(), MemoryClass::activations);
  EXPECT_EQ(to_string(peak), "7 MiB: activations 5 MiB, moments 2 MiB");
}

}  // namespace
}  // namespace switchyard::compiler
