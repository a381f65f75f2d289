// Bytes that the Program and the compiled code announce are the bytes that the fabric counts, on each class of links.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "comm/forwarding_fabric.hpp"
#include "compiler/ring_keys.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using comm::Traffic;

// Bytes by task of the Program; bytes inside segments and of the small sums, whose tasks are the channels' own.
struct Sent {
  std::mutex mutex;
  std::map<int, Traffic> tasks;
  Traffic reshards{}, sums{}, keys{};
  std::set<std::string> names_of_sums;
};

class RecordingFabric final : public comm::ForwardingFabric {
 public:
  RecordingFabric(std::unique_ptr<comm::Fabric> inner, Sent& sent) : ForwardingFabric(std::move(inner)), sent_(sent) {}
  void run(const comm::Channel& channel, const comm::Transaction& transaction) override {
    inner().run(channel, transaction);
    const std::lock_guard lock(sent_.mutex);
    const bool sum = transaction.name.starts_with("norm") || transaction.name.starts_with("softmax");
    if (sum) sent_.names_of_sums.insert(transaction.name);
    const int id = static_cast<int>(transaction.number % (1ll << 24));
    Traffic& to = sum                                                             ? sent_.sums
                  : transaction.name.starts_with("reshard ")                      ? sent_.reshards
                  : transaction.name.find("keys and values") != std::string::npos ? sent_.keys
                                                                                  : sent_.tasks[id];
    for (const comm::Op& op : transaction.ops)
      if (op.kind == comm::Op::Kind::send) to[static_cast<size_t>(cluster().link(rank(), op.peer))] += op.block.bytes();
  }

 private:
  Sent& sent_;
};

Traffic operator+(Traffic a, const Traffic& b) {
  for (size_t link = 0; link < a.size(); ++link) a[link] += b[link];
  return a;
}

// Messages of a task. Gradients travel in the state's precision, all else in that of computation.
Traffic announced(const ir::Task& task, const compiler::Plans& plans) {
  const Precision precision = plans.graph().precision();
  const bool gradients = task.kind() == ir::TaskKind::reduce || task.kind() == ir::TaskKind::broadcast ||
                         task.kind() == ir::TaskKind::reduce_scatter;
  const i64 element = size_of(gradients ? precision.state : precision.compute);
  Traffic bytes{};
  for (const layout::Msg& m : task.messages)
    if (m.src != m.dst) bytes[static_cast<size_t>(plans.cluster().link(m.src, m.dst))] += m.box.elements() * element;
  EXPECT_EQ(bytes[1] + bytes[2], task.bytes) << ir::name_of(task);
  return bytes;
}

// Reshards inside a piece of a segment that runs on T tokens; ranks: of its positions.
Traffic announced(const ir::Segment& segment, int piece, const ir::StageCode& stage, const std::vector<int>& ranks,
                  i64 T, const cluster::Cluster& cluster) {
  Traffic bytes{};
  const ir::PieceRange range = ir::range_of(segment, piece);
  for (size_t i = range.first; i < range.end; ++i) {
    const ir::Instr& instr = segment.code[i];
    if (instr.op) continue;
    const ir::Buffer& from = stage.buffers[static_cast<size_t>(instr.in[0])];
    const bool of_tokens = from.type.shape.size[0] == ir::kTokens;
    const i64 element = size_of(from.type.dtype) * (of_tokens ? T / stage.replica.size() : 1);
    for (const layout::Step& step : instr.exchanges[ir::pattern_of(stage, ranks, cluster)]->steps)
      for (const layout::Part& part : step.parts)
        for (const layout::Piece& piece : part.sends)
          if (piece.peer != part.rank)
            bytes[static_cast<size_t>(
                cluster.link(ranks[static_cast<size_t>(part.rank)], ranks[static_cast<size_t>(piece.peer)]))] +=
                piece.box.elements() * element;
  }
  return bytes;
}

// A run of the program: its segment, and what its ring ranks pass to one another.
struct Run {
  const ir::Task& task;
  const ir::StageCode& stage;
  const batch::MicroBatch& micro_batch;
  compiler::RingKeys keys;
};

std::vector<Run> runs_of(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans) {
  std::vector<Run> runs;
  for (const ir::Task& task : program.tasks) {
    if (task.kind() != ir::TaskKind::run) continue;
    const batch::PhasePlan& phase = plan.phases[static_cast<size_t>(task.phase)];
    const compiler::CompiledStrategy& strategy = plans.strategies()[static_cast<size_t>(phase.strategy)];
    const batch::MicroBatch& micro_batch =
        phase.replica[static_cast<size_t>(task.replica())][static_cast<size_t>(task.micro_batch())];
    runs.push_back({task, strategy.groups[static_cast<size_t>(task.group())].stages[static_cast<size_t>(task.stage())],
                    micro_batch,
                    compiler::ring_keys(strategy, task.replica(), task.stage(), micro_batch, plans.cluster())});
  }
  return runs;
}

Traffic announced_reshards(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans) {
  Traffic bytes{};
  for (const Run& run : runs_of(program, plan, plans))
    for (size_t ring = 0; ring < run.keys.ranks.size(); ++ring)
      bytes = bytes + announced(run.stage.segment(run.task.pass()), run.task.piece(), run.stage, run.keys.ranks[ring],
                                run.micro_batch.T[ring], plans.cluster());
  return bytes;
}

// Keys and values to the ring ranks whose queries see them, in each pass, and their gradients back.
Traffic announced_keys(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans) {
  Traffic bytes{};
  for (const Run& run : runs_of(program, plan, plans)) {
    const ir::Segment& segment = run.stage.segment(run.task.pass());
    const ir::PieceRange range = ir::range_of(segment, run.task.piece());
    for (size_t i = range.first; i < range.end; ++i)
      for (size_t position = 0; position < run.keys.exchanges.size(); ++position)
        for (const auto& round : run.keys.exchanges[position].rounds)
          for (const batch::KeyMessage& message : round) {
            const int from = run.keys.ranks[static_cast<size_t>(message.from)][position],
                      to = run.keys.ranks[static_cast<size_t>(message.to)][position];
            bytes[static_cast<size_t>(plans.cluster().link(from, to))] +=
                message.count * ir::key_bytes(run.stage, segment.code[i], static_cast<int>(position)).all();
          }
  }
  return bytes;
}

struct TrafficCase {
  std::vector<std::string> specs;
  Precision precision;
  int zero = 1;
  bool norms = false;  // over features that are cut
};
class AnnouncedTraffic : public testing::TestWithParam<TrafficCase> {};

TEST_P(AnnouncedTraffic, IsWhatTheFabricCounts) {
  const auto& [specs, precision, zero, norms] = GetParam();
  const compiler::Plans plans = tiny_plans(specs, 4, 0, precision, 2, zero);
  const Documents documents = tiny_documents(11, 8);
  const batch::StepPlan plan = tiny_batch(0, documents, plans, {kLongest, 14, 7});
  ASSERT_EQ(plan.phases.size(), 3u);
  const ir::Program program = compiler::assemble(plan, plans, {});
  Sent sent;
  std::vector<std::unique_ptr<comm::Fabric>> fabrics;
  for (auto& fabric : comm::thread_fabrics(4, plans.cluster(), {}))
    fabrics.push_back(std::make_unique<RecordingFabric>(std::move(fabric), sent));
  const auto ends = comm::run_ranks(fabrics, [&](comm::Fabric& fabric) {
    Store store(plans, fabric.rank(), at::kCPU);
    store.home.initialize(tiny_values(plans.graph()));
    Executor executor(plans, store, fabric, {});
    executor.run(program, {&plan, &documents, [](double) {
                             return UpdateSettings{{1e-2, 0.9, 0.95, 1e-8, 0.1, 1}, 1};
                           }});
  });
  ASSERT_EQ(ends, std::vector<std::string>(4));

  Traffic tasks{}, counted{};
  for (size_t id = 0; id < program.tasks.size(); ++id) {
    const Traffic expected = announced(program.tasks[id], plans);
    EXPECT_EQ(sent.tasks[static_cast<int>(id)], expected) << ir::name_of(program.tasks[id]);
    tasks = tasks + expected;
  }
  EXPECT_GT(tasks[1], 0);
  EXPECT_GT(tasks[2], 0);
  const Traffic reshards = announced_reshards(program, plan, plans);
  EXPECT_EQ(sent.reshards, reshards);
  EXPECT_GT(reshards[1], 0);
  for (const auto& fabric : fabrics) counted = counted + fabric->traffic();
  const Traffic keys = announced_keys(program, plan, plans);
  EXPECT_EQ(sent.keys, keys);
  const bool rings = std::ranges::any_of(specs, [](const std::string& s) { return s.find("ring=") != s.npos; });
  EXPECT_EQ(keys[1] + keys[2] > 0, rings);
  EXPECT_EQ(counted, tasks + reshards + keys + sent.sums);
  std::set<std::string> names{"norm", "softmax maximum", "softmax sums"};
  if (norms) names.insert({"norm variance", "norm gradient"});
  EXPECT_EQ(sent.names_of_sums, names);
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, AnnouncedTraffic,
    testing::Values(
        TrafficCase{{"1,2,2", "2,2,1", "4,1,1"}, kFp64},
        TrafficCase{{"1,4,1", "2,1,2", "1,2,2"}, precision_from("bf16")},
        TrafficCase{{"2,2,1", "1,2,2", "4,1,1"}, precision_from("bf16"), 0},
        TrafficCase{{"tp=2,ulysses=2", "1,2,2", "dp=2,ulysses=2"}, kFp64},
        TrafficCase{{"tp=4,inner=2", "1,2,2", "dp=2,tp=2,inner=2"}, kFp64},
        TrafficCase{{"tp=4,inner=2,sequence_parallel=false", "1,2,2", "4,1,1"}, kFp64, 1, true},
        TrafficCase{{"dp=2,tp=2", "dp=2,pp=2", "4,1,1"}, precision_from("bf16"), 3},
        TrafficCase{{"dp=2,tp=2", "ulysses=2,tp=2", "4,1,1"}, kFp64, 2},
        TrafficCase{{"dp=2,tp=2,inner=2", "dp=4", "tp=4,inner=2"}, kFp64, 3},
        TrafficCase{{"tp=2,depth=2", "dp=2,depth=2", "depth=4"}, precision_from("bf16")},
        TrafficCase{{"dp=2,depth=2", "pp=2,depth=2", "tp=2,depth=2"}, kFp64, 3},
        TrafficCase{{"tp=2,ulysses=2,paired=true", "tp=2,pp=2,paired=true", "dp=2,tp=2,paired=true"}, kFp64, 2},
        TrafficCase{{"tp=2,ring=2", "pp=2,ring=2", "ring=2,ulysses=2,ring_degree=uniform"}, kFp64},
        TrafficCase{{"ring=4", "tp=2,ring=2", "dp=2,tp=2"}, precision_from("bf16"), 3},
        TrafficCase{{"ring=4,ring_degree=uniform,exchange=ring", "tp=2,ring=2,exchange=ring", "4,1,1"}, kFp64},
        TrafficCase{
            {"ring=2,ulysses=2,exchange=ring", "ring=4,exchange=ring", "dp=2,tp=2"}, precision_from("bf16"), 2}),
    [](const auto& p) { return "Case" + std::to_string(p.index); });

}  // namespace
}  // namespace switchyard::runtime
