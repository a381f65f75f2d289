#include "compiler/print.hpp"

#include <gmock/gmock.h>

#include <sstream>

#include "base/units.hpp"
#include "compiler/job_plans.hpp"
#include "compiler/memory.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

TEST(PrintPlan, prints_layouts_as_in_the_worked_step) {
  const std::string text = print_plan(worked_plans());
  EXPECT_THAT(text, HasSubstr("mesh A.s0 [outer=2] 0 1  u0..u1\n"));
  EXPECT_THAT(text, HasSubstr("mesh A.s1 [outer=2] 2 3  u2..u3\n"));
  EXPECT_THAT(text, HasSubstr("mesh B [data=4] 0 1 2 3  u0..u3\n"));
  EXPECT_THAT(text, HasSubstr("model.layers.0.self_attn.k_proj.weight [32,64] alignment 16\n"
                              "    A  {outer},{}  0:[0,16)x[0,64) 1:[16,32)x[0,64)  grad same\n"
                              "    B  {},{}  copies on 0..3  grad partial {data}\n"
                              "    home  = A\n"));
  EXPECT_THAT(text, HasSubstr("model.layers.1.post_attention_layernorm.weight [64]\n"
                              "    A  {}  copies on 2,3  grad partial {outer}\n"
                              "    B  {}  copies on 0..3  grad partial {data}\n"
                              "    home  2:[0,32) 3:[32,64)\n"));
  EXPECT_THAT(text, HasSubstr("model.embed_tokens.weight [100,64] alignment 8,1\n    A  {outer},{}  0:[0,48)x[0,64) "
                              "1:[48,100)x[0,64)  grad same\n"));
}

TEST(PrintPlan, counts_what_rank_0_holds_as_in_the_worked_step) {
  EXPECT_THAT(
      print_plan(worked_plans()),
      HasSubstr(
          "rank 0 holds: home 418816, compute copy 52352, A 256, grad A 104960, B 210560, grad B 421120 bytes\n"));
}

TEST(PrintPlan, prints_equal_layers_once) {
  config::ModelConfig model = small_llama();
  model.layers = 5;
  const Plans plans(training_graph(model), {config::strategy_from_spec("1,1,2", 2, model.layers)}, 0,
                    cluster::uniform(1, 2), switching::Planner::relay);
  const std::string text = print_plan(plans);
  EXPECT_THAT(text, HasSubstr("u1 layer 0; u2..u3 the same\n"));
  EXPECT_THAT(text, HasSubstr("u4 layer 3; u5 the same\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("layers.1.")));
}

TEST(PrintPlan, counts_the_uses_of_a_tied_weight) {
  config::ModelConfig model = small_llama();
  model.tied_embeddings = true;
  const Plans plans(training_graph(model), {config::strategy_from_spec("1,1,2", 2, model.layers)}, 0,
                    cluster::uniform(1, 2), switching::Planner::relay);
  EXPECT_THAT(print_plan(plans), HasSubstr("A  {},{}  copies on 0,1  grad partial {2 uses}"));
}

TEST(PrintModel, lists_units_parameters_and_the_total_in_100_columns) {
  const config::ModelConfig model = small_llama();
  const std::string text = print_model(training_graph(model), work_model(model), 64);
  EXPECT_THAT(text, HasSubstr("\nembedding                                 6400      12.5 KiB      6.1%\n"));
  EXPECT_THAT(text, HasSubstr("\nlayer 0 to 1, each                       46.2k      90.2 KiB     87.8%\n"));
  EXPECT_THAT(text, HasSubstr("u1 layer 0; u2 the same\n"));
  EXPECT_THAT(text, HasSubstr("  model.layers.0.self_attn.q_proj.weight         [64,64]        4096 alignment "
                              "32,16; group qkv\n"));
  EXPECT_THAT(text, HasSubstr("u3 norm and head\n"));
  EXPECT_THAT(text, HasSubstr("4 units, 21 parameters of 105k elements, 206 KiB in bf16\n"));
  EXPECT_THAT(text,
              HasSubstr("A token takes 198k flops in the forward pass, and 16k of attention in a document of 64 "));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(PrintMemory, has_a_column_for_ranks_with_equal_figures) {
  const Plans plans = worked_plans();
  const batch::StepPlan step = worked_batch();
  const ir::Program program = assemble(step, plans, {});
  const std::string text = print_memory(program, step, plans);
  const std::vector<MemoryPeak> peaks = predict_all(program, step, plans);
  EXPECT_THAT(text, StartsWith("ranks  "));
  for (const MemoryPeak& peak : peaks) EXPECT_THAT(text, HasSubstr(format_bytes(Bytes{peak.total})));
  EXPECT_NE(peaks[0].total, peaks[2].total);
  const Plans same(training_graph(small_llama()), {config::strategy_from_spec("4,1,1", 4, small_llama().layers)}, 0,
                   cluster::uniform(2, 2), switching::Planner::relay);
  const batch::StepPlan equal{0,
                              44,
                              {{0,
                                {{micro_batch_of(0, 12, 12)},
                                 {micro_batch_of(1, 12, 12)},
                                 {micro_batch_of(2, 12, 12)},
                                 {micro_batch_of(3, 12, 12)}}}}};
  EXPECT_THAT(print_memory(assemble(equal, same, {}), equal, same), ContainsRegex("ranks +0\\.\\.3\n"));
}

TEST(PrintMemory, numbers_the_columns_where_lists_of_ranks_are_long) {
  const Plans plans(training_graph(small_llama()), {config::strategy_from_spec("16,1,1", 16, small_llama().layers)}, 0,
                    cluster::uniform(1, 16), switching::Planner::relay);
  std::vector<std::vector<batch::MicroBatch>> replicas;  // documents of every other one are longer
  for (int i = 0; i < 16; ++i) replicas.push_back({micro_batch_of(i, i % 2 == 0 ? 12 : 24, i % 2 == 0 ? 12 : 24)});
  const batch::StepPlan step{0, 16 * 17, {{0, replicas}}};
  const std::string text = print_memory(assemble(step, plans, {}), step, plans);
  EXPECT_THAT(text, ContainsRegex("ranks +group 1 +group 2 +group 3\n"));
  EXPECT_THAT(text,
              HasSubstr("\ngroup 1: ranks 0,2,4,6,8,10,12,14\ngroup 2: ranks 1,5,9,13\ngroup 3: ranks 3,7,11,15\n"));
}

TEST(RanksText, joins_three_and_more_neighbours) {
  EXPECT_EQ(ranks_text({0, 1, 2, 3, 5, 6, 8}), "0..3,5,6,8");
  EXPECT_EQ(ranks_text({}), "");
}

TEST(LetterOf, goes_on_after_z) {
  EXPECT_EQ(letter_of(0), "A");
  EXPECT_EQ(letter_of(25), "Z");
  EXPECT_EQ(letter_of(26), "S26");
}

}  // namespace
}  // namespace switchyard::compiler
