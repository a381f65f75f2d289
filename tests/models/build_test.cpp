#include "models/build.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "fixtures.hpp"
#include "ir/autodiff.hpp"
#include "ir/operator.hpp"

namespace switchyard::models {
namespace {

ir::Graph graph_of(const std::string& fixture, Output output = Output::loss) {
  return build(fixture_model(fixture), precision_from("fp32"), output);
}

TEST(Build, has_the_parameters_of_saved_models_by_name_and_shape) {
  for (const std::string& name : fixture_names())
    EXPECT_EQ(file_tensors(graph_of(name)), fixture_tensors(name)) << name;
}

TEST(Build, has_as_many_parameters_as_the_configuration_counts) {
  std::vector<config::ModelConfig> all;
  for (const std::string& name : fixture_names()) all.push_back(fixture_model(name));
  for (const char* preset : {"3b", "7b", "13b", "32b"}) all.push_back(config::model_preset(preset));
  config::ModelConfig everything = fixture_model("llama-gqa");
  everything.qkv_bias = everything.o_bias = everything.mlp_bias = everything.qk_norm = true;
  all.push_back(everything);
  for (const config::ModelConfig& model : all) {
    i64 count = 0;
    const ir::Graph graph = build(model, precision_from("bf16"), Output::loss);
    for (const ir::Param& param : graph.params()) count += param.shape.elements();
    EXPECT_EQ(count, config::parameter_count(model));
  }
}

TEST(Build, numbers_units_by_layer) {
  for (const std::string& name : fixture_names()) {
    const config::ModelConfig model = fixture_model(name);
    const ir::Graph graph = graph_of(name);
    EXPECT_EQ(graph.units(), model.layers + 2);
    for (const ir::Param& param : graph.params()) {
      const size_t at = param.name.find_first_of("0123456789");
      if (at == std::string::npos) continue;
      EXPECT_EQ(param.unit, std::stoi(param.name.substr(at)) + 1) << param.name;
    }
    EXPECT_TRUE(std::is_sorted(graph.calls().begin(), graph.calls().end(),
                               [](const ir::Call& a, const ir::Call& b) { return a.unit < b.unit; }));
  }
}

TEST(Build, ends_in_a_loss_or_in_logits) {
  for (const std::string& name : fixture_names()) {
    const ir::Graph loss = graph_of(name), logits = graph_of(name, Output::logits);
    EXPECT_EQ(loss.calls().back().op->name(), "head");
    EXPECT_EQ(logits.value(logits.calls().back().out[0]).type.shape.size,
              (std::vector<i64>{ir::kTokens, fixture_model(name).vocab_size}));
  }
}

TEST(Build, puts_what_enters_and_leaves_a_block_on_the_stream) {
  for (const std::string& name : fixture_names()) {
    const ir::Graph graph = graph_of(name);
    // Values read in another unit than the one that makes them: these cross pipeline stages.
    std::vector<int> made(graph.values().size(), -1);
    for (const ir::Call& call : graph.calls()) {
      for (const int v : call.in)
        if (made[static_cast<size_t>(v)] >= 0 && made[static_cast<size_t>(v)] != call.unit) {
          EXPECT_EQ(graph.value(v).role, layout::Role::residual);
        }
      for (const int v : call.out) made[static_cast<size_t>(v)] = call.unit;
    }
  }
}

TEST(Build, can_be_differentiated) {
  for (const std::string& name : fixture_names()) {
    ir::Graph graph = graph_of(name);
    ir::differentiate(graph);
    std::set<int> accumulated;
    for (const ir::Call& call : graph.calls())
      for (const int v : call.out)
        if (graph.value(v).kind == ir::ValueKind::gradient) accumulated.insert(graph.value(v).param);
    EXPECT_EQ(accumulated.size(), graph.params().size()) << name;
  }
}

}  // namespace
}  // namespace switchyard::models
