#include "compiler/stage_builder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "../collective_of.hpp"
#include "ir/operators/embedding.hpp"
#include "ir/operators/linear.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using Counts = std::map<Collective, int>;

ir::StageCode whole_model(const ir::Graph& graph, int tp, const config::Strategy& strategy = stage_strategy("test")) {
  return StageBuilder(graph, strategy, tensor_mesh(tp), 0, graph.units()).build();
}

// Counts the reshards of a unit in one segment by collective.
Counts reshards(const ir::StageCode& stage, const ir::Segment& segment, int unit) {
  Counts counts;
  for (const ir::Instr& instr : segment.code)
    if (!instr.op && instr.unit == unit) {
      const ir::Buffer& from = stage.buffers[static_cast<size_t>(instr.in[0])];
      if (from.kind != ir::ValueKind::feed) ++counts[collective_of(stage, instr)];
    }
  return counts;
}

TEST(StageBuilder, needs_no_communication_on_one_rank) {
  for (const auto& model : {small_llama(), small_gpt2()}) {
    const ir::StageCode stage = whole_model(training_graph(model), 1);
    for (const ir::Segment* segment : {&stage.forward, &stage.backward})
      for (const ir::Instr& instr : segment->code) EXPECT_NE(instr.op, nullptr) << "a reshard on one rank";
  }
}

TEST(StageBuilder, gathers_and_scatters_twice_a_layer_and_direction_with_sequence_parallelism) {
  for (const auto& model : {small_llama(), small_gpt2()}) {
    const ir::StageCode stage = whole_model(training_graph(model), 2);
    const Counts expected = {{Collective::all_gather, 2}, {Collective::reduce_scatter, 2}};
    for (const int layer : {1, 2}) {
      EXPECT_EQ(reshards(stage, stage.forward, layer), expected);
      EXPECT_EQ(reshards(stage, stage.backward, layer), expected);
    }
  }
}

TEST(StageBuilder, reduces_to_all_twice_a_layer_and_direction_without_sequence_parallelism) {
  config::Strategy strategy = stage_strategy("plain");
  strategy.sequence_parallel = false;
  const ir::StageCode stage = whole_model(training_graph(small_llama()), 2, strategy);
  const Counts expected = {{Collective::all_reduce, 2}};
  EXPECT_EQ(reshards(stage, stage.forward, 1), expected);
  EXPECT_EQ(reshards(stage, stage.backward, 1), expected);
}

// 8 key/value heads, of 128 features.
config::ModelConfig llama_of_32_heads() {
  config::ModelConfig model = small_llama();
  model.hidden_size = 4096;
  model.heads = 32;
  model.kv_heads = 8;
  model.head_dim = 128;
  return model;
}

// The traffic of one layer in methods of sequence parallelism: 32 heads, 8 key/value heads of 128 features in bf16,
// 2048 tokens on 2 ranks.
TEST(StageBuilder, exchanges_tokens_for_heads_before_attention_and_back_behind_it) {
  const ir::Graph graph = training_graph(llama_of_32_heads());
  const ir::StageCode stage =
      StageBuilder(graph, stage_strategy("test"), {{layout::StageAxis::ulysses, 2}}, 0, graph.units()).build();
  const Counts four = {{Collective::all_to_all, 4}};
  EXPECT_EQ(reshards(stage, stage.forward, 1), four) << "q, k, v, and the result";
  EXPECT_EQ(reshards(stage, stage.backward, 1), four);
  for (const ir::Segment* segment : {&stage.forward, &stage.backward}) {
    i64 bytes = 0;
    for (const ir::Instr& instr : segment->code)
      if (!instr.op && instr.unit == 1)
        for (const layout::Step& step : instr.exchanges[0]->steps)
          bytes += layout::sent_elements(step.parts[0]) * ir::token_unit(stage.replica, 2048) * size_of(DType::bf16);
    EXPECT_EQ(bytes, i64{10} << 20);
  }
}

// The published traffic of two-dimensional tensor parallelism, 2048 tokens on 2 x 2 ranks (arXiv 2502.08145): the
// forward pass sums the first product over inner and the second one over outer, the backward pass the reverse.
TEST(StageBuilder, sums_each_of_a_chain_of_products_over_one_axis) {
  const ir::Graph graph = bare_products();
  config::Strategy strategy = stage_strategy("chain");
  strategy.sequence_parallel = false;
  const ir::StageCode stage =
      StageBuilder(graph, strategy, {{layout::StageAxis::outer, 2}, {layout::StageAxis::inner, 2}}, 0, graph.units())
          .build();
  for (const ir::Segment* segment : {&stage.forward, &stage.backward}) {
    std::vector<std::pair<std::string, i64>> sums;
    for (const ir::Instr& instr : segment->code) {
      if (instr.op || instr.unit != 1) continue;
      const ir::Buffer& from = stage.buffers[static_cast<size_t>(instr.in[0])];
      ASSERT_EQ(collective_of(stage, instr), Collective::all_reduce) << from.name;
      ASSERT_EQ(from.layout.partial.size(), 1u);
      i64 bytes = 0;
      for (const layout::Step& step : instr.exchanges[0]->steps)
        bytes += layout::sent_elements(step.parts[0]) * ir::token_unit(stage.replica, 2048) * size_of(DType::bf16);
      sums.emplace_back(stage.replica.axes[static_cast<size_t>(from.layout.partial[0])].name, bytes);
    }
    const bool forward = segment == &stage.forward;
    const std::vector<std::pair<std::string, i64>> expected = {{"inner", i64{8} << 20}, {"outer", i64{8} << 20}};
    EXPECT_EQ(sums, expected) << (forward ? "forward" : "backward");
  }
}

TEST(StageBuilder, cuts_norms_and_the_stream_by_inner_without_sequence_parallelism) {
  const ir::Graph graph = training_graph(small_gpt2());
  for (const bool sequence_parallel : {true, false}) {
    config::Strategy strategy = stage_strategy("two dims");
    strategy.sequence_parallel = sequence_parallel;
    const ir::StageCode stage =
        StageBuilder(graph, strategy, {{layout::StageAxis::outer, 2}, {layout::StageAxis::inner, 2}}, 0, graph.units())
            .build();
    constexpr int kOuter = 0, kInner = 1;
    using Cuts = std::vector<std::vector<int>>;
    for (const ir::ParamUse& use : stage.params) {
      const std::string& name = graph.param(use.param).name;
      if (name == "transformer.h.0.attn.c_attn.q.weight") {
        EXPECT_EQ(use.used.split, (Cuts{{kOuter}, {kInner}}));
      }
      if (name == "transformer.h.0.attn.c_attn.q.bias") {
        EXPECT_EQ(use.used.split, (Cuts{{kOuter}}));
      }
      if (name == "transformer.h.0.mlp.c_proj.weight") {
        EXPECT_EQ(use.used.split, (Cuts{{kInner}, {kOuter}}));
      }
      if (name == "transformer.h.0.mlp.c_proj.bias") {
        EXPECT_EQ(use.used.split, (Cuts{{kInner}}));
        EXPECT_EQ(use.grad.partial, sequence_parallel ? std::vector<int>{kOuter} : std::vector<int>{})
            << "each rank has all tokens, or a part of them over outer";
      }
      if (name == "transformer.h.0.ln_1.weight") {
        EXPECT_EQ(use.used.split, sequence_parallel ? Cuts{{}} : Cuts{{kInner}});
        EXPECT_EQ(use.grad.partial, sequence_parallel ? (std::vector<int>{kOuter, kInner}) : std::vector<int>{});
      }
      if (name == "transformer.wte.weight") {
        EXPECT_EQ(use.used.split, (Cuts{{kOuter, kInner}, {}}));
      }
    }
    int norms = 0;
    for (const ir::Instr& instr : stage.forward.code) {
      if (!instr.op || instr.op->name() != "layer_norm") continue;
      ++norms;
      EXPECT_EQ(stage.buffers[static_cast<size_t>(instr.out[0])].layout.split,
                sequence_parallel ? (Cuts{{kOuter, kInner}, {}}) : (Cuts{{}, {kInner}}));
      EXPECT_EQ(ir::statistic_sums(stage, instr).has_value(), !sequence_parallel);
    }
    EXPECT_EQ(norms, 5);
  }
}

TEST(StageBuilder, keeps_tokens_cut_by_ulysses_outside_of_attention) {
  config::ModelConfig model = small_llama();
  model.kv_heads = 4;
  const ir::Graph graph = training_graph(model);
  const ir::StageCode stage =
      StageBuilder(graph, stage_strategy("test"), {{layout::StageAxis::ulysses, 2}, {layout::StageAxis::outer, 2}}, 0,
                   graph.units())
          .build();
  for (const ir::Buffer& buffer : stage.buffers) {
    const bool by_tokens = buffer.kind == ir::ValueKind::activation && buffer.type.shape.dims() == 2 &&
                           buffer.type.shape.size[0] == ir::kTokens;
    if (!by_tokens || !buffer.layout.split[0].empty()) continue;
    EXPECT_TRUE(std::ranges::count(buffer.layout.split[1], 0) > 0 || std::ranges::count(buffer.layout.partial, 0) > 0)
        << buffer.name << " has all tokens, and neither its heads nor a sum are cut instead";
  }
  // The embedding looks up its part of the tokens, the head computes the loss of its part.
  EXPECT_EQ(stage.buffers[static_cast<size_t>(stage.loss)].layout, (layout::Layout{{{0}}, {}}));
}

// 8192 tokens in bf16 on ulysses = 2 and ring = 4: half of a rank's 1024 tokens of q, k and v goes to the other one,
// and half of attention's result comes back: 1/2 * 1024 * 128 * (32 + 8 + 8 + 32) * 2 bytes.
TEST(StageBuilder, moves_ten_mebibytes_a_rank_over_ulysses_in_the_forward_pass_of_a_layer) {
  const ir::Graph graph = training_graph(llama_of_32_heads());
  const ir::StageCode stage =
      StageBuilder(graph, stage_strategy("test"), {{layout::StageAxis::ulysses, 2}}, 0, graph.units()).build();
  constexpr i64 kTokens = 8192 / 4;  // both ranks together
  const i64 unit = ir::token_unit(2, kTokens);
  for (const size_t position : {0, 1}) {
    i64 bytes = 0;
    for (const ir::Instr& instr : stage.forward.code) {
      if (instr.op || !instr.over_ulysses || instr.unit != 1) continue;
      const ir::Buffer& buffer = stage.buffers[static_cast<size_t>(instr.in[0])];
      for (const layout::Step& step : instr.exchanges[0]->steps)
        for (const layout::Piece& piece : step.parts[position].sends)
          if (piece.peer != static_cast<int>(position))
            bytes += ir::scaled(buffer, piece.box, unit).elements() * size_of(buffer.type.dtype);
    }
    EXPECT_EQ(bytes, 10 << 20) << position;
  }
}

TEST(StageBuilder, scatters_the_embedding_and_gathers_before_the_head) {
  const ir::StageCode stage = whole_model(training_graph(small_llama()), 2);
  EXPECT_EQ(reshards(stage, stage.forward, 0), (Counts{{Collective::reduce_scatter, 1}}));
  EXPECT_EQ(reshards(stage, stage.backward, 0), (Counts{{Collective::all_gather, 1}}));
  // Head and loss are made with the gradient: the gather stands in the backward segment, where dx comes back as a
  // scatter.
  EXPECT_EQ(reshards(stage, stage.forward, 3), (Counts{}));
  EXPECT_EQ(reshards(stage, stage.backward, 3), (Counts{{Collective::all_gather, 1}, {Collective::reduce_scatter, 1}}));
}

TEST(StageBuilder, sums_key_gradients_in_the_weight_where_ranks_share_a_key_head) {
  const ir::StageCode stage =
      whole_model(training_graph(small_llama()), 4);  // 2 key/value heads: outer/0 = 2, outer/1 = 2
  const ir::Graph graph = training_graph(small_llama());
  for (const ir::ParamUse& use : stage.params) {
    const std::string& name = graph.param(use.param).name;
    const bool keys = name.find("k_proj") != std::string::npos || name.find("v_proj") != std::string::npos;
    const bool norm = name.find("norm") != std::string::npos;
    EXPECT_EQ(use.grad.partial, keys   ? std::vector<int>{1}
                                : norm ? (std::vector<int>{0, 1})
                                       : std::vector<int>{})
        << name;
  }
}

TEST(StageBuilder, passes_stage_boundaries_on_the_residual_stream) {
  const ir::Graph graph = training_graph(small_llama());
  const config::Strategy strategy = stage_strategy("test");
  const ir::StageCode first = StageBuilder(graph, strategy, tensor_mesh(2), 0, 2).build(),
                      last = StageBuilder(graph, strategy, tensor_mesh(2), 2, 4).build();
  EXPECT_LT(first.act_in, 0);
  EXPECT_LT(first.grad_out, 0);
  EXPECT_LT(first.loss, 0);
  EXPECT_LT(last.act_out, 0);
  EXPECT_LT(last.grad_in, 0);
  ASSERT_GE(last.loss, 0);
  const layout::Layout stream{{{0}, {}}, {}};
  EXPECT_EQ(first.buffers[static_cast<size_t>(first.act_out)].layout, stream);
  EXPECT_EQ(first.buffers[static_cast<size_t>(first.grad_in)].layout, stream);
  EXPECT_EQ(last.buffers[static_cast<size_t>(last.act_in)].layout, stream);
  EXPECT_EQ(last.buffers[static_cast<size_t>(last.grad_out)].layout, stream);
  EXPECT_EQ(first.buffers[static_cast<size_t>(first.act_out)].value,
            last.buffers[static_cast<size_t>(last.act_in)].value);
}

TEST(StageBuilder, lays_results_of_one_product_side_by_side) {
  const ir::StageCode stage = whole_model(training_graph(small_llama()), 2);
  int products = 0;
  for (const ir::Instr& instr : stage.forward.code) {
    if (!instr.op || instr.op->adjacent_outputs().empty()) continue;
    ++products;
    for (size_t slot = 0; slot < instr.out.size(); ++slot) {
      const ir::Buffer& buffer = stage.buffers[static_cast<size_t>(instr.out[slot])];
      EXPECT_EQ(buffer.root, instr.out[0]);
      EXPECT_EQ(buffer.root_slot, static_cast<int>(slot));
    }
  }
  EXPECT_EQ(products, 4);  // qkv and gate-up of two layers
}

TEST(StageBuilder, lets_one_position_add_what_must_count_once) {
  const ir::StageCode stage = whole_model(training_graph(small_gpt2()), 2);
  int partial = 0;
  for (const ir::Instr& instr : stage.forward.code) {
    if (!instr.op || instr.op->name() != "linear") continue;
    const bool summed = !stage.buffers[static_cast<size_t>(instr.out[0])].layout.partial.empty();
    partial += summed;
    EXPECT_EQ(instr.first_partial, summed ? (std::vector<bool>{true, false}) : (std::vector<bool>{true, true}));
  }
  EXPECT_EQ(partial, 4);  // two projections per layer
}

TEST(StageBuilder, reads_a_gathered_value_twice_instead_of_gathering_twice) {
  const ir::StageCode stage = whole_model(training_graph(small_llama()), 2);
  std::map<std::pair<int, std::string>, int> made;
  for (const ir::Segment* segment : {&stage.forward, &stage.backward})
    for (const ir::Instr& instr : segment->code)
      for (const int b : instr.out) {
        const ir::Buffer& buffer = stage.buffers[static_cast<size_t>(b)];
        if (buffer.kind != ir::ValueKind::activation) continue;
        EXPECT_EQ(++made[std::pair(buffer.value, layout::to_string(stage.replica, buffer.layout))], 1) << buffer.name;
      }
}

TEST(StageBuilder, gathers_a_weight_that_its_operator_needs_whole_and_leaves_its_gradient_partial) {
  const ir::Graph graph = training_graph(small_llama());
  const int norm = param_index(graph, "model.layers.0.input_layernorm.weight");
  const ir::StageCode stage = compile_stage(graph, stage_strategy("odd", {{"*0.input_layernorm.weight", {{0, 2}}}}),
                                            tensor_mesh(2), 0, graph.units());
  for (const ir::ParamUse& use : stage.params) {
    if (use.param != norm) continue;
    EXPECT_EQ(use.used.split, (std::vector<std::vector<int>>{{0}}));
    EXPECT_EQ(use.grad.split, (std::vector<std::vector<int>>{{}}));
    EXPECT_EQ(use.grad.partial, std::vector<int>{0});
  }
  for (const ir::Segment* segment : {&stage.forward, &stage.backward}) {
    int gathers = 0;
    for (const ir::Instr& instr : segment->code)
      for (const int b : instr.in) {
        const ir::Buffer& buffer = stage.buffers[static_cast<size_t>(b)];
        if (buffer.kind != ir::ValueKind::param || graph.value(buffer.value).param != norm) continue;
        EXPECT_FALSE(instr.op) << "only a gather reads what is held";
        EXPECT_EQ(stage.buffers[static_cast<size_t>(instr.out[0])].kind, ir::ValueKind::activation);
        ++gathers;
      }
    EXPECT_EQ(gathers, 1);
  }
}

TEST(StageBuilder, gathers_a_tied_weight_whose_uses_cut_its_gradient_differently) {
  config::ModelConfig model = small_llama();
  model.tied_embeddings = true;
  const ir::Graph graph = training_graph(model);
  const int tied = param_index(graph, "model.embed_tokens.weight");
  for (const std::vector<config::Cut>& cuts : {std::vector<config::Cut>{}, {{1, 2}}}) {
    const ir::StageCode stage = compile_stage(graph, stage_strategy("odd", {{"model.embed_tokens.weight", cuts}}),
                                              tensor_mesh(2), 0, graph.units());
    for (const ir::ParamUse& use : stage.params) {
      if (use.param != tied) continue;
      EXPECT_EQ(use.used.split[0], std::vector<int>{});
      EXPECT_EQ(use.grad.split, (std::vector<std::vector<int>>{{0}, {}}));
    }
  }
}

TEST(StageBuilder, records_the_parameters_of_a_forward_graph) {
  const ir::Graph graph = models::build(small_llama(), precision_from("fp32"), models::Output::logits);
  const ir::StageCode stage = whole_model(graph, 2);
  EXPECT_EQ(stage.params.size(), graph.params().size());
  ASSERT_GE(stage.logits, 0);
  EXPECT_EQ(stage.buffers[static_cast<size_t>(stage.logits)].layout,
            (layout::Layout{{{}, {0}}, {}}));  // vocabulary cut
  EXPECT_TRUE(stage.backward.code.empty());
}

TEST(NeededCalls, leave_out_the_forward_head_which_the_loss_repeats) {
  const ir::Graph graph = training_graph(small_llama());
  const std::vector<bool> needed = needed_calls(graph);
  for (size_t i = 0; i < graph.calls().size(); ++i)
    EXPECT_EQ(needed[i], graph.calls()[i].op->name() != "head") << graph.calls()[i].op->name();
}

TEST(MakeAdjacent, leaves_buffers_that_have_a_place_or_cross_stages) {
  ir::StageCode stage;
  stage.buffers.resize(4);
  stage.act_in = 3;
  make_adjacent(stage, {0, 1});
  EXPECT_EQ(stage.buffers[1].root, 0);
  make_adjacent(stage, {1, 2});
  EXPECT_EQ(stage.buffers[1].root, 0);
  EXPECT_EQ(stage.buffers[2].root, -1);
  make_adjacent(stage, {2, 3});
  EXPECT_EQ(stage.buffers[2].root, -1);
}

}  // namespace
}  // namespace switchyard::compiler
