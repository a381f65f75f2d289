#include "runtime/home.hpp"

#include "parameters_by_name.hpp"
#include "runtime/store.hpp"

namespace switchyard::runtime {
namespace {

double gradient_squares(const Home& home) {
  at::Tensor total = zeros({1}, DType::f64, at::kCPU);
  home.add_gradient_squares(total);
  return total.item<double>();
}

using testing::HasSubstr;

at::Tensor expected_box(const ir::Graph& graph, int param, const layout::Box& box) {
  return view_of(tiny_value(graph, param), layout::whole(graph.param(param).shape.size), box);
}

TEST(Home, HoldsEveryElementOnceOverTheRanks) {
  const compiler::Plans plans = tiny_plans({"1,2,1", "2,1,1"}, 2);
  std::vector<at::Tensor> count;
  for (const ir::Param& param : plans.graph().params()) count.push_back(zeros(param.shape.size, DType::f64, at::kCPU));
  for (int rank = 0; rank < 2; ++rank) {
    Store store(plans, rank, at::kCPU);
    store.home.initialize(tiny_values(plans.graph()));
    for (const HomeUnit& unit : store.home.units())
      for (const HomeShard& shard : unit.shards) {
        view_of(count[static_cast<size_t>(shard.param)], layout::whole(plans.graph().param(shard.param).shape.size),
                shard.box)
            .add_(1);
        EXPECT_TRUE(shard.master.equal(expected_box(plans.graph(), shard.param, shard.box)));
        EXPECT_TRUE(shard.compute_copy.is_same(shard.master) || shard.compute_copy.equal(shard.master));
      }
  }
  for (const at::Tensor& c : count) EXPECT_EQ(c.sub(1).abs().max().item<double>(), 0);
}

TEST(Home, ReplicasCountEveryGradientOnce) {
  const compiler::Plans plans = tiny_plans({"2,2,1"}, 4, 0, kFp64, 1, 0);
  double squares = 0, expected = 0;
  for (int p = 0; p < static_cast<int>(plans.graph().params().size()); ++p)
    expected += tiny_value(plans.graph(), p).square().sum().item<double>();
  for (int rank = 0; rank < 4; ++rank) {
    Store store(plans, rank, at::kCPU);
    store.home.initialize(tiny_values(plans.graph()));
    for (HomeUnit& unit : store.home.units())
      for (HomeShard& shard : unit.shards) {
        EXPECT_EQ(shard.box, *store.holdings.used(0, shard.param)) << "a whole copy";
        shard.grad.copy_(shard.master);
      }
    squares += gradient_squares(store.home);
  }
  EXPECT_NEAR(squares, expected, 1e-12 * expected);
}

TEST(Home, UpdateIsAdamWWithDecayOnMatricesOnlyAndClearsGradients) {
  const compiler::Plans plans = tiny_plans({"1,1,1"}, 1);
  Store store(plans, 0, at::kCPU);
  store.home.initialize(tiny_values(plans.graph()));
  double squares = 0;
  std::vector<std::vector<at::Tensor>> expected;
  for (HomeUnit& unit : store.home.units()) {
    auto& list = expected.emplace_back();
    for (HomeShard& shard : unit.shards) {
      shard.grad.copy_(wave({shard.grad.sizes().begin(), shard.grad.sizes().end()}, shard.param));
      squares += shard.grad.square().sum().item<double>();
      at::Tensor p = shard.master.clone(), m, v;
      const double decay = shard.box.dims < 2 ? 0 : 0.1;
      const at::Tensor g = shard.grad.mul(0.5);
      p = p.mul(1 - 0.01 * decay);
      m = g.mul(1 - 0.9);
      v = g.square().mul(1 - 0.95);
      list.push_back(p.sub(m.div(1 - 0.9).div(v.div(1 - 0.95).sqrt().add(1e-8)).mul(0.01)));
    }
  }
  EXPECT_NEAR(gradient_squares(store.home), squares, 1e-10 * squares);
  for (int unit = 0; unit < static_cast<int>(expected.size()); ++unit)
    store.home.update(unit, {{0.01, 0.9, 0.95, 1e-8, 0.1, 1}, 0.5});
  for (size_t u = 0; u < expected.size(); ++u)
    for (size_t s = 0; s < expected[u].size(); ++s)
      EXPECT_LT(gap(store.home.units()[u].shards[s].master, expected[u][s]), 1e-12);
  EXPECT_EQ(gradient_squares(store.home), 0);
}

TEST(Home, TheComputeCopyInLowerPrecisionFollowsTheMaster) {
  const compiler::Plans plans = tiny_plans({"1,1,1"}, 1, 0, {DType::bf16, DType::f32});
  Store store(plans, 0, at::kCPU);
  store.home.initialize([](int, const layout::Box&, at::Tensor values) { values.fill_(0.3); });
  HomeUnit& unit = store.home.units()[1];
  EXPECT_EQ(unit.shards[0].compute_copy.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(unit.shards[0].compute_copy.equal(unit.shards[0].master.to(at::kBFloat16)));
  unit.grad.fill_(1);
  store.home.update(1, {{0.1, 0.9, 0.95, 1e-8, 0, 1}, 1});
  EXPECT_NEAR(unit.shards[0].master.max().item<double>(), 0.2, 1e-6);
  EXPECT_TRUE(unit.shards[0].compute_copy.equal(unit.shards[0].master.to(at::kBFloat16)));
}

TEST(Home, FindsTheShardThatHasABox) {
  const compiler::Plans plans = tiny_plans({"1,1,1", "1,2,1"}, 2, 1);
  const Store store(plans, 0, at::kCPU);
  const int p = find(plans.graph(), "layers.0.mlp.down_proj");
  const layout::Box half = *store.holdings.used(1, p), whole = *store.holdings.used(0, p);
  EXPECT_EQ(store.home.find(p, half), &store.home.shard(p, half));
  EXPECT_TRUE(store.home.shard(p, half).box.contains(half));
  EXPECT_EQ(store.home.find(p, whole), nullptr);
  EXPECT_THAT(message([&] { store.home.shard(p, whole); }),
              HasSubstr("rank 0 has no home shard of model.layers.0.mlp.down_proj.weight"));
}

}  // namespace
}  // namespace switchyard::runtime
