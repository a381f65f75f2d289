#include "compiler/overlap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/compile.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using config::Recompute;

ir::StageCode stage_of(const ir::Graph& graph, config::Strategy strategy, const layout::StageMesh& mesh, bool overlap) {
  return compile_stage(graph, strategy, mesh, 0, graph.units(), {}, {.overlap = overlap});
}
ir::StageCode stage_of(const ir::Graph& graph, config::Strategy strategy, int tp, bool overlap) {
  return stage_of(graph, std::move(strategy), tensor_mesh(tp), overlap);
}

// Runs a segment on what is made and what is on its way: what is read too early, dropped under a collective, or never
// let go of is an error.
class Walk {
 public:
  explicit Walk(const ir::StageCode& stage) : stage_(stage) {
    for (const int b : {stage.act_in, stage.grad_in})
      if (b >= 0) made_.insert(b);
  }

  void run(const ir::Segment& segment) {
    std::set<size_t> started;
    const auto start = [&](size_t i) {
      const ir::Instr& instr = segment.code[i];
      started.insert(i);
      for (const int b : instr.in) {
        const bool coming = instr.queue == ir::Queue::collective && comes_by(segment, started, b);
        EXPECT_TRUE(!activation(b) || coming || made_.contains(b))
            << "buffer " << b << " isn't there for instruction " << i;
      }
    };
    const auto end = [&](size_t i) {
      const ir::Instr& instr = segment.code[i];
      EXPECT_EQ(started.erase(i), 1u) << "instruction " << i << " ends before it starts, or twice";
      for (const size_t other : started)
        EXPECT_TRUE(other > i || segment.code[other].queue != instr.queue) << "collectives end in their order";
      for (const int b : instr.out)
        if (activation(b)) made_.insert(b);
      for (const int b : instr.drop) {
        EXPECT_EQ(made_.erase(b), 1u) << "buffer " << b << " is dropped twice";
        for (const size_t other : started)
          EXPECT_FALSE(uses(segment.code[other], b)) << "buffer " << b << " is dropped under instruction " << other;
      }
    };
    ir::walk(segment, start, end);
    EXPECT_TRUE(started.empty()) << "nobody waits";
  }
  const std::set<int>& made() const { return made_; }

 private:
  bool activation(int b) const { return stage_.buffers[static_cast<size_t>(b)].kind == ir::ValueKind::activation; }
  static bool uses(const ir::Instr& instr, int b) {
    return std::ranges::count(instr.in, b) + std::ranges::count(instr.out, b) > 0;
  }
  // Collectives run in their order, so that one may read what another makes.
  static bool comes_by(const ir::Segment& segment, const std::set<size_t>& started, int b) {
    return std::ranges::any_of(started, [&](size_t i) {
      return segment.code[i].queue == ir::Queue::collective && std::ranges::count(segment.code[i].out, b) > 0;
    });
  }

  const ir::StageCode& stage_;
  std::set<int> made_;
};

// Instructions by what they write, and operators in their order.
std::map<std::vector<int>, std::vector<int>> reads_of(const ir::Segment& segment) {
  std::map<std::vector<int>, std::vector<int>> reads;
  for (const ir::Instr& instr : segment.code) reads[instr.out] = instr.in;
  return reads;
}
std::vector<std::vector<int>> operators_of(const ir::StageCode& stage) {
  std::vector<std::vector<int>> list;
  for (const ir::Segment* segment : {&stage.forward, &stage.backward, &stage.weight})
    for (const ir::Instr& instr : segment->code)
      if (instr.op) list.push_back(instr.out);
  return list;
}

// Products that run between a collective's start and its end.
std::map<size_t, int> products_beside(const ir::StageCode& stage, const ir::Segment& segment) {
  std::map<size_t, int> count;
  std::set<size_t> started;
  const auto start = [&](size_t i) {
    const ir::Instr& instr = segment.code[i];
    if (instr.queue == ir::Queue::collective) {
      started.insert(i);
      count[i] = 0;
    } else if (const ir::Cost cost = ir::local_cost(stage, instr, 0); cost.narrowest > 0 || cost.flops_per_pair > 0) {
      for (const size_t collective : started) ++count[collective];
    }
  };
  ir::walk(segment, start, [&](size_t i) { started.erase(i); });
  return count;
}

std::vector<layout::StageMesh> meshes() {
  using layout::StageAxis;
  return {tensor_mesh(2),
          tensor_mesh(4),
          {{StageAxis::inner, 2}},
          {{StageAxis::outer, 2}, {StageAxis::inner, 2}},
          {{StageAxis::ulysses, 2}, {StageAxis::inner, 2}}};
}

TEST(Overlap, changes_no_operators_order_and_waits_for_what_is_read) {
  for (config::ModelConfig model : {small_llama(), small_gpt2()})
    for (const layout::StageMesh& mesh : meshes())
      for (const Recompute recompute : {Recompute::none, Recompute::gathers, Recompute::selective, Recompute::full})
        for (const bool sequence_parallel : {true, false})
          for (const auto schedule : {config::ScheduleKind::one_f_one_b, config::ScheduleKind::zero_bubble})
            for (const bool overlap : {true, false}) {
              SCOPED_TRACE(fmt::format(
                  "outer {} inner {} ulysses {} recompute {} sequence parallel {} schedule {} "
                  "overlap {}",
                  mesh[layout::StageAxis::outer], mesh[layout::StageAxis::inner], mesh[layout::StageAxis::ulysses],
                  static_cast<int>(recompute), sequence_parallel, static_cast<int>(schedule), overlap));
              if (model.heads % mesh.positions() != 0) continue;
              model.layers = 3;
              const ir::Graph graph = training_graph(model);
              config::Strategy strategy = stage_strategy("test");
              strategy.recompute = recompute;
              strategy.sequence_parallel = sequence_parallel;
              strategy.schedule = schedule;
              const ir::StageCode stage = stage_of(graph, strategy, mesh, overlap),
                                  other = stage_of(graph, strategy, mesh, !overlap);
              EXPECT_EQ(operators_of(stage), operators_of(other));
              EXPECT_EQ(reads_of(stage.backward), reads_of(other.backward));
              Walk walk(stage);
              for (const ir::Segment* segment : {&stage.forward, &stage.backward, &stage.weight}) walk.run(*segment);
              for (const int b : walk.made())
                EXPECT_TRUE(b == stage.loss || std::ranges::count(stage.stash, b) == 0)
                    << "buffer " << b << " is never dropped";
            }
}

// A layer has six: the sums of both inputs' gradients run under the products of their weights' gradients, and what
// those read is gathered again under the product before. What a product reads that comes next in the chain can't be
// hidden.
TEST(Overlap, hides_the_sums_of_gradients_under_products_of_their_weights) {
  config::ModelConfig model = small_llama();
  model.layers = 3;
  const ir::Graph graph = training_graph(model);
  for (const bool sequence_parallel : {true, false}) {
    config::Strategy strategy = stage_strategy("test");
    strategy.sequence_parallel = sequence_parallel;
    const ir::StageCode stage = stage_of(graph, strategy, 2, true);
    std::map<int, int> sums, gathered, all;
    for (const auto& [i, products] : products_beside(stage, stage.backward)) {
      const ir::Instr& instr = stage.backward.code[i];
      const ir::Buffer& from = stage.buffers[static_cast<size_t>(instr.in[0])];
      ++all[instr.unit];
      if (!from.layout.partial.empty())
        sums[instr.unit] += products > 0;
      else if (stage.buffers[static_cast<size_t>(instr.out[0])].name.ends_with(" again"))
        gathered[instr.unit] += products > 0;
      if (products == 0) continue;
      const ir::Instr& ahead = stage.backward.code[i - 1];
      EXPECT_TRUE(from.layout.partial.empty() || ahead.out == instr.in)
          << "a sum starts right behind the product that makes its input";
    }
    for (const int unit : {1, 2, 3}) {
      EXPECT_EQ(all[unit], sequence_parallel ? 6 : 2) << "layer " << unit;
      EXPECT_EQ(sums[unit], 2) << "layer " << unit;
      EXPECT_EQ(gathered[unit], sequence_parallel ? 2 : 0) << "layer " << unit;
    }
  }
}

// The sum over inner of an input's gradient comes before what its weight's gradient gathers again, but starts later.
TEST(Overlap, hides_the_sums_of_gradients_over_inner_and_outer) {
  config::ModelConfig model = small_llama();
  model.layers = 3;
  model.kv_heads = model.heads;  // no rank holds copies, whose gradients would take further sums
  const ir::Graph graph = training_graph(model);
  for (const bool sequence_parallel : {true, false}) {
    config::Strategy strategy = stage_strategy("test");
    strategy.sequence_parallel = sequence_parallel;
    const layout::StageMesh mesh{{layout::StageAxis::outer, 2}, {layout::StageAxis::inner, 2}};
    const ir::StageCode stage = stage_of(graph, strategy, mesh, true);
    std::map<int, int> sums, hidden_sums, gathered, hidden_gathered;
    for (const auto& [i, products] : products_beside(stage, stage.backward)) {
      const ir::Instr& instr = stage.backward.code[i];
      const bool sum = !stage.buffers[static_cast<size_t>(instr.in[0])].layout.partial.empty();
      if (!sum && !stage.buffers[static_cast<size_t>(instr.out[0])].name.ends_with(" again")) continue;
      ++(sum ? sums : gathered)[instr.unit];
      (sum ? hidden_sums : hidden_gathered)[instr.unit] += products > 0;
    }
    for (const int unit : {1, 2, 3}) {
      EXPECT_EQ(sums[unit], 4) << "of the inputs of q k v, o, gate up and down";
      EXPECT_EQ(hidden_sums[unit], 4) << "layer " << unit;
      EXPECT_EQ(gathered[unit], sequence_parallel ? 4 : 2) << "layer " << unit;
      EXPECT_EQ(hidden_gathered[unit], gathered[unit]) << "layer " << unit;
    }
  }
}

// Gradients of values leave attention first, those of keys and queries are rotated meanwhile.
TEST(Overlap, gathers_gradients_in_the_order_in_which_they_are_made) {
  const ir::Graph graph = training_graph(small_llama());
  const ir::StageCode stage = stage_of(graph, stage_strategy("test"), {{layout::StageAxis::inner, 2}}, true);
  const std::vector<ir::Instr>& code = stage.backward.code;
  const auto attention =
      std::ranges::find_if(code, [](const ir::Instr& instr) { return instr.op && instr.op->name() == "attention_dx"; });
  ASSERT_NE(attention, code.end());
  std::vector<std::string> names;
  for (auto instr = attention; names.size() < 6; ++instr) names.push_back(instr->op ? instr->op->name() : "reshard");
  EXPECT_THAT(names, testing::ElementsAre("attention_dx", "reshard", "rope", "reshard", "rope", "reshard"));
}

TEST(Overlap, hides_nothing_without_it_and_drops_as_soon_as_may_be) {
  const ir::Graph graph = training_graph(small_llama());
  const ir::StageCode stage = stage_of(graph, stage_strategy("test"), 2, false);
  for (const ir::Segment* segment : {&stage.forward, &stage.backward}) {
    for (size_t i = 0; i < segment->code.size(); ++i) {
      if (segment->code[i].queue != ir::Queue::collective) continue;
      EXPECT_EQ(i + 1 < segment->code.size() ? segment->code[i + 1].after : segment->after,
                std::vector<int>{static_cast<int>(i)});
    }
  }
}

TEST(Overlap, of_one_rank_is_nothing) {
  const ir::Graph graph = training_graph(small_llama());
  EXPECT_EQ(ir::to_string(graph, stage_of(graph, stage_strategy("test"), 1, true)),
            ir::to_string(graph, stage_of(graph, stage_strategy("test"), 1, false)));
}

}  // namespace
}  // namespace switchyard::compiler
