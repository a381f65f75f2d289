#include "planner/cost_model.hpp"

#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "compiler/assemble.hpp"
#include "compiler/job_plans.hpp"
#include "compiler/memory.hpp"
#include "compiler/replica_schedule.hpp"
#include "ir/autodiff.hpp"
#include "models/build.hpp"
#include "simulator/simulate.hpp"
#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

// Links, launches and efficiency count.
struct Case {
  explicit Case(int devices, std::vector<std::vector<i64>> steps, double intra = 50e9, double alone_speedup = 1)
      : Case(hardware(devices, intra, alone_speedup), std::move(steps)) {}
  Case(const cluster::Hardware& hardware, std::vector<std::vector<i64>> steps)
      : Case(hardware, std::move(steps), compiler::CodeOptions{}) {}
  Case(const cluster::Hardware& hardware, std::vector<std::vector<i64>> steps, const compiler::CodeOptions& how)
      : units(model_of(4, 256, 1000), precision_from("bf16"), hardware, how),
        transfers(units),
        model(units, transfers, workload_of(std::move(steps), 1024)) {}
  static cluster::Hardware hardware(int devices, double intra, double alone_speedup) {
    cluster::Hardware hardware = hardware_of(1, devices, 5e-6, intra, 1e9);
    hardware.device.alone_speedup = alone_speedup;
    hardware.overlap_slowdown = 1;  // the planner's model knows it of what runs exchange, not of sends beside them
    return hardware;
  }
  Range all() const { return {0, static_cast<int>(model.bounds().size())}; }
  UnitCosts units;
  Transfers transfers;
  CostModel model;
};

// A step under a shape alone, compiled.
struct CompiledStep {
  CompiledStep(const Case& of, const Shape& shape, i64 capacity, const std::vector<i64>& lengths)
      : bucket{1024, {}, strategy_of(shape, of.units.model().layers, capacity)},
        plans(graph_of(of), {bucket.strategy}, 0, of.units.hardware().placement(), switching::Planner::relay) {
    config::Job job;
    job.model.config = of.units.model();
    job.run.ranks = of.units.hardware().ranks();
    job.buckets = {bucket};
    plan = batch::plan_batch(0, lengths, compiler::bucket_specs(job, plans), compiler::work_model(of.units.model()));
    program = compiler::assemble(plan, plans, {});
  }
  static ir::Graph graph_of(const Case& of) {
    ir::Graph graph = models::build(of.units.model(), of.units.precision(), models::Output::loss);
    ir::differentiate(graph);
    return graph;
  }
  config::Bucket bucket;
  compiler::Plans plans;
  batch::StepPlan plan;
  ir::Program program;
};

// From the start to the end of all forward and backward passes of a simulated step, and of what they gather and reduce.
double simulated(const Case& of, const Shape& shape, i64 capacity, const std::vector<i64>& lengths) {
  CompiledStep step(of, shape, capacity, lengths);
  ir::Program& program = step.program;
  // What the planner's model of runs leaves out takes nothing here: parameters that home has, and zeros that are not
  // for single runs.
  for (ir::Task& task : program.tasks)
    if (task.kind() == ir::TaskKind::move || task.kind() == ir::TaskKind::reduce) task.messages = {};
  cluster::Hardware hardware = of.units.hardware();
  const auto nothing = [&](DType type, const char* name) {
    hardware.device.operators[type][name].calls = {{1, 1, 1, 1e-30}};
  };
  if (!shape.placement.runs_transfer()) nothing(of.units.precision().state, "zero");
  if (shape.placement.cuts(3) == 1) nothing(of.units.precision().compute, "copy");
  const simulator::Simulation simulation = simulator::simulate(program, step.plan, step.plans, hardware);
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  for (size_t task = 0; task < program.tasks.size(); ++task)
    if (const ir::TaskKind kind = program.tasks[task].kind();
        kind == ir::TaskKind::run || kind == ir::TaskKind::gather || kind == ir::TaskKind::reduce_scatter) {
      begin = std::min(begin, simulation.tasks[task].begin);
      end = std::max(end, simulation.tasks[task].end);
    }
  return end - begin;
}

// Micro-batches of sizes at which times are taken, so that nothing is interpolated; one pipeline, so that no parameters
// are on their way.
TEST(CostModel, takes_what_the_simulator_takes) {
  const std::vector<i64> lengths = {1024, 1024, 512, 512, 512, 512, 1024};
  for (const Placement& p :
       {Placement{1, outer(1), 1}, Placement{1, outer(2), 1}, Placement{1, outer(1), 2}, Placement{1, outer(2), 2},
        Placement{1, outer(1), 4}, Placement{1, outer(1), 2, config::Inside::data, 2}})
    for (const config::Recompute recompute : {config::Recompute::none, config::Recompute::full})
      for (const config::ScheduleKind schedule : {config::ScheduleKind::one_f_one_b, config::ScheduleKind::gpipe}) {
        cluster::Hardware hardware = Case::hardware(p.ranks(), 50e9, 1);
        if (p.pp == 1) hardware.overlap_slowdown = 1.3;
        const Case one(hardware, {lengths});
        const Shape shape{p, recompute, schedule};
        const double exact = simulated(one, shape, 1024, lengths), said = one.model.seconds(shape, 1024, one.all());
        EXPECT_LE(said, exact * (1 + 1e-6)) << to_string(shape);
        const bool share = p.stage_ranks() > 1 &&
                           p.pp > 1;  // sends between stages have a port in common with the collectives beside them
        EXPECT_GE(said, exact * (1 - (share ? 4e-3 : 1e-6))) << to_string(shape);
      }
}

// Links of endless bandwidth, as sends of several positions of a stage share its port.
TEST(CostModel, takes_what_the_simulator_takes_under_schedules_of_chunks_and_split_gradients) {
  const std::vector<i64> lengths = {1024, 1024, 512, 512, 512, 512, 1024, 1024};
  for (const int tp : {1, 2})
    for (const Shape& shape :
         shapes(model_of(4, 256, 1000), 4 * tp, {.stage_ranks = {tp}, .pp = {2, 4}, .both_orders = false})) {
      if (shape.placement.pipelines() > 1 || shape.placement.runs_transfer()) continue;
      const Case one(shape.placement.ranks(), {lengths}, 1e18);
      const double exact = simulated(one, shape, 1024, lengths);
      EXPECT_NEAR(one.model.seconds(shape, 1024, one.all()), exact, 1e-6 * exact) << to_string(shape);
    }
  for (const Shape& shape : shapes(model_of(4, 256, 1000), 2, {.stage_ranks = {1}, .pp = {2}})) {
    const Case one(2, {lengths}, 1e18);
    const double exact = simulated(one, shape, 1024, lengths);
    EXPECT_NEAR(one.model.seconds(shape, 1024, one.all()), exact, 1e-6 * exact) << to_string(shape);
  }
}

// Four pipelines from one host to the other, or stages of four ranks, that share an adapter.
TEST(CostModel, takes_about_what_the_simulator_takes_where_pipelines_share_an_adapter) {
  const std::vector<i64> lengths(32, 1024);
  cluster::Hardware hardware = hardware_of(2, 4, 5e-6, 50e9, 1e9);
  hardware.overlap_slowdown = 1;
  hardware.inter_host->shared_by = 4;
  const Case one(hardware, {lengths});
  double alone = 0, together = 0;
  for (const Placement& p : {Placement{4, {}, 2}, Placement{2, mesh(2, 1, 1), 2}, Placement{1, mesh(4, 1, 1), 2}}) {
    const Shape shape{p, config::Recompute::none, config::ScheduleKind::one_f_one_b};
    const double exact = simulated(one, shape, 1024, lengths), said = one.model.seconds(shape, 1024, one.all());
    EXPECT_NEAR(said, exact, 0.1 * exact) << to_string(shape);
    together = std::max(together, exact);
  }
  hardware.inter_host->shared_by = 1;
  const Case apart(hardware, {lengths});
  alone = simulated(apart, {{4, {}, 2}, config::Recompute::none}, 1024, lengths);
  EXPECT_GT(together, 1.5 * alone) << "the adapter is what they wait for";
}

// Devices that slow each other: stages and pipelines that wait leave their host to the others. Collectives come in the
// midst of a run, not at its end.
TEST(CostModel, takes_what_the_simulator_takes_on_devices_that_slow_each_other) {
  const std::vector<i64> lengths = {1024, 1024, 512, 512, 512, 512, 1024};
  int quicker = 0;
  const Case usual(4, {lengths}, 1e18);
  for (const double speedup : {1.5, 2.0}) {
    const Case one(4, {lengths}, 1e18, speedup);
    for (const Placement& p : {Placement{1, outer(1), 1}, Placement{1, outer(1), 2}, Placement{1, outer(1), 4},
                               Placement{2, outer(1), 2}, Placement{4, outer(1), 1}, Placement{1, outer(2), 2},
                               Placement{2, outer(2), 1}, Placement{1, outer(1), 2, config::Inside::data, 0, 2}}) {
      const bool chunks = p.chunks > 1;
      const Shape shape{p, config::Recompute::none,
                        chunks ? config::ScheduleKind::interleaved : config::ScheduleKind::one_f_one_b};
      const double exact = simulated(one, shape, 1024, lengths), said = one.model.seconds(shape, 1024, one.all());
      EXPECT_NEAR(said, exact, (p.stage_ranks() > 1 ? 0.03 : 1e-6) * exact) << to_string(shape) << ", " << speedup;
      if (said < 0.9 * usual.model.seconds(shape, 1024, one.all())) ++quicker;
      const PhaseParts parts = one.model.parts(shape, 1024, one.all());
      EXPECT_NEAR(parts.compute + parts.communication + parts.idle, parts.seconds, 1e-9);
    }
  }
  EXPECT_GT(quicker, 6);
}

// Pipelines that gather and reduce together wait for one another; transfers go on beside runs but for the first ones.
TEST(CostModel, takes_about_what_the_simulator_takes_where_stages_of_zero_cut_copies) {
  const std::vector<i64> lengths = {1024, 1024, 512, 512, 512, 512, 1024, 256, 300};
  for (const double intra : {2e9, 20e9})
    for (Placement p : {Placement{2, {}, 1}, Placement{4, {}, 1}, Placement{2, {}, 2}, Placement{1, mesh(2, 1, 1), 2},
                        Placement{2, outer(2), 1}, Placement{1, depth(2, 1), 1}, Placement{1, depth(2, 1), 2},
                        Placement{2, depth(2, 1), 1}, Placement{1, depth(2, 2), 1}})
      for (p.zero = 1; p.zero <= 3; ++p.zero)
        for (const config::ScheduleKind schedule :
             {config::ScheduleKind::one_f_one_b, config::ScheduleKind::zero_bubble}) {
          if (p.pp == 1 && schedule != config::ScheduleKind::one_f_one_b) continue;
          const Case one(Case::hardware(p.ranks(), intra, 1), {lengths});
          const Shape shape{p, config::Recompute::none, schedule};
          const double exact = simulated(one, shape, 1024, lengths), said = one.model.seconds(shape, 1024, one.all());
          // Slow links are full, with collectives of code and transfers on them.
          EXPECT_NEAR(said, exact, (intra < 10e9 ? 0.2 : 0.1) * exact) << to_string(shape) << ", " << intra;
        }
}

// A rank copies the rows of parameters that it stores, adds its own part to the gradients that it stores, and fills
// those of each run with zeros.
TEST(CostModel, takes_about_what_the_simulator_takes_where_own_rows_are_copied_and_added) {
  const std::vector<i64> lengths = {1024, 1024, 512, 512, 512, 512, 1024, 256, 300};
  for (Placement p : {Placement{2, {}, 1}, Placement{4, {}, 1}, Placement{2, {}, 2}, Placement{2, outer(2), 1},
                      Placement{1, depth(2, 1), 1}, Placement{2, depth(2, 1), 1}})
    for (p.zero = p.mesh.replicas() > 1 ? 1 : 2; p.zero <= 3; ++p.zero) {
      cluster::Hardware hardware = Case::hardware(p.ranks(), 50e9, 1);
      const Shape shape{p, config::Recompute::none, config::ScheduleKind::one_f_one_b};
      const double quick = simulated({hardware, {lengths}}, shape, 1024, lengths);
      const auto slow = [&](DType type, const char* name, double bytes) {
        hardware.device.operators[type][name].calls = {{1, 1, bytes, bytes / 10e9}};
      };
      slow(DType::f32, "add", 12);
      slow(DType::f32, "zero", 4);
      if (p.cuts(3) > 1) slow(DType::bf16, "copy", 4);  // reshards have copies, too
      const Case one(hardware, {lengths});
      const double exact = simulated(one, shape, 1024, lengths), said = one.model.seconds(shape, 1024, one.all());
      EXPECT_NEAR(said, exact, 0.1 * exact) << to_string(shape);
      EXPECT_GT(exact, 1.2 * quick) << to_string(shape);
    }
}

// Documents on spans of some ranks and of all, on one host and on two. Messages reach a part of the bandwidth, shorter
// ones a smaller part, and sums of gradients less. Ring ranks have unlike parts, of which the slowest counts.
TEST(CostModel, takes_about_what_the_simulator_takes_where_ring_ranks_pass_keys_on) {
  const std::vector<i64> lengths = {1024, 1024, 512, 512, 700, 300, 1024, 256, 300};
  double most = 0;
  for (const int hosts : {1, 2})
    for (const int ring : {2, 4, 8})
      for (const int tp : {1, 2}) {
        cluster::Hardware hardware = hardware_of(hosts, ring * tp / hosts, 5e-6, 5e9, 1e9);
        hardware.overlap_slowdown = 1;
        hardware.inter_host->shared_by = std::min(2, hardware.devices_per_host);
        hardware.inter_host->curve = {{{1e4, 0.3}, {1e6, 0.8}}};
        hardware.intra_host.sum_share = hardware.inter_host->sum_share = 0.8;
        Placement p{1, outer(tp), 1};
        p.mesh[layout::StageAxis::ring] = ring;
        const Case one(hardware, {lengths});
        const Shape shape{p, config::Recompute::none};
        const double exact = simulated(one, shape, 1024, lengths), said = one.model.seconds(shape, 1024, one.all());
        EXPECT_NEAR(said, exact, 1e-3 * exact) << to_string(shape) << ", hosts: " << hosts;
        const PhaseParts parts = one.model.parts(shape, 1024, one.all());
        most = std::max(most, parts.communication / parts.seconds);
      }
  EXPECT_GT(most, 0.3);
}

// On hosts with slow links: the copies of a host share what comes from the other, but send gradients of their own; what
// the first unit needs and the last one leaves is hidden by nothing.
TEST(CostModel, takes_about_what_the_simulator_takes_where_runs_gather_across_hosts) {
  const std::vector<i64> lengths = {1024, 1024, 512, 512, 512, 512, 1024, 256, 300};
  for (const double inter : {0.5e9, 5e9})
    for (Placement p : {Placement{1, {{layout::StageAxis::depth, 2}, {layout::StageAxis::ulysses, 2}}, 1},
                        Placement{4, {}, 1}, Placement{2, depth(2, 1), 1}})
      for (p.zero = p.mesh.replicas() > 1 ? 1 : 3; p.zero <= 3; ++p.zero) {
        cluster::Hardware hardware = hardware_of(2, 2, 5e-6, 20e9, inter);
        hardware.overlap_slowdown = 1;
        const Case one(hardware, {lengths});
        const Shape shape{p, config::Recompute::none, config::ScheduleKind::one_f_one_b};
        const double exact = simulated(one, shape, 1024, lengths), said = one.model.seconds(shape, 1024, one.all());
        // Collectives of code share links with transfers.
        EXPECT_NEAR(said, exact, (p.code_ranks() > 1 ? 0.2 : 0.1) * exact) << to_string(shape) << ", " << inter;
      }
}

// The first block's parameters are gathered beside nothing.
TEST(CostModel, takes_about_what_the_simulator_takes_where_blocks_share_what_is_gathered) {
  const std::vector<i64> lengths(24, 1024);
  for (const double intra : {2e9, 20e9})
    for (Placement p : {Placement{2, {}, 2}, Placement{1, depth(2, 1), 2}, Placement{1, mesh(2, 1, 1), 2}})
      for (p.chunks = 1; p.chunks <= 2; ++p.chunks)
        for (const int every : {2, 3, 6}) {
          if (p.mesh.replicas() == 1) p.zero = 3;
          const Case one(Case::hardware(p.ranks(), intra, 1), {lengths});
          const Shape shape{p, config::Recompute::none, config::ScheduleKind::zeropp, 0, every};
          const double exact = simulated(one, shape, 1024, lengths), said = one.model.seconds(shape, 1024, one.all());
          const bool both = intra < 10e9 && p.code_ranks() > 1;  // collectives of code and transfers fill slow links
          EXPECT_NEAR(said, exact,
                      (both           ? 0.3
                       : intra < 10e9 ? 0.2
                                      : 0.1) *
                          exact)
              << to_string(shape) << ", " << intra;
        }
}

// Peak of the rank with the highest one in a step of micro-batches of 1024 tokens.
i64 predicted_peak(const Case& one, const Shape& shape, const std::vector<i64>& lengths) {
  const CompiledStep step(one, shape, 1024, lengths);
  i64 peak = 0;
  for (const compiler::MemoryPeak& of_rank : compiler::predict_all(step.program, step.plan, step.plans))
    peak = std::max(peak, of_rank.total);
  return peak;
}

// Where each rank keeps the shares that home has, both are the same memory.
TEST(CostModel, parameters_that_home_holds_are_counted_once) {
  const std::vector<i64> lengths(8, 1024);
  Placement sharded{4, {}, 1};
  sharded.zero = 3;
  for (const Placement& p : {Placement{1, {}, 1}, Placement{1, {}, 2}, Placement{1, depth(4, 1), 1}, sharded}) {
    const Case one(Case::hardware(p.ranks(), 20e9, 1), {lengths});
    const Shape shape{p, config::Recompute::full};
    const MemoryNeed need = one.model.need(shape, 1024, one.all());
    const i64 said = need.total() + one.model.home_bytes({p}), peak = predicted_peak(one, shape, lengths);
    EXPECT_GE(static_cast<double>(said), 0.99 * static_cast<double>(peak)) << to_string(shape);
    EXPECT_LE(static_cast<double>(said), 1.05 * static_cast<double>(peak)) << to_string(shape);
    EXPECT_EQ(need.parameters == 0, p.cuts(3) == 1) << to_string(shape);
  }
}

// What the chunks of a rank with whole blocks, and their gradients, take beside home.
TEST(CostModel, memory_of_blocks_is_about_what_the_program_takes) {
  const std::vector<i64> lengths(24, 1024);
  for (Placement p : {Placement{2, {}, 2}, Placement{4, {}, 2}, Placement{1, depth(2, 1), 2}})
    for (p.chunks = 1; p.chunks <= 2; ++p.chunks)
      for (const int every : {2, 3, 6}) {
        if (p.mesh.replicas() == 1) p.zero = 3;
        const Case one(Case::hardware(p.ranks(), 20e9, 1), {lengths});
        const Shape shape{p, config::Recompute::none, config::ScheduleKind::zeropp, 0, every};
        const i64 said = one.model.need(shape, 1024, one.all()).total() + one.model.home_bytes({p});
        const i64 peak = predicted_peak(one, shape, lengths);
        EXPECT_NEAR(static_cast<double>(said), static_cast<double>(peak), 0.2 * static_cast<double>(peak))
            << to_string(shape);
      }
}

// A host that issues operators more slowly than the device computes, and one that waits for its device.
TEST(CostModel, takes_what_the_simulator_takes_where_the_host_is_slow) {
  const std::vector<i64> lengths = {1024, 1024, 512, 512, 512, 512, 1024};
  for (const Placement& p : {Placement{1, outer(1), 1}, Placement{1, outer(2), 1}, Placement{1, outer(1), 4}})
    for (const bool waits : {false, true}) {
      cluster::Hardware hardware = Case::hardware(p.ranks(), 1e18, 1);
      hardware.device.host_launch = {1e-3};
      hardware.device.host_waits = waits;
      const Shape shape{p, config::Recompute::full, config::ScheduleKind::one_f_one_b};
      const Case one(hardware, {lengths});
      const double exact = simulated(one, shape, 1024, lengths);
      EXPECT_NEAR(one.model.seconds(shape, 1024, one.all()), exact, 1e-6 * exact) << to_string(shape);
      EXPECT_GT(exact, 2 * Case(p.ranks(), {lengths}, 1e18).model.seconds(shape, 1024, one.all()));
    }
}

// What is kept at a time covers what the orders keep.
TEST(CostModel, memory_covers_all_that_an_order_keeps) {
  for (const Shape& shape :
       shapes(model_of(8, 64, 100), 8, {.stage_ranks = {1}, .pp = {2, 4}, .recompute = {config::Recompute::none}})) {
    const int pp = shape.placement.pp, chunks = shape.placement.chunks, cap = shape.activation_cap;
    for (int mbs = 1; mbs <= 11; ++mbs) {
      const compiler::SegmentCost one{.flops_per_token = 1};
      const std::vector<compiler::StageCost> none(static_cast<size_t>(pp * chunks),
                                                  {.forward = one, .backward = one, .weight = one});
      const schedule::Schedule made =
          compiler::schedule_of(shape.schedule, chunks, cap, shape.every, none, mbs, 1e9, 0);
      const std::vector<int> peak = schedule::peak_in_flight(made.order);
      for (int stage = 0; stage < pp; ++stage)
        EXPECT_GE(most_kept(shape, stage, mbs), peak[static_cast<size_t>(stage)])
            << to_string(shape) << ", stage " << stage << ", " << mbs;
    }
  }
}

TEST(CostModel, memory_has_scores_of_attention_on_cpus_only_and_no_copies_where_kernels_make_none) {
  const auto total = [](bool on_devices, bool element_kernels) {
    const Case one(Case::hardware(1, 1e18, 1), {{1024}},
                   {.on_devices = on_devices, .element_kernels = element_kernels});
    return one.model.need({}, 1024, one.all()).total();
  };
  EXPECT_LT(total(true, false), total(false, false));
  EXPECT_LT(total(true, true), total(true, false));
}

TEST(CostModel, parts_of_a_phase_sum_to_it_and_steps_are_averaged) {
  const std::vector<i64> one = {1024, 700, 100}, other = {1000, 1000, 1000, 3, 3};
  const Case both(4, {one, other}), first(4, {one}), second(4, {other});
  const Shape shape{{2, outer(1), 2}};
  const PhaseParts parts = both.model.parts(shape, 1024, both.all());
  EXPECT_NEAR(parts.compute + parts.communication + parts.idle, parts.seconds, 1e-12);
  EXPECT_GT(parts.compute, 0);
  EXPECT_GE(parts.idle, 0);
  EXPECT_NEAR(parts.seconds,
              (first.model.seconds(shape, 1024, first.all()) + second.model.seconds(shape, 1024, second.all())) / 2,
              1e-12);
}

TEST(CostModel, ranges_hold_the_documents_between_bounds) {
  const Case one(1, {{1024, 600, 500, 100}});
  ASSERT_EQ(one.model.bounds(), (std::vector<i64>{256, 512, 1024}));
  const Shape shape;
  const double all = one.model.seconds(shape, 1024, {2, 3}) + one.model.seconds(shape, 1024, {0, 2});
  EXPECT_GT(all, one.model.seconds(shape, 1024, {2, 3}));
  EXPECT_EQ(one.model.longest({0, 2}), 512);
  EXPECT_TRUE(one.model.any({1, 2}));
  EXPECT_DOUBLE_EQ(one.model.seconds(shape, 1024, {2, 3}), Case(1, {{1024, 600}}).model.seconds(shape, 1024, {0, 1}));
}

TEST(CostModel, a_document_longer_than_all_bounds_is_refused) {
  const Case one(1, {{1024}});
  EXPECT_THROW(CostModel(one.units, one.transfers, {{256, 512}, {{100, 513}}}), UserError);
}

i64 elements(const Case& of, StageKind kind, int layers) {
  return parts_of(kind, layers).sum([&](StageKind one) { return of.units.parameters(one, {}); });
}

TEST(CostModel, gpipe_keeps_all_micro_batches_and_1f1b_as_many_as_stages_follow) {
  const Case one(2, {std::vector<i64>(9, 1024)});
  const auto stage = [&](StageKind kind, i64 in_flight, bool split) {
    const Kept kept = one.units.kept(kind, 2, {}, config::Recompute::none, split, {1024, 1024});
    const i64 state = elements(one, kind, 2) * 4, feeds = 1024 * (3 * 8 + 4);
    return state + one.units.table_bytes(1024) + in_flight * feeds + (in_flight - 1) * kept.most() +
           std::max(kept.forward_peak, kept.backward_peak);
  };
  const auto need = [&](config::ScheduleKind schedule, int cap) {
    return one.model.need({{1, {}, 2}, config::Recompute::none, schedule, cap}, 1024, one.all()).total();
  };
  EXPECT_EQ(need(config::ScheduleKind::gpipe, 0),
            std::max(stage(StageKind::first, 9, false), stage(StageKind::last, 9, false)));
  EXPECT_EQ(need(config::ScheduleKind::one_f_one_b, 0),
            std::max(stage(StageKind::first, 2, false), stage(StageKind::last, 1, false)));
  for (const int cap : {0, 4}) {
    const int most = cap > 0 ? cap : 2;
    EXPECT_EQ(need(config::ScheduleKind::zero_bubble, cap),
              std::max(stage(StageKind::first, most, true), stage(StageKind::last, most, true)));
  }
}

TEST(CostModel, home_is_shared_by_replicas_tensor_ranks_and_stages) {
  const Case one(4, {{1024}});
  const i64 alone = one.model.home_bytes({{1, outer(1), 1}});
  EXPECT_EQ(alone, elements(one, StageKind::whole, 4) * (4 * 4 + 2)) << "master, two moments, gradient, compute copy";
  EXPECT_EQ(one.model.home_bytes({{4, outer(1), 1}}), alone / 4);
  EXPECT_EQ(one.model.home_bytes({{4, {}, 1}, 0}), alone) << "a copy on each replica";
  EXPECT_LT(one.model.home_bytes({{1, outer(1), 4}}), alone / 2);
  for (const Shape& shape : shapes(one.units.model(), 4, {}))
    EXPECT_LE(one.model.least_home_bytes(), one.model.home_bytes({shape.placement}));
}

}  // namespace
}  // namespace switchyard::planner
