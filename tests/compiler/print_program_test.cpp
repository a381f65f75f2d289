#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "compiler/print.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using testing::HasSubstr;
using testing::Not;

// The step as designed by hand, in its order: task, ranks and queue, transfers; without task numbers and waits. The
// design has norm on the bulk queue.
constexpr const char* kPage = R"(move home>A u1|ss..|0>1 1>0 128
move home>A u2|..ss|2>3 3>2 128
move home>A u3|..ss|2>3 3>2 64
run A.s0 F mb0|cc..|
move A>B u0 r0|ssss|0>1 0>2 6144; 1>0 1>3 6656
move A>B u0 r1|..ss|2>3 6144; 3>2 6656
move A>B u1 r0|ssss|0>1 1>0 46080; 0>2 1>3 46208
move A>B u1 r1|..ss|2>3 3>2 46208
send A act mb0|pppp|0>2 1>3 2560
run A.s0 F mb1|cc..|
run A.s1 F mb0|..cc|
move A>B u2 r0|ssss|2>0 3>1 46208; 2>3 3>2 46080
send A act mb1|pppp|0>2 1>3 2176
move A>B u2 r1|ss..|0>1 1>0 46208
run A.s1 BW mb0|..cc|
move A>B u3 r0|ssss|2>0 6208; 2>3 6144; 3>1 6720; 3>2 6656
move A>B u3 r1|ss..|0>1 6208; 1>0 6720
send A grad mb0|pppp|2>0 3>1 2560
run A.s1 F mb1|..cc|
run A.s0 BW mb0|cc..|
run A.s1 BW mb1|..cc|
send A grad mb1|pppp|2>0 3>1 2176
reduce A u3|..bb|2>3 3>2 128
run B F replica2|..c.|
zero-fill B replica3|...c|
reduce A u2|..bb|2>3 3>2 256
run A.s0 BW mb1|cc..|
run B BW replica2|..c.|
reduce B u3 r0|..bb|2>3 13440; 3>2 12416
reduce A u1|bb..|0>1 1>0 256
run B F replica0|c...|
run B F replica1|.c..|
reduce A u0|bb..|local
run B BW replica1|.c..|
run B BW replica0|c...|
reduce B u3 r0|bb..|0>1 13440; 1>0 12416
reduce B u3 r1|b.b.|0>2 12416
reduce B u3 r1|.b.b|1>3 13440
reduce B u2 r0|bb..|0>1 1>0 92416
reduce B u2 r0|..bb|2>3 3>2 92416
reduce B u2 r1|b.b.|0>2 92416
reduce B u2 r1|.b.b|1>3 92416
reduce B u1 r0|bb..|0>1 1>0 92416
reduce B u1 r0|..bb|2>3 3>2 92416
reduce B u1 r1|b.b.|2>0 92416
reduce B u1 r1|.b.b|3>1 92416
reduce B u0 r0|bb..|0>1 13312; 1>0 12288
reduce B u0 r0|..bb|2>3 13312; 3>2 12288
reduce B u0 r1|b.b.|2>0 12288
reduce B u0 r1|.b.b|3>1 13312
norm|cccc|
update u0|cc..|
update u2|..cc|
update u1|cc..|
update u3|..cc|
)";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// "task|ranks|transfers" of a printed task.
std::string task_of(const std::string& id) {
  static const std::regex kTask(R"(^ *\d+ (.+?) +([.scpb]{4})(?: (?:.*? )??((?:\d+>\d+ ).*|local))?(?: .*)?$)");
  std::smatch part;
  EXPECT_TRUE(std::regex_match(id, part, kTask)) << id;
  return part[1].str() + "|" + part[2].str() + "|" + part[3].str();
}

// What each rank's queues run, in order; point to point has one queue per direction.
std::map<std::string, std::vector<std::string>> queues_of(const std::vector<std::string>& tasks) {
  std::map<std::string, std::vector<std::string>> queues;
  for (const std::string& task : tasks) {
    const std::string columns = task.substr(task.find('|') + 1, 4);
    for (size_t rank = 0; rank < columns.size(); ++rank)
      if (columns[rank] != '.') {
        const std::string direction = columns[rank] != 'p'                      ? ""
                                      : task.find(" act ") != std::string::npos ? " act"
                                                                                : " grad";
        queues[std::to_string(rank) + columns[rank] + direction].push_back(task);
      }
  }
  return queues;
}

struct Step {
  Plans plans = worked_plans();
  batch::StepPlan batch = worked_batch();
  ir::Program program = assemble(batch, plans, {});
  std::string text = print_program(program, batch, plans);
};

// Tasks that the program has and the page lacks: home's owners add their own sums in separate tasks, where the page has
// them at the end of a transaction.
bool is_local_addition(const std::string& task) { return task.ends_with("|local") && !task.starts_with("reduce A u0"); }

TEST(WorkedStep, runs_on_every_queue_of_every_rank_what_the_page_runs_in_that_order) {
  std::vector<std::string> ours;
  for (const std::string& id : lines_of(Step().text))
    if (const std::string task = task_of(id); !is_local_addition(task)) ours.push_back(task);
  EXPECT_EQ(ours.size(), lines_of(kPage).size());
  EXPECT_EQ(queues_of(ours), queues_of(lines_of(kPage)));
}

TEST(WorkedStep, is_printed_as_in_the_file) {
  const Step step;
  const std::string text = print_batch(step.batch) + "\n" + step.text;
  std::ifstream file(SWITCHYARD_SOURCE "/tests/compiler/worked_step.txt");
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  if (text != golden) std::ofstream(SWITCHYARD_BINARY "/worked_step.txt") << text;
  EXPECT_EQ(text, golden) << "What is printed now lies in " SWITCHYARD_BINARY "/worked_step.txt";
}

TEST(WorkedStep, is_explained_as_it_is_printed) {
  std::ifstream file(SWITCHYARD_SOURCE "/docs/worked-step.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const Step step;
  EXPECT_THAT(page, HasSubstr(print_batch(step.batch)));
  EXPECT_THAT(page, HasSubstr(step.text));
}

// Bytes between hosts {0,1} and {2,3} of a phase's tasks of one kind.
i64 inter_host_bytes(const Step& step, ir::TaskKind kind, int phase) {
  i64 total = 0;
  for (const ir::Task& task : step.program.tasks)
    if (task.kind() == kind && task.phase == phase)
      for (const layout::Msg& m : task.messages)
        if (!step.plans.cluster().same_host(m.src, m.dst))
          total += m.box.elements() * (kind == ir::TaskKind::reduce ? 4 : 2);
  return total;
}

TEST(WorkedStep, crosses_hosts_with_half_the_bytes_of_a_step_without_relays) {
  const Step relay;
  EXPECT_EQ(inter_host_bytes(relay, ir::TaskKind::move, 1), 210560);
  EXPECT_EQ(inter_host_bytes(relay, ir::TaskKind::reduce, 1), 421120);
  const Step greedy{.plans = worked_plans(switching::Planner::greedy)};
  EXPECT_EQ(inter_host_bytes(greedy, ir::TaskKind::move, 1), 421120);
  EXPECT_EQ(inter_host_bytes(greedy, ir::TaskKind::reduce, 1), 842240);
}

TEST(PrintProgram, shows_one_rank_only_the_tasks_it_belongs_to) {
  const Step step;
  const std::string rank3 = print_program(step.program, step.batch, step.plans, 3);
  EXPECT_THAT(rank3, HasSubstr("zero-fill B replica3"));
  EXPECT_THAT(rank3, Not(HasSubstr("run A.s0")));
  for (const std::string& line : lines_of(rank3)) EXPECT_THAT(step.text, HasSubstr(line.substr(0, 20)));
}

TEST(PrintProgram, shows_an_allocation_that_copies_where_nothing_moves) {
  const config::ModelConfig model = small_llama();
  const Plans plans(
      training_graph(model),
      {config::strategy_from_spec("2,1,1", 2, model.layers), config::strategy_from_spec("1,2,1", 2, model.layers)}, 1,
      cluster::uniform(1, 2), switching::Planner::relay);
  const batch::StepPlan plan{
      0, 20, {{0, {{micro_batch_of(0, 12, 12)}, {micro_batch_of(1, 10, 10)}}}, {1, {{micro_batch_of(2, 8, 8)}}}}};
  const std::string text = print_program(assemble(plan, plans, {}), plan, plans);
  // From copies to tensor parallelism with home there: beyond home's own part only norm vectors are needed, and the
  // ranks already hold them.
  EXPECT_THAT(text, HasSubstr("move home>A u1"));
  EXPECT_THAT(text, Not(HasSubstr("A>B")));
  const Plans away(
      training_graph(model),
      {config::strategy_from_spec("2,1,1", 2, model.layers), config::strategy_from_spec("1,2,1", 2, model.layers)}, 0,
      cluster::uniform(1, 2), switching::Planner::relay);
  const std::string copied = print_program(assemble(plan, away, {}), plan, away);
  EXPECT_THAT(copied, testing::ContainsRegex(
                          "allocate A>B u0 +ss .*local 12800"));  // half the table on each rank: 100 * 64 * 2 bytes
  EXPECT_THAT(copied, Not(HasSubstr("move A>B")));
}

// The queues of parameters that are gathered and of paired micro-batches' collectives.
TEST(PrintProgram, gives_each_queue_its_letter) {
  const config::ModelConfig model = small_llama();
  const auto text_of = [&](const char* spec) {
    const Plans plans(training_graph(model), {config::strategy_from_spec(spec, 2, model.layers)}, 0,
                      cluster::uniform(1, 2), switching::Planner::relay);
    const std::vector<batch::MicroBatch> two{micro_batch_of(0, 12, 12), micro_batch_of(1, 10, 10)};
    const batch::StepPlan plan{0, 20, {{0, std::vector(plans.strategies()[0].replicas.size(), two)}}};
    return print_program(assemble(plan, plans, {}), plan, plans);
  };
  EXPECT_THAT(text_of("dp=2,zero=3"), testing::ContainsRegex("gather A F mb0 u0 +gg "));
  const std::string paired = text_of("tp=2,paired=true");
  EXPECT_THAT(paired, testing::ContainsRegex("run A F mb0 piece1 +xx 3"));
  EXPECT_THAT(paired, testing::ContainsRegex("run A F mb0 piece0 +cc\n"));
  EXPECT_THAT(paired, Not(testing::ContainsRegex(" pp ")));
}

TEST(PrintProgram, lists_ranks_and_counts_pairs_where_there_are_too_many) {
  const Step step;
  ir::Task reduce{.what = ir::Reduce{.unit = 1, .round = 0}, .queue = ir::Queue::bulk, .phase = 0};
  std::vector<layout::Msg> messages;
  for (int rank = 0; rank < 70; ++rank) {
    reduce.ranks.push_back(rank);
    if (rank == 0) continue;
    messages.push_back({rank, 0, 1, layout::whole(std::vector<i64>{rank})});
    reduce.bytes += 4 * rank;
  }
  reduce.messages = messages;
  ir::Program program;
  program.tasks = {reduce, {.what = ir::Update{.unit = 1}, .ranks = {3, 5, 6, 7}}};
  program.of_rank.resize(70);
  EXPECT_EQ(print_program(program, step.batch, step.plans),
            "0 reduce A u1 b 0..69   69 pairs of 4 to 276, together 9660\n1 update u1   c 3,5..7\n");
}

TEST(PrintBatch, names_documents_padding_and_empty_replicas) {
  EXPECT_EQ(print_batch(worked_batch()),
            "A/0 mb0 T=40 {doc0 0..40} mb1 T=34 {doc1 0..33, pad 1}\n"
            "B/0 mb0 T=12 {doc2 0..12}\nB/1 mb0 T=9 {doc4 0..9}\nB/2 mb0 T=5 {doc3 0..5}\nB/3 none\n");
}

TEST(PrintBatch, separates_ring_ranks) {
  const batch::StepPlan plan{
      .phases = {{.strategy = 1,
                  .replica = {{{.T = {6, 4, 0}, .shard = {{{3, 0, 5, 1}, {-1, 0, 1, 1}}, {{3, 5, 4, 1}}, {}}}}}}}};
  EXPECT_EQ(print_batch(plan), "B/0 mb0 T=6+4+0 {doc3 0..5, pad 1 | doc3 5..9 | }\n");
}

}  // namespace
}  // namespace switchyard::compiler
