#include <gtest/gtest.h>

#include "base/errors.hpp"
#include "one_call.hpp"

namespace switchyard::runtime {
namespace {

TEST(Bindings, EveryOperatorOfTheModelsHasAKernel) {
  for (const config::Family family : {config::Family::llama, config::Family::gpt2}) {
    config::ModelConfig model = tiny_llama();
    model.family = family;
    model.kv_heads = 4;
    ir::Graph graph = models::build(model, kFp64, models::Output::loss);
    ir::differentiate(graph);
    const compiler::Plans plans(std::move(graph), {config::strategy_from_spec("1,1,1", 1, 2)}, 0,
                                cluster::uniform(1, 1), switching::Planner::relay);
    size_t found = 0;
    const ir::StageCode& stage = plans.strategies()[0].groups[0].stages[0];
    for (const ir::Segment* segment : {&stage.forward, &stage.backward})
      for (const ir::Instr& instr : segment->code)
        if (instr.op) {
          EXPECT_NE(find_kernel(instr.op->name()), nullptr);
          ++found;
        }
    EXPECT_GT(found, 20u);
  }
}

TEST(Bindings, AnUnknownOperatorIsNamed) {
  try {
    find_kernel("convolution");
    ADD_FAILURE() << "nothing thrown";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "operator convolution has no kernel");
  }
}

}  // namespace
}  // namespace switchyard::runtime
