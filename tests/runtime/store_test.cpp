#include "runtime/store.hpp"

#include <gmock/gmock.h>

#include "base/errors.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using testing::HasSubstr;

int find(const ir::Graph& graph, const std::string& name) {
  for (size_t p = 0; p < graph.params().size(); ++p)
    if (graph.param(static_cast<int>(p)).name.find(name) != std::string::npos) return static_cast<int>(p);
  ADD_FAILURE() << "no parameter " << name;
  return 0;
}

template <class Call>
std::string message(Call call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

at::Tensor expected_box(const ir::Graph& graph, int param, const layout::Box& box) {
  return view_of(tiny_value(graph, param), layout::whole(graph.param(param).shape.size), box);
}

TEST(Store, HomeHoldsEveryElementOnceOverTheRanks) {
  const compiler::Plans plans = tiny_plans({"1,2,1", "2,1,1"}, 2);
  std::vector<at::Tensor> count;
  for (const ir::Param& param : plans.graph().params()) count.push_back(zeros(param.shape.size, DType::f64, at::kCPU));
  for (int rank = 0; rank < 2; ++rank) {
    Store store(plans, rank, at::kCPU);
    store.initialize(tiny_values(plans.graph()));
    for (const HomeUnit& unit : store.home())
      for (const HomeShard& shard : unit.shards) {
        view_of(count[static_cast<size_t>(shard.param)], layout::whole(plans.graph().param(shard.param).shape.size), shard.box).add_(1);
        EXPECT_TRUE(shard.master.equal(expected_box(plans.graph(), shard.param, shard.box)));
        EXPECT_TRUE(shard.image.is_same(shard.master) || shard.image.equal(shard.master));
      }
  }
  for (const at::Tensor& c : count) EXPECT_EQ(c.sub(1).abs().max().item<double>(), 0);
}

TEST(Store, ReplicasOfHomeCountEveryGradientOnce) {
  const compiler::Plans plans = tiny_plans({"2,2,1"}, 4, 0, kFp64, 1, 0);
  double squares = 0, expected = 0;
  for (int p = 0; p < static_cast<int>(plans.graph().params().size()); ++p) expected += tiny_value(plans.graph(), p).square().sum().item<double>();
  for (int rank = 0; rank < 4; ++rank) {
    Store store(plans, rank, at::kCPU);
    store.initialize(tiny_values(plans.graph()));
    for (HomeUnit& unit : store.home())
      for (HomeShard& shard : unit.shards) {
        EXPECT_EQ(shard.box, *store.holdings().used(0, shard.param)) << "a whole copy";
        shard.grad.copy_(shard.master);
      }
    squares += store.gradient_squares();
  }
  EXPECT_NEAR(squares, expected, 1e-12 * expected);
}

TEST(Store, ParametersAreViewsOfHomesImageWhereTheBoxesAreEqual) {
  const compiler::Plans plans = tiny_plans({"1,1,1"}, 1);
  Store store(plans, 0, at::kCPU);
  store.initialize(tiny_values(plans.graph()));
  for (int unit = 0; unit < static_cast<int>(plans.units().size()); ++unit) {
    store.prepare({0, 0}, {}, unit);
    for (const HomeShard& shard : store.home()[static_cast<size_t>(unit)].shards)
      EXPECT_EQ(store.param({0, 0}, shard.param).data_ptr(), shard.image.data_ptr());
  }
}

TEST(Store, APhaseWithTheBoxesOfThePreviousOneSharesItsTensors) {
  const compiler::Plans plans = tiny_plans({"2,1,1", "2,1,1"}, 2);
  Store store(plans, 0, at::kCPU);
  store.initialize(tiny_values(plans.graph()));
  const int p = find(plans.graph(), "layers.0.mlp.down_proj"), unit = plans.graph().param(p).unit;
  store.prepare({0, 0}, {}, unit);
  store.prepare({1, 1}, {0, 0}, unit);
  EXPECT_EQ(store.param({0, 0}, p).data_ptr(), store.param({1, 1}, p).data_ptr());
  const at::Tensor kept = store.param({1, 1}, p);
  store.drop_bank({0, 0}, unit);
  EXPECT_THAT(message([&] { store.param({0, 0}, p); }), HasSubstr("no bank of phase 0 unit"));
  EXPECT_EQ(store.param({1, 1}, p).data_ptr(), kept.data_ptr());
}

TEST(Store, PrepareCopiesThePiecesThatTheRankHas) {
  const compiler::Plans plans = tiny_plans({"2,1,1"}, 2);
  for (int rank = 0; rank < 2; ++rank) {
    Store store(plans, rank, at::kCPU);
    store.initialize(tiny_values(plans.graph()));
    const int p = find(plans.graph(), "layers.1.mlp.down_proj"), unit = plans.graph().param(p).unit;
    store.prepare({0, 0}, {}, unit);
    const at::Tensor param = store.param({0, 0}, p);
    size_t pieces = 0;
    for (const HomeShard& shard : store.home()[static_cast<size_t>(unit)].shards)
      if (shard.param == p) {
        ++pieces;
        EXPECT_LT(shard.box.elements(), param.numel());
        EXPECT_NE(param.data_ptr(), shard.image.data_ptr());
        EXPECT_TRUE(view_of(param, *store.holdings().used(0, p), shard.box).equal(shard.image));
      }
    EXPECT_EQ(pieces, 1u);
  }
}

TEST(Store, GradientsAreZeroAtFirstAndThoseOfAGroupAdjoin) {
  const compiler::Plans plans = tiny_plans({"1,2,1"}, 2);
  Store store(plans, 1, at::kCPU);
  const Store::PhaseKey phase{0, 0};
  const int q = find(plans.graph(), "layers.0.self_attn.q_proj"), k = find(plans.graph(), "layers.0.self_attn.k_proj"),
            v = find(plans.graph(), "layers.0.self_attn.v_proj");
  EXPECT_FALSE(store.has_gradient(phase, k));
  const at::Tensor dk = store.gradient(phase, k), dq = store.gradient(phase, q), dv = store.gradient(phase, v);
  EXPECT_TRUE(store.has_gradient(phase, q));
  EXPECT_EQ(dq.abs().max().item<double>() + dk.abs().max().item<double>() + dv.abs().max().item<double>(), 0);
  EXPECT_EQ(dq.size(0), 16);
  EXPECT_EQ(dk.size(0), 8);
  EXPECT_EQ(dk.data_ptr<double>(), dq.data_ptr<double>() + dq.numel());
  EXPECT_EQ(dv.data_ptr<double>(), dk.data_ptr<double>() + dk.numel());
  dk.fill_(3);
  EXPECT_EQ(store.gradient(phase, k).min().item<double>(), 3);
  store.drop_gradients(phase, plans.graph().param(k).unit);
  EXPECT_FALSE(store.has_gradient(phase, k));
  EXPECT_EQ(store.gradient(phase, k).max().item<double>(), 0);
}

TEST(Store, UpdateIsAdamWWithDecayOnMatricesOnlyAndClearsGradients) {
  const compiler::Plans plans = tiny_plans({"1,1,1"}, 1);
  Store store(plans, 0, at::kCPU);
  store.initialize(tiny_values(plans.graph()));
  double squares = 0;
  std::vector<std::vector<at::Tensor>> expected;
  for (HomeUnit& unit : store.home()) {
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
  EXPECT_NEAR(store.gradient_squares(), squares, 1e-10 * squares);
  for (int unit = 0; unit < static_cast<int>(expected.size()); ++unit) store.update(unit, {{0.01, 0.9, 0.95, 1e-8, 0.1, 1}, 0.5});
  for (size_t u = 0; u < expected.size(); ++u)
    for (size_t s = 0; s < expected[u].size(); ++s) EXPECT_LT(gap(store.home()[u].shards[s].master, expected[u][s]), 1e-12);
  EXPECT_EQ(store.gradient_squares(), 0);
}

TEST(Store, TheImageInLowerPrecisionFollowsTheMaster) {
  const compiler::Plans plans = tiny_plans({"1,1,1"}, 1, 0, {DType::bf16, DType::f32});
  Store store(plans, 0, at::kCPU);
  store.initialize([](int, const layout::Box&, at::Tensor values) { values.fill_(0.3); });
  HomeUnit& unit = store.home()[1];
  EXPECT_EQ(unit.shards[0].image.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(unit.shards[0].image.equal(unit.shards[0].master.to(at::kBFloat16)));
  unit.grad.fill_(1);
  store.update(1, {{0.1, 0.9, 0.95, 1e-8, 0, 1}, 1});
  EXPECT_NEAR(unit.shards[0].master.max().item<double>(), 0.2, 1e-6);
  EXPECT_TRUE(unit.shards[0].image.equal(unit.shards[0].master.to(at::kBFloat16)));
}

TEST(Store, SourcesAreThePreviousPhaseThenHomeThenThePhaseItself) {
  const compiler::Plans plans = tiny_plans({"1,1,1", "1,2,1"}, 2, 1);
  Store store(plans, 0, at::kCPU);
  store.initialize(tiny_values(plans.graph()));
  const int p = find(plans.graph(), "layers.0.mlp.down_proj"), unit = plans.graph().param(p).unit;
  const layout::Box half = *store.holdings().used(1, p);
  EXPECT_EQ(store.source({1, 0}, {}, p, half).data_ptr(), store.home_shard(p, half).image.data_ptr());
  store.prepare({0, 0}, {}, unit);
  EXPECT_EQ(store.source({1, 1}, {0, 0}, p, half).data_ptr(), store.param({0, 0}, p).data_ptr());
  const layout::Box whole = *store.holdings().used(0, p);
  EXPECT_EQ(store.source({0, 0}, {}, p, whole).data_ptr(), store.param({0, 0}, p).data_ptr());
  EXPECT_THAT(message([&] { store.source({1, 1}, {}, p, whole); }), HasSubstr("rank 0 has no "));
  EXPECT_THAT(message([&] { store.home_shard(p, whole); }), HasSubstr("rank 0 is no home of model.layers.0.mlp.down_proj.weight"));
}

}  // namespace
}  // namespace switchyard::runtime
