#include "compiler/recompute.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/compile.hpp"
#include "ir/operator.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using config::Recompute;

constexpr Recompute kAll[] = {Recompute::none, Recompute::gathers, Recompute::selective, Recompute::full};

ir::StageCode stage_of(const ir::Graph& graph, int tp, Recompute policy, int first, int end) {
  config::Strategy strategy = stage_strategy("test");
  strategy.recompute = policy;
  return compile_stage(graph, strategy, tensor_mesh(tp), first, end, {}, {.overlap = false});
}

ir::StageCode whole_model(const config::ModelConfig& model, int tp, Recompute policy) {
  const ir::Graph graph = training_graph(model);
  return stage_of(graph, tp, policy, 0, graph.units());
}

int count(const ir::Segment& segment, const std::string& name) {
  return static_cast<int>(std::count_if(segment.code.begin(), segment.code.end(),
                                        [&](const ir::Instr& i) { return (i.op ? i.op->name() : "reshard") == name; }));
}

i64 stash_bytes(const ir::StageCode& stage) {
  i64 bytes = 0;
  for (const int b : stage.stash)
    bytes += ir::local_bytes(stage.buffers[static_cast<size_t>(b)], 0, stage.replica.size(), {64});
  return bytes;
}

std::set<std::string> stash_names(const ir::StageCode& stage) {
  std::set<std::string> names;
  for (const int b : stage.stash) names.insert(stage.buffers[static_cast<size_t>(b)].name);
  return names;
}

TEST(Recompute, keeps_all_that_the_backward_pass_reads_unless_told_otherwise) {
  const ir::StageCode stage = whole_model(small_llama(), 1, Recompute::none);
  for (const char* name : {"attention", "swiglu", "gate up", "qkv", "norm", "residual"})
    EXPECT_TRUE(stash_names(stage).contains(name)) << name;
  EXPECT_FALSE(stash_names(stage).contains("attention out"));  // only its sum with the stream is read
  EXPECT_EQ(count(stage.backward, "attention"), 0);
  EXPECT_EQ(count(stage.backward, "linear"), 0);
}

// Reshards of a segment that collect what ranks had cut.
int gathers(const ir::StageCode& stage, const ir::Segment& segment) {
  return static_cast<int>(std::ranges::count_if(segment.code, [&](const ir::Instr& i) {
    const auto cuts = [&](int b) {
      const layout::Layout& layout = stage.buffers[static_cast<size_t>(b)].layout;
      return std::ranges::count_if(layout.split, [](const std::vector<int>& axes) { return !axes.empty(); });
    };
    return !i.op && stage.buffers[static_cast<size_t>(i.in[0])].layout.partial.empty() &&
           cuts(i.in[0]) > cuts(i.out[0]);
  }));
}

TEST(Recompute, keeps_what_was_gathered_or_gathers_it_again) {
  const ir::StageCode none = whole_model(small_llama(), 2, Recompute::none),
                      again = whole_model(small_llama(), 2, Recompute::gathers);
  // The inputs of qkv, and of gate and up.
  EXPECT_EQ(gathers(again, again.forward), 2 * 2);
  EXPECT_EQ(gathers(none, none.forward), 2 * 2);
  EXPECT_EQ(gathers(again, again.backward) - gathers(none, none.backward), 2 * 2);
  EXPECT_EQ(count(none.backward, "linear"), 0);
  EXPECT_GT(stash_bytes(none), stash_bytes(again));
  EXPECT_LT(stash_bytes(none), 2 * stash_bytes(again));
  const ir::StageCode alone = whole_model(small_llama(), 1, Recompute::none);
  EXPECT_EQ(stash_bytes(alone), stash_bytes(whole_model(small_llama(), 1, Recompute::gathers)));
}

TEST(Recompute, what_is_gathered_again_is_kept_in_parts) {
  const ir::StageCode stage = whole_model(small_llama(), 2, Recompute::gathers);
  for (const int b : stage.stash) {
    const auto gathers = [&](const ir::Instr& i) {
      return !i.op && i.out[0] == b && stage.buffers[static_cast<size_t>(i.in[0])].layout.partial.empty();
    };
    EXPECT_TRUE(std::ranges::none_of(stage.forward.code, gathers))
        << stage.buffers[static_cast<size_t>(b)].name << " is kept whole";
  }
  EXPECT_EQ(count(stage.backward, "linear"), 0);
  EXPECT_EQ(count(stage.backward, "attention"), 0);
  const ir::StageCode alone = whole_model(small_llama(), 1, Recompute::none);
  EXPECT_NEAR(static_cast<double>(stash_bytes(stage)), 0.5 * static_cast<double>(stash_bytes(alone)),
              0.1 * static_cast<double>(stash_bytes(alone)));
}

TEST(Recompute, selective_makes_attention_again_too) {
  const ir::StageCode gathers = whole_model(small_llama(), 2, Recompute::gathers),
                      selective = whole_model(small_llama(), 2, Recompute::selective);
  EXPECT_EQ(count(selective.backward, "attention"), 2);
  EXPECT_EQ(count(selective.backward, "linear"), 0);
  EXPECT_FALSE(stash_names(selective).contains("attention"));
  EXPECT_EQ(count(selective.backward, "reshard"), count(gathers.backward, "reshard"));
  EXPECT_LT(stash_bytes(selective), stash_bytes(gathers));
}

TEST(Recompute, full_keeps_what_enters_a_layer_and_nothing_else) {
  const ir::StageCode stage = whole_model(small_llama(), 2, Recompute::full);
  std::vector<int> kept = stage.stash;
  EXPECT_EQ(kept.size(), 3u);  // into layer 0, layer 1 and the last norm
  for (const int b : kept) EXPECT_EQ(stage.buffers[static_cast<size_t>(b)].layout, (layout::Layout{{{0}, {}}, {}}));
  EXPECT_EQ(count(stage.backward, "attention"), 2);
  EXPECT_EQ(count(stage.backward, "linear"),
            6);  // qkv, attention out, gate and up; the last product of a layer is not read
  EXPECT_EQ(count(stage.backward, "embedding"), 0);
}

TEST(Recompute, full_keeps_what_a_stage_receives) {
  const ir::Graph graph = training_graph(small_llama());
  const ir::StageCode stage = stage_of(graph, 1, Recompute::full, 2, 4);
  EXPECT_EQ(stage.stash.size(), 2u);
  EXPECT_NE(std::find(stage.stash.begin(), stage.stash.end(), stage.act_in), stage.stash.end());
}

TEST(Recompute, makes_again_right_before_the_layer_needs_it) {
  const ir::StageCode stage = whole_model(small_llama(), 2, Recompute::full);
  // All that is made again of a layer stands with that layer's gradients: units never rise in the backward segment.
  EXPECT_TRUE(std::is_sorted(stage.backward.code.begin(), stage.backward.code.end(),
                             [](const ir::Instr& a, const ir::Instr& b) { return a.unit > b.unit; }));
}

TEST(Recompute, lays_products_made_again_side_by_side) {
  const ir::StageCode stage = whole_model(small_llama(), 1, Recompute::full);
  for (const ir::Instr& instr : stage.backward.code)
    if (instr.op && !instr.op->adjacent_outputs().empty()) {
      EXPECT_EQ(stage.buffers[static_cast<size_t>(instr.out[1])].root, instr.out[0]);
    }
}

using Segments = std::vector<const ir::Segment*>;

// A root goes once, with the last of its members. gradients: the segments behind the forward one.
void expect_lifetimes_of_roots(const ir::StageCode& stage, const Segments& gradients) {
  std::map<int, int> members;  // that are left
  for (const ir::Buffer& buffer : stage.buffers)
    if (buffer.root >= 0) ++members[buffer.root];
  Segments all{&stage.forward};
  all.insert(all.end(), gradients.begin(), gradients.end());
  for (const ir::Segment* segment : all)
    ir::walk(
        *segment, [](size_t) {},
        [&](size_t i) {
          const ir::Instr& instr = segment->code[i];
          for (const int b : instr.drop)
            if (const int root = stage.buffers[static_cast<size_t>(b)].root; root >= 0) --members.at(root);
          for (const int root : instr.drop_roots) {
            EXPECT_EQ(members.at(root), 0) << "root " << root << " goes before its members, or again";
            members.erase(root);
          }
        });
  EXPECT_TRUE(members.empty());
}

// Runs both segments on names only: what is read must be there, what is dropped goes, and in the end nothing is left.
void expect_lifetimes(const ir::StageCode& stage) {
  std::set<int> alive;
  const auto is_activation = [&](int b) {
    return stage.buffers[static_cast<size_t>(b)].kind == ir::ValueKind::activation;
  };
  const auto run = [&](const ir::Segment& segment) {
    for (const ir::Instr& instr : segment.code) {
      for (const int b : instr.in)
        ASSERT_TRUE(!is_activation(b) || alive.contains(b))
            << stage.buffers[static_cast<size_t>(b)].name << " is read after it was dropped, or before it was made";
      for (const int b : instr.out)
        ASSERT_TRUE(!is_activation(b) || alive.insert(b).second)
            << stage.buffers[static_cast<size_t>(b)].name << " is made twice";
      for (const int b : instr.drop)
        ASSERT_EQ(alive.erase(b), 1u) << stage.buffers[static_cast<size_t>(b)].name << " is dropped twice";
    }
  };
  if (stage.act_in >= 0) alive.insert(stage.act_in);
  run(stage.forward);
  std::set<int> expected(stage.stash.begin(), stage.stash.end());
  if (stage.act_out >= 0) expected.insert(stage.act_out);
  EXPECT_EQ(alive, expected);
  expect_lifetimes_of_roots(stage, {&stage.backward, &stage.weight});
  alive = {stage.stash.begin(), stage.stash.end()};  // the output goes when it is sent
  if (stage.grad_in >= 0) alive.insert(stage.grad_in);
  run(stage.backward);
  expected.clear();
  for (const int b : {stage.grad_out, stage.loss})
    if (b >= 0) expected.insert(b);
  EXPECT_EQ(alive, expected);
}

// In code whose gradients are split, what B leaves to W is there, and W leaves nothing; nor do both at once.
void expect_lifetimes_of_split(const ir::StageCode& stage, const Segments& gradients) {
  std::set<int> alive(stage.stash.begin(), stage.stash.end());
  if (stage.grad_in >= 0) alive.insert(stage.grad_in);
  const auto is_activation = [&](int b) {
    return stage.buffers[static_cast<size_t>(b)].kind == ir::ValueKind::activation;
  };
  for (const ir::Segment* segment : gradients)
    for (const ir::Instr& instr : segment->code) {
      for (const int b : instr.in)
        ASSERT_TRUE(!is_activation(b) || alive.contains(b)) << stage.buffers[static_cast<size_t>(b)].name;
      for (const int b : instr.out)
        ASSERT_TRUE(!is_activation(b) || alive.insert(b).second) << stage.buffers[static_cast<size_t>(b)].name;
      for (const int b : instr.drop) ASSERT_EQ(alive.erase(b), 1u) << stage.buffers[static_cast<size_t>(b)].name;
    }
  std::set<int> expected;
  for (const int b : {stage.grad_out, stage.loss})
    if (b >= 0) expected.insert(b);
  EXPECT_EQ(alive, expected);
  expect_lifetimes_of_roots(stage, gradients);
}

TEST(SplitGradients, take_the_head_apart) {
  config::ModelConfig tied = small_llama();
  tied.tied_embeddings = true;
  for (const config::ModelConfig& model : {small_llama(), tied, small_gpt2()})
    for (const Recompute policy : kAll)
      for (const int tp : {1, 2}) {
        const ir::Graph graph = training_graph(model);
        config::Strategy strategy = stage_strategy("test");
        strategy.recompute = policy;
        EXPECT_EQ(count(compile_stage(graph, strategy, tensor_mesh(tp), 2, 4).backward, "head_loss"), 1);
        strategy.schedule = config::ScheduleKind::zero_bubble;
        const ir::StageCode last = compile_stage(graph, strategy, tensor_mesh(tp), 2, 4);
        EXPECT_EQ(count(last.backward, "head_loss"), 0);
        EXPECT_EQ(count(last.backward, "head_loss_dx"), 1);
        for (const ir::Instr& instr : last.backward.code)
          for (const int b : instr.out)
            EXPECT_NE(last.buffers[static_cast<size_t>(b)].kind, ir::ValueKind::gradient)
                << "gradients of weights are apart";
        EXPECT_EQ(last.weight.releases.size(), last.units.size()) << "every unit's are complete at the end of W";
        for (const ir::StageCode& stage : {last, compile_stage(graph, strategy, tensor_mesh(tp), 0, 2)}) {
          expect_lifetimes_of_split(stage, {&stage.backward, &stage.weight});
          EXPECT_EQ(stage.joins_gradients(), tp > 1);
          if (stage.joins_gradients()) expect_lifetimes_of_split(stage, {&stage.joined});
        }
      }
}

void expect_lifetimes_of_stages(const config::ModelConfig& model, int tp) {
  const ir::Graph graph = training_graph(model);
  for (const Recompute policy : kAll)
    for (const auto& [first, end] : {std::pair{0, 4}, {0, 2}, {2, 3}, {2, 4}}) {
      SCOPED_TRACE(fmt::format("tp {} policy {} units {}..{}", tp, config::name_of(policy), first, end));
      expect_lifetimes(stage_of(graph, tp, policy, first, end));
    }
}

TEST(Lifetimes, free_every_buffer_once_under_every_policy_and_cut) {
  config::ModelConfig tied = small_llama();
  tied.tied_embeddings = true;
  for (const int tp : {1, 2, 4, 8}) {
    expect_lifetimes_of_stages(small_llama(), tp);
    expect_lifetimes_of_stages(tied, tp);
  }
  for (const int tp : {1, 2, 3, 4, 6}) expect_lifetimes_of_stages(small_gpt2(), tp);
}

TEST(Lifetimes, free_every_buffer_once_where_ranks_share_key_heads_with_biases_and_norms) {
  config::ModelConfig model = small_llama();
  model.qkv_bias = model.o_bias = model.mlp_bias = model.qk_norm = true;
  for (const int tp : {1, 2, 4, 8}) expect_lifetimes_of_stages(model, tp);
}

TEST(UnitEvents, await_parameters_at_first_use_and_release_gradients_at_the_last_write) {
  const ir::StageCode stage = whole_model(small_llama(), 2, Recompute::none);
  const auto units = [](const std::vector<ir::UnitEvent>& events) {
    std::vector<int> list;
    for (const ir::UnitEvent& event : events) list.push_back(event.unit);
    return list;
  };
  EXPECT_EQ(units(stage.forward.awaits), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(stage.forward.releases.empty());
  EXPECT_EQ(units(stage.backward.releases), (std::vector<int>{3, 2, 1, 0}));
  for (const ir::UnitEvent& event : stage.backward.releases) {
    const ir::Instr& last = stage.backward.code[static_cast<size_t>(event.instr)];
    EXPECT_EQ(last.unit, event.unit);
    EXPECT_EQ(stage.buffers[static_cast<size_t>(last.out.back())].kind, ir::ValueKind::gradient);
  }
}

TEST(UnitEvents, of_a_tied_head_concern_the_embedding) {
  config::ModelConfig model = small_llama();
  model.tied_embeddings = true;
  const ir::Graph graph = training_graph(model);
  const ir::StageCode last = stage_of(graph, 1, Recompute::none, 2, 4);
  EXPECT_TRUE(std::any_of(last.backward.awaits.begin(), last.backward.awaits.end(),
                          [](const ir::UnitEvent& e) { return e.unit == 0; }));
  EXPECT_TRUE(std::any_of(last.backward.releases.begin(), last.backward.releases.end(),
                          [](const ir::UnitEvent& e) { return e.unit == 0; }));
}

}  // namespace
}  // namespace switchyard::compiler
