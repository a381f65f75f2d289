#include "ir/operators/attention.hpp"

#include <gtest/gtest.h>

#include "../layout_query.hpp"
#include "ir/operators/unfused_attention.hpp"

namespace switchyard::ir {
namespace {

// 8 query heads, 4 key/value heads of 16 features.
const Type kQueries = tokens_by(DType::bf16, 128, {32, 16}), kKeys = tokens_by(DType::bf16, 64, {16});

TEST(Attention, gives_outputs_like_queries_and_a_log_sum_per_head) {
  const std::vector<Type> in = {kQueries, kKeys, kKeys}, out = Attention(16, 4).shape(in);
  EXPECT_EQ(out[0], kQueries);
  EXPECT_EQ(out[1], tokens_by(DType::f32, 8, {2, 1}));
}

TEST(Attention, refuses_keys_of_another_size) {
  const std::vector<Type> in = {kQueries, kKeys, tokens_by(DType::bf16, 32, {16})};
  EXPECT_EQ(message_of<InternalError>([&] { Attention(16, 4).shape(in); }),
            "attention: keys of 64 features, values of 32");
  const std::vector<Type> few = {kQueries, kQueries, kQueries};
  EXPECT_EQ(message_of<InternalError>([&] { Attention(16, 4).shape(few); }),
            "attention: keys of 128 features, values of 128");
}

TEST(Attention, cuts_keys_like_queries_while_every_rank_has_a_key_head) {
  const LayoutRule rule = Question({4})
                              .activation(cut({{}, {0}}))
                              .activation(cut({{}, {0}}))
                              .activation(cut({{}, {0}}))
                              .output()
                              .output()
                              .ask(Attention(16, 4));
  EXPECT_EQ(rule.needs[1], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[1], cut({{}, {0}}));
}

TEST(Attention, cuts_keys_by_the_outer_axes_only_where_there_are_fewer_key_heads_than_ranks) {
  const LayoutRule rule = Question({4, 2})
                              .activation(cut({{}, {0, 1}}))
                              .activation(cut({{}, {0}}))
                              .activation(cut({{}, {0}}))
                              .output()
                              .output()
                              .ask(Attention(16, 4));
  EXPECT_EQ(rule.needs[0], cut({{}, {0, 1}}));
  EXPECT_EQ(rule.needs[1], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[0], cut({{}, {0, 1}}));
}

TEST(AttentionDx, holds_a_number_for_each_query_and_head_besides_its_results) {
  for (const DType type : {DType::f32, DType::f64}) {
    const Type q = tokens_by(type, 128, {16}), k = tokens_by(type, 64, {16}), lse = tokens_by(type, 8, {1});
    const std::vector<Type> in = {q, q, k, k, q, lse}, out = {q, k, k};
    EXPECT_EQ(AttentionDx(16, 4).workspace(in, out, {300, 100}), 300 * 8 * size_of(type));
  }
}

// Keys and values of other ring ranks, and their gradients in the dtype of statistics. In bf16 those of its own keys
// are made in fp32, with several steps or without other ring ranks while attention is computed; where several steps add
// to queries, these are in fp32, too, and not copied for each sum.
TEST(Attention, has_memory_for_keys_of_other_ring_ranks) {
  for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
    const Type q = tokens_by(type, 128, {16}), k = tokens_by(type, 64, {16}), lse = tokens_by(type, 8, {1});
    const std::vector<Type> in = {q, k, k}, out = {q, lse}, back = {q, q, k, k, q, lse}, gradients = {q, k, k};
    const i64 state = type == DType::f64 ? 8 : 4, keys = 2 * 40 * 64 * size_of(type), sums = 2 * 40 * 64 * state;
    const i64 wide = type == DType::bf16 ? 300 * 128 * state : 0, own = type == DType::bf16 ? 2 * 300 * 64 * state : 0;
    const Attention forward(16, 4);
    const AttentionDx backward(16, 4);
    const CallSize none{300, 100}, gathered{300, 100, 40}, in_steps{300, 100, 40, true};
    EXPECT_EQ(forward.workspace(in, out, gathered), forward.workspace(in, out, none) + keys);
    EXPECT_EQ(forward.workspace(in, out, in_steps), forward.workspace(in, out, none) + keys + wide);
    const i64 alone = backward.workspace(back, gradients, none),
              added = type == DType::bf16 ? 2 * 100 * 128 * state : 0;
    EXPECT_EQ(backward.workspace(back, gradients, gathered), alone - own + keys + sums);
    EXPECT_EQ(backward.workspace(back, gradients, in_steps), alone - added + keys + sums + wide);
  }
}

// A device's flash attention stores no scores: what it takes grows with tokens, whatever their documents' lengths.
TEST(Attention, stores_no_scores_on_devices) {
  const auto types = [](DType type) {
    const Type q = tokens_by(type, 128, {16}), k = tokens_by(type, 64, {16}), lse = tokens_by(type, 8, {1});
    return std::vector<Type>{q, q, k, k, q, lse};
  };
  const std::vector<Type> back = types(DType::bf16), gradients = {back[1], back[2], back[2]};
  const std::vector<Type> in = {back[1], back[2], back[2]}, out = {back[1], back[5]};
  for (const i64 longest : {100, 300}) {
    const CallSize size{300, longest, 0, false, 3};
    EXPECT_EQ(Attention(16, 4).workspace(in, out, size), 300 * 128 * 2 + 9600) << "its results; 8 heads' statistics";
    EXPECT_EQ(AttentionDx(16, 4).workspace(back, gradients, size),
              (300 + 3 * 128) * 8 * (32 + 1) * 4 + 300 * 128 * 2 + 2 * 300 * (64 + 128) * 2)
        << "sums in fp32 in rows of 32, gradients, those of keys for each query head, too";
  }
  const CallSize alone{300, 100, 0, false, 3}, first{300, 100, 0, false, 3, false, true};
  EXPECT_EQ(AttentionDx(16, 4).workspace(back, gradients, first),
            AttentionDx(16, 4).workspace(back, gradients, alone) + 2 * 300 * 64 * 4)
      << "sums of gradients that other ring ranks send";
  const std::vector<Type> other = types(DType::f32);
  EXPECT_GT(AttentionDx(16, 4).workspace(other, gradients, {300, 300, 0, false, 3}),
            AttentionDx(16, 4).workspace(other, gradients, {300, 100, 0, false, 3}))
      << "not in fp32";
  EXPECT_GT(AttentionDx(4, 16).workspace(back, gradients, {300, 300, 0, false, 3}),
            AttentionDx(4, 16).workspace(back, gradients, {300, 100, 0, false, 3}))
      << "not with heads of 4";
  EXPECT_TRUE(fits_flash_attention(DType::bf16, 256));
  EXPECT_FALSE(fits_flash_attention(DType::bf16, 264));
}

TEST(PaddedAttention, is_for_heads_of_up_to_128_elements) {
  EXPECT_TRUE(fits_padded_attention(128));
  EXPECT_FALSE(fits_padded_attention(136));
  EXPECT_FALSE(fits_padded_attention(0)) << "no attention";
  const Type q = tokens_by(DType::bf16, 272, {136}), lse = tokens_by(DType::f32, 2, {1});
  const std::vector<Type> in = {q, q, q}, out = {q, lse};
  EXPECT_EQ(Attention(136, 2).workspace(in, out, {3000, 3000, 0, false, 2}), 3000 * 272 * 2 + 3000 * 2 * 4)
      << "its results; 2 heads' statistics";
}

TEST(PaddedAttentionRows, are_few_lengths_of_long_documents) {
  EXPECT_EQ(padded_attention_rows(2047), 0);
  EXPECT_EQ(padded_attention_rows(2048), 2048);
  EXPECT_EQ(padded_attention_rows(2049), 2176);
  EXPECT_EQ(padded_attention_rows(4000), 4096);
  EXPECT_EQ(padded_attention_rows(4097), 4352);
  EXPECT_EQ(padded_attention_rows(131073), 139264);
}

// Attention with padding takes copies of the longest document's rows, unless it alone has such a call's length.
TEST(Attention, pads_long_documents_on_devices) {
  const Type q = tokens_by(DType::bf16, 128, {16}), k = tokens_by(DType::bf16, 64, {16}),
             lse = tokens_by(DType::f32, 8, {1});
  const std::vector<Type> in = {q, k, k}, out = {q, lse}, back = {q, q, k, k, q, lse}, gradients = {q, k, k};
  const auto forward = [&](i64 tokens, i64 longest) {
    return Attention(16, 4).workspace(in, out, {tokens, longest, 0, false, 2});
  };
  const auto backward = [&](i64 tokens, i64 longest) {
    return AttentionDx(16, 4).workspace(back, gradients, {tokens, longest, 0, false, 2});
  };
  const i64 statistics = 8 * 4, row = 128 * 2, keys = 2 * 64 * 2;
  EXPECT_EQ(forward(4096, 4096), 4096 * (row + statistics));
  EXPECT_EQ(forward(6400, 4096) - forward(6400, 2000), 4096 * (row + keys)) << "another document may have padding";
  EXPECT_EQ(forward(5000, 5000), 5120 * (row + statistics) + 5120 * (row + keys));
  EXPECT_EQ(backward(6400, 4096) - backward(6400, 2000), 6400 * statistics + 4096 * (3 * row + keys));
}

TEST(AttentionDx, leaves_key_gradients_as_partials_where_queries_are_cut_finer) {
  Question question({4, 2});
  for (const auto& axes : {std::vector<int>{0, 1}, {0, 1}, {0}, {0}, {0, 1}, {0, 1}})
    question.activation(cut({{}, axes}));
  const LayoutRule rule = question.output().output().output().ask(AttentionDx(16, 4));
  EXPECT_EQ(rule.needs[2], cut({{}, {0}}));
  EXPECT_EQ(rule.gives[0], cut({{}, {0, 1}}));
  EXPECT_EQ(rule.gives[1], cut({{}, {0}}, {1}));
  EXPECT_EQ(rule.gives[2], cut({{}, {0}}, {1}));
}

TEST(Attention, costs_by_pairs_of_tokens) {
  const std::vector<Type> in = {kQueries, kKeys, kKeys}, out = Attention(16, 4).shape(in);
  const Cost forward = Attention(16, 4).cost(in, out);
  EXPECT_EQ(forward.flops_per_pair, 4 * 128);  // scores and values: 2 flops a feature each
  EXPECT_EQ(forward.flops_per_token, 0);
  const std::vector<Type> back = {kQueries, kQueries, kKeys, kKeys, kQueries, out[1]},
                          gradients = {kQueries, kKeys, kKeys};
  EXPECT_EQ(AttentionDx(16, 4).cost(back, gradients).flops_per_pair, 10 * 128);
}

TEST(Attention, has_one_gradient_call_for_queries_keys_and_values) {
  Graph graph(precision_from("bf16"));
  const int q = graph.add_param({"q", {{4, 128}, {}}, 0, "", {}, {}, {}}),
            k = graph.add_param({"k", {{4, 64}, {}}, 0, "", {}, {}, {}});
  const std::vector<int> out = graph.call(std::make_shared<Attention>(16, 4), {q, k, k}, "o");
  std::vector<int> existing(3, -1);
  const std::vector<int> gradients = Attention(16, 4).input_gradient(graph, graph.calls()[0], {q, -1}, existing);
  EXPECT_EQ(gradients.size(), 3u);
  EXPECT_EQ(graph.calls().back().in, (std::vector<int>{q, q, k, k, out[0], out[1]}));
  EXPECT_EQ(message_of<InternalError>([&] {
              Attention(16, 4).input_gradient(graph, graph.calls()[0], {-1, -1}, existing);
            }),
            "attention without a gradient");
}

TEST(Attention, recomputes_its_result) { EXPECT_TRUE(Attention(16, 4).is_remade(0)); }

TEST(AttentionHeadDim, is_that_of_attention_that_stores_no_scores) {
  const auto head_dim = [](std::shared_ptr<const Operator> attention) {
    Graph graph(precision_from("bf16"));
    const int q = graph.add_param({"q", {{4, 128}, {}}, 0, "", {}, {}, {}}),
              k = graph.add_param({"k", {{4, 64}, {}}, 0, "", {}, {}, {}});
    if (attention) graph.call(std::move(attention), {q, k, k}, "o");
    return attention_head_dim(graph);
  };
  EXPECT_EQ(head_dim(std::make_shared<Attention>(16, 4)), 16);
  EXPECT_EQ(head_dim(std::make_shared<UnfusedAttention>(16, 4, 0, 1)), 0);
  EXPECT_EQ(head_dim(nullptr), 0);
}

}  // namespace
}  // namespace switchyard::ir
