// Encoded messages: lossless ones change no bit of a job, lossy ones little, copies stay equal, the fabric counts the
// bytes that the Program announces, and memory is as predicted.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "comm/forwarding_fabric.hpp"
#include "compiler/memory.hpp"
#include "compiler/ring_keys.hpp"
#include "compiler/wire.hpp"
#include "kernels/memory.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using codecs::Codec;
using testing::Each;
using testing::IsEmpty;

// activations: between and within stages, and keys.
config::Compression all_of(Codec gradients, Codec activations, Codec gathers, Codec switches = Codec::none) {
  return {.gradients = gradients,
          .pipeline = activations,
          .activations = activations,
          .ulysses = activations,
          .keys = activations,
          .gathers = gathers,
          .switches = switches,
          .smallest = {0}};
}

struct Job {
  std::vector<std::string> strategies;
  std::vector<i64> bounds{kLongest};
  int ranks = 4, hosts = 1, zero = 1;
  Precision precision = kFp64;
};

compiler::Plans plans_of(const Job& job, const config::Compression& compression) {
  config::StrategySettings settings;
  settings.compression = compression;
  return tiny_plans(job.strategies, job.ranks, 0, job.precision, job.hosts, job.zero, settings);
}

TinyRun run_of(const Job& job, const config::Compression& compression) {
  return run_tiny(plans_of(job, compression), {tiny_documents(11, 1), tiny_documents(9, 2)}, {.bounds = job.bounds});
}

void expect_equal_bits(const TinyRun& a, const TinyRun& b) {
  ASSERT_THAT(a.ends, Each(IsEmpty()));
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t s = 0; s < a.steps.size(); ++s) {
    EXPECT_EQ(a.steps[s].loss, b.steps[s].loss);
    EXPECT_EQ(a.steps[s].norm, b.steps[s].norm);
  }
  for (size_t p = 0; p < a.master.size(); ++p) EXPECT_TRUE(a.master[p].equal(b.master[p])) << "parameter " << p;
}

double largest_gap(const TinyRun& a, const TinyRun& b) {
  double most = 0;
  for (size_t p = 0; p < a.master.size(); ++p) most = std::max(most, gap(a.master[p], b.master[p]));
  return most;
}

// Jobs with each kind of transfer: reductions home, from runs and from phases; sends; gathers; moves in a switch.
const std::vector<Job>& jobs() {
  static const std::vector<Job> kJobs = {{{"4,1,1"}},
                                         {{"2,1,2"}},
                                         {{"2,2,1"}, {kLongest}, 4, 2},
                                         {{"dp=4"}, {kLongest}, 4, 2, 3},
                                         {{"dp=2,depth=2"}},
                                         {{"1,4,1"}, {kLongest}, 4, 2},
                                         {{"tp=4,inner=2"}},
                                         {{"ring=2,ulysses=2"}},
                                         {{"ring=4"}, {kLongest}, 4, 2},
                                         {{"ring=4,exchange=ring"}, {kLongest}, 4, 2},
                                         {{"dp=4"}, {kLongest}, 4, 1, 0},
                                         {{"1,2,2", "4,1,1"}, {kLongest, 10}, 4, 2},
                                         {{"2,1,2", "1,4,1"}, {kLongest, 10}, 4, 1, 1, precision_from("bf16")}};
  return kJobs;
}

TEST(Compression, LosslessEverywhereChangesNoBit) {
  for (const Job& job : jobs()) {
    SCOPED_TRACE(job.strategies.front());
    expect_equal_bits(run_of(job, all_of(Codec::lossless, Codec::lossless, Codec::lossless, Codec::lossless)),
                      run_of(job, {}));
  }
}

TEST(Compression, LossyCodecsChangeWeightsALittleAndEachTimeAlike) {
  for (const Job& job : jobs()) {
    SCOPED_TRACE(job.strategies.front());
    const config::Compression lossy = all_of(Codec::int8, Codec::fp8, Codec::int8);
    const TinyRun plain = run_of(job, {}), once = run_of(job, lossy), again = run_of(job, lossy);
    expect_equal_bits(once, again);
    EXPECT_TRUE(once.copies_agree);
    EXPECT_GT(largest_gap(once, plain), 0);
    EXPECT_LT(largest_gap(once, plain), 0.05);
  }
}

// AdamW's first steps are as long for small gradients as for large ones, so its weights don't tell how good sums are;
// the norm does.
TEST(Compression, FinerCodecsOfGradientsAreNearerToTheirNorm) {
  const Job job{{"4,1,1"}, {kLongest}, 4, 1, 1, precision_from("fp32")};
  const double exact = run_of(job, {}).steps[0].norm;
  const auto error = [&](Codec codec) {
    return std::abs(run_of(job, all_of(codec, Codec::none, Codec::none)).steps[0].norm - exact) / exact;
  };
  EXPECT_LT(error(Codec::bf16), 1e-3);
  EXPECT_LT(error(Codec::int8), 1e-3);
  EXPECT_LT(error(Codec::zfp16), 1e-3);
  EXPECT_LT(error(Codec::fp8), 1e-2);
  EXPECT_LT(error(Codec::int4), 5e-2);
}

// Messages by task of the Program, as the fabric sees them.
class CountingFabric final : public comm::ForwardingFabric {
 public:
  struct Counts {
    std::mutex mutex;
    std::map<std::pair<std::string, int>, i64> bytes;  // name, number of the task
  };
  CountingFabric(std::unique_ptr<comm::Fabric> inner, Counts& counts)
      : ForwardingFabric(std::move(inner)), counts_(counts) {}
  void run(const comm::Channel& channel, const comm::Transaction& transaction) override {
    inner().run(channel, transaction);
    const std::lock_guard lock(counts_.mutex);
    for (const comm::Op& op : transaction.ops)
      if (op.kind == comm::Op::Kind::send)
        counts_.bytes[{transaction.name, static_cast<int>(transaction.number % (1ll << 24))}] += op.block.bytes();
  }

 private:
  Counts& counts_;
};

// An instruction of a run of the program, with what it runs on.
struct RunInstr {
  const ir::Task& task;
  const compiler::CompiledStrategy& strategy;
  const ir::StageCode& stage;
  const batch::MicroBatch& micro_batch;
  const ir::Instr& instr;
};

// The sum of what is announced for each.
i64 announced(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans,
              const std::function<i64(const RunInstr&)>& of) {
  i64 bytes = 0;
  for (const ir::Task& task : program.tasks) {
    if (task.kind() != ir::TaskKind::run) continue;
    const batch::PhasePlan& phase = plan.phases[static_cast<size_t>(task.phase)];
    const compiler::CompiledStrategy& strategy = plans.strategies()[static_cast<size_t>(phase.strategy)];
    const ir::StageCode& stage =
        strategy.groups[static_cast<size_t>(task.group())].stages[static_cast<size_t>(task.stage())];
    const batch::MicroBatch& mb =
        phase.replica[static_cast<size_t>(task.replica())][static_cast<size_t>(task.micro_batch())];
    const ir::Segment& segment = stage.segment(task.pass());
    const ir::PieceRange range = ir::range_of(segment, task.piece());
    for (size_t i = range.first; i < range.end; ++i) bytes += of({task, strategy, stage, mb, segment.code[i]});
  }
  return bytes;
}

// What the report says of exchanges inside stages.
i64 announced_activations(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans) {
  return announced(program, plan, plans, [&](const RunInstr& run) {
    const config::Compression& compression = run.strategy.strategy.compression;
    i64 bytes = 0;
    for (int ring = 0; !run.instr.op && ring < run.strategy.ring_ranks(run.task.replica()); ++ring) {
      const std::vector<int> ranks = run.strategy.code_ranks(run.task.replica(), run.task.stage(), ring);
      const ir::Buffer& from = run.stage.buffers[static_cast<size_t>(run.instr.in[0])];
      const i64 unit = ir::token_unit(run.stage.replica, run.micro_batch.T[static_cast<size_t>(ring)]);
      for (const layout::Step& step : run.instr.exchanges[ir::pattern_of(run.stage, ranks, plans.cluster())]->steps)
        for (const layout::Part& part : step.parts)
          for (const layout::Piece& piece : part.sends)
            bytes += compiler::wire_bytes(compiler::rule_of(compression, run.instr), from.type.dtype,
                                          ir::scaled(from, piece.box, unit).elements(),
                                          ranks[static_cast<size_t>(part.rank)], ranks[static_cast<size_t>(piece.peer)],
                                          plans.cluster());
    }
    return bytes;
  });
}

i64 announced_keys(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans) {
  return announced(program, plan, plans, [&](const RunInstr& run) {
    const codecs::Rule rule = run.strategy.strategy.compression.rule(run.strategy.strategy.compression.keys);
    const compiler::RingKeys keys =
        compiler::ring_keys(run.strategy, run.task.replica(), run.task.stage(), run.micro_batch, plans.cluster());
    i64 bytes = 0;
    for (size_t position = 0; position < keys.exchanges.size(); ++position) {
      const ir::KeyBytes of = ir::key_bytes(run.stage, run.instr, static_cast<int>(position));
      for (const auto& round : keys.exchanges[position].rounds)
        for (const batch::KeyMessage& message : round) {
          const int from = keys.ranks[static_cast<size_t>(message.from)][position],
                    to = keys.ranks[static_cast<size_t>(message.to)][position];
          if (of.values > 0)
            bytes += compiler::key_wire_bytes(rule, of.type, message.count, of.columns, from, to, plans.cluster());
          if (of.gradients > 0)
            bytes +=
                compiler::key_wire_bytes(rule, of.gradient_type, message.count, of.columns, to, from, plans.cluster());
        }
    }
    return bytes;
  });
}

TEST(Compression, TheFabricCountsTheBytesThatTheProgramAnnounces) {
  for (const Job& job : jobs())
    for (const bool hosts_only : {false, true}) {
      SCOPED_TRACE(job.strategies.front());
      config::Compression compression = all_of(Codec::int4, Codec::int8, Codec::fp8);
      if (hosts_only) compression.links = config::CompressedLinks::hosts;
      compression.smallest = {64};
      const compiler::Plans plans = plans_of(job, compression), plain = plans_of(job, {});
      const std::vector<Documents> batch = {tiny_documents(11, 1)};
      CountingFabric::Counts counts;
      const auto count = [&](std::unique_ptr<comm::Fabric> inner) {
        return std::make_unique<CountingFabric>(std::move(inner), counts);
      };
      const TinyRun run = run_tiny(plans, batch, {.bounds = job.bounds, .wrap = count});
      ASSERT_THAT(run.ends, Each(IsEmpty()));
      const ir::Program program = compiler::assemble(tiny_batch(0, batch[0], plans, job.bounds), plans, {}),
                        as_it_is = compiler::assemble(tiny_batch(0, batch[0], plain, job.bounds), plain, {});
      const i64 of_activations = announced_activations(program, tiny_batch(0, batch[0], plans, job.bounds), plans);
      i64 encoded = 0, whole = 0, counted_activations = 0, counted_keys = 0;
      for (const auto& [task, bytes] : counts.bytes) {
        if (task.first.starts_with("reshard ")) counted_activations += bytes;
        if (task.first.find("keys and values") != std::string::npos) counted_keys += bytes;
      }
      EXPECT_EQ(counted_activations, of_activations);
      EXPECT_EQ(counted_keys, announced_keys(program, tiny_batch(0, batch[0], plans, job.bounds), plans));
      for (size_t id = 0; id < program.tasks.size(); ++id) {
        const ir::Task& task = program.tasks[id];
        if (!ir::is_transfer(task.kind()) || task.is<ir::Norm>()) continue;
        const i64 counted = counts.bytes[{ir::name_of(task), static_cast<int>(id)}];
        EXPECT_EQ(counted, task.bytes) << ir::name_of(task);
        encoded += task.bytes;
      }
      for (const ir::Task& task : as_it_is.tasks) whole += task.bytes;
      if (hosts_only && job.hosts == 1) {
        EXPECT_EQ(encoded, whole);
      } else if (whole > 0) {
        EXPECT_LT(encoded, whole);
      }
    }
}

TEST(Compression, WhatTensorParallelismAndUlyssesExchangeHasCodecsOfItsOwn) {
  const Job job{{"tp=2,ulysses=2"}};
  const std::vector<Documents> batch = {tiny_documents(11, 1)};
  const auto exchanged = [&](Codec activations, Codec ulysses) {
    const compiler::Plans plans = plans_of(job, {.activations = activations, .ulysses = ulysses, .smallest = {0}});
    CountingFabric::Counts counts;
    const TinyRun run = run_tiny(plans, batch, {.bounds = job.bounds, .wrap = [&](std::unique_ptr<comm::Fabric> inner) {
                                                  return std::make_unique<CountingFabric>(std::move(inner), counts);
                                                }});
    EXPECT_THAT(run.ends, Each(IsEmpty()));
    i64 bytes = 0;
    for (const auto& [task, of_task] : counts.bytes)
      if (task.first.starts_with("reshard ")) bytes += of_task;
    const batch::StepPlan plan = tiny_batch(0, batch[0], plans, job.bounds);
    EXPECT_EQ(bytes, announced_activations(compiler::assemble(plan, plans, {}), plan, plans));
    return bytes;
  };
  const i64 plain = exchanged(Codec::none, Codec::none), tensor = exchanged(Codec::int8, Codec::none),
            heads = exchanged(Codec::none, Codec::int8), both = exchanged(Codec::int8, Codec::int8);
  EXPECT_LT(tensor, plain);
  EXPECT_LT(heads, plain);
  EXPECT_EQ(both + plain, tensor + heads);
}

TEST(Compression, MemoryOfEncodedMessagesIsPredictedToTheByte) {
  kernels::install_rank_allocator();
  for (const auto& [spec, exact] : {std::pair("4,1,1", true), std::pair("2,2,1", true), std::pair("dp=4,zero=3", true),
                                    std::pair("ring=4", true), std::pair("ring=4,exchange=ring", true),
                                    std::pair("1,4,1", true), std::pair("ulysses=4", true), std::pair("2,1,2", false)})
    for (const Codec codec : {Codec::int8, Codec::lossless, Codec::top_32}) {
      SCOPED_TRACE(spec);
      const Job job{{spec}, {kLongest}, 4, 2, 1, precision_from("fp32")};
      const auto settings = [&](const config::Compression& compression) {
        config::StrategySettings all;
        all.compression = compression;
        return tiny_plans(job.strategies, 4, 0, job.precision, 2, std::string(spec).ends_with("3") ? 3 : 1, all);
      };
      const Codec others = codecs::keeps_largest(codec) ? Codec::bf16 : codec;
      const compiler::Plans plans = settings(all_of(codec, others, others));
      const Documents documents = tiny_documents(12, 5);
      const batch::StepPlan plan = tiny_batch(0, documents, plans, {kLongest});
      const ir::Program program = compiler::assemble(plan, plans, {});
      const std::vector<i64> peaks = measured(plans, program, plan, documents).peaks;
      const compiler::Plans plain = settings({});
      const std::vector<compiler::MemoryPeak> together =
          compiler::predict_all(program, plan, plans, compiler::ExecutionOrder::worst);
      for (int rank = 0; rank < 4; ++rank) {
        const compiler::Holdings holdings(plans, rank);
        const i64 bound =
            compiler::predict_memory(program, plan, plans, holdings, compiler::ExecutionOrder::worst).total;
        EXPECT_EQ(together[static_cast<size_t>(rank)].total, bound) << "rank " << rank;
        if (exact)
          EXPECT_EQ(peaks[static_cast<size_t>(rank)], bound) << "rank " << rank;
        else
          EXPECT_LE(peaks[static_cast<size_t>(rank)], bound) << "rank " << rank;
        EXPECT_GE(bound, compiler::predict_memory(compiler::assemble(plan, plain, {}), plan, plain,
                                                  compiler::Holdings(plain, rank), compiler::ExecutionOrder::worst)
                             .total);
      }
    }
}

}  // namespace
}  // namespace switchyard::runtime
