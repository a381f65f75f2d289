#include "runtime/working_parameters.hpp"

#include "parameters_by_name.hpp"
#include "runtime/store.hpp"

namespace switchyard::runtime {
namespace {

using testing::HasSubstr;

TEST(WorkingParameters, AreViewsOfHomesComputeCopyWhereTheBoxesAreEqual) {
  const compiler::Plans plans = tiny_plans({"1,1,1"}, 1);
  Store store(plans, 0, at::kCPU);
  store.home.initialize(tiny_values(plans.graph()));
  for (int unit = 0; unit < static_cast<int>(plans.units().size()); ++unit) {
    store.working.allocate({0, 0}, {}, unit);
    for (const HomeShard& shard : store.home.units()[static_cast<size_t>(unit)].shards)
      EXPECT_EQ(store.working.param({0, 0}, shard.param).data_ptr(), shard.compute_copy.data_ptr());
  }
}

TEST(WorkingParameters, APhaseWithTheBoxesOfThePreviousOneSharesItsTensors) {
  const compiler::Plans plans = tiny_plans({"2,1,1", "2,1,1"}, 2);
  Store store(plans, 0, at::kCPU);
  store.home.initialize(tiny_values(plans.graph()));
  const int p = find(plans.graph(), "layers.0.mlp.down_proj"), unit = plans.graph().param(p).unit;
  store.working.allocate({0, 0}, {}, unit);
  store.working.allocate({1, 1}, {0, 0}, unit);
  EXPECT_EQ(store.working.param({0, 0}, p).data_ptr(), store.working.param({1, 1}, p).data_ptr());
  const at::Tensor kept = store.working.param({1, 1}, p);
  store.working.drop({0, unit, false});
  EXPECT_THAT(message([&] { store.working.param({0, 0}, p); }), HasSubstr("rank 0: phase 0 has no parameters of unit"));
  EXPECT_EQ(store.working.param({1, 1}, p).data_ptr(), kept.data_ptr());
}

TEST(WorkingParameters, PrepareCopiesThePiecesThatTheRankHas) {
  const compiler::Plans plans = tiny_plans({"2,1,1"}, 2);
  for (int rank = 0; rank < 2; ++rank) {
    Store store(plans, rank, at::kCPU);
    store.home.initialize(tiny_values(plans.graph()));
    const int p = find(plans.graph(), "layers.1.mlp.down_proj"), unit = plans.graph().param(p).unit;
    store.working.allocate({0, 0}, {}, unit);
    const at::Tensor param = store.working.param({0, 0}, p);
    size_t pieces = 0;
    for (const HomeShard& shard : store.home.units()[static_cast<size_t>(unit)].shards)
      if (shard.param == p) {
        ++pieces;
        EXPECT_LT(shard.box.elements(), param.numel());
        EXPECT_NE(param.data_ptr(), shard.compute_copy.data_ptr());
        EXPECT_TRUE(view_of(param, *store.holdings.used(0, p), shard.box).equal(shard.compute_copy));
      }
    EXPECT_EQ(pieces, 1u);
  }
}

TEST(WorkingParameters, GradientsAreZeroAtFirstAndThoseOfAGroupAdjoin) {
  const compiler::Plans plans = tiny_plans({"1,2,1"}, 2);
  Store store(plans, 1, at::kCPU);
  const PhaseKey phase{0, 0};
  const int q = find(plans.graph(), "layers.0.self_attn.q_proj"), k = find(plans.graph(), "layers.0.self_attn.k_proj"),
            v = find(plans.graph(), "layers.0.self_attn.v_proj");
  EXPECT_FALSE(store.working.has_gradient(phase, k));
  const at::Tensor dk = store.working.gradient(phase, k), dq = store.working.gradient(phase, q),
                   dv = store.working.gradient(phase, v);
  EXPECT_TRUE(store.working.has_gradient(phase, q));
  EXPECT_EQ(dq.abs().max().item<double>() + dk.abs().max().item<double>() + dv.abs().max().item<double>(), 0);
  EXPECT_EQ(dq.size(0), 16);
  EXPECT_EQ(dk.size(0), 8);
  EXPECT_EQ(dk.data_ptr<double>(), dq.data_ptr<double>() + dq.numel());
  EXPECT_EQ(dv.data_ptr<double>(), dk.data_ptr<double>() + dk.numel());
  dk.fill_(3);
  EXPECT_EQ(store.working.gradient(phase, k).min().item<double>(), 3);
  store.working.drop({phase.phase, plans.graph().param(k).unit, true});
  EXPECT_FALSE(store.working.has_gradient(phase, k));
  EXPECT_EQ(store.working.gradient(phase, k).max().item<double>(), 0);
}

TEST(WorkingParameters, SourcesAreThePreviousPhaseThenHomeThenThePhaseItself) {
  const compiler::Plans plans = tiny_plans({"1,1,1", "1,2,1"}, 2, 1);
  Store store(plans, 0, at::kCPU);
  store.home.initialize(tiny_values(plans.graph()));
  const int p = find(plans.graph(), "layers.0.mlp.down_proj"), unit = plans.graph().param(p).unit;
  const layout::Box half = *store.holdings.used(1, p);
  EXPECT_EQ(store.working.source({1, 0}, {}, p, half).data_ptr(), store.home.shard(p, half).compute_copy.data_ptr());
  store.working.allocate({0, 0}, {}, unit);
  EXPECT_EQ(store.working.source({1, 1}, {0, 0}, p, half).data_ptr(), store.working.param({0, 0}, p).data_ptr());
  const layout::Box whole = *store.holdings.used(0, p);
  EXPECT_EQ(store.working.source({0, 0}, {}, p, whole).data_ptr(), store.working.param({0, 0}, p).data_ptr());
  EXPECT_THAT(message([&] { store.working.source({1, 1}, {}, p, whole); }), HasSubstr("rank 0 has no "));
}

TEST(WorkingParameters, AreNotThereBeforeTheyArePreparedAndAfterTheyAreDropped) {
  const compiler::Plans plans = tiny_plans({"1,1,1"}, 1);
  Store store(plans, 0, at::kCPU);
  store.home.initialize(tiny_values(plans.graph()));
  const int p = find(plans.graph(), "layers.0.mlp.down_proj"), unit = plans.graph().param(p).unit;
  EXPECT_THAT(message([&] {
                store.working.param({0, 0}, p);
              }),
              HasSubstr("rank 0: phase 0 has no parameters of unit 1"));
  store.working.allocate({0, 0}, {}, unit);
  EXPECT_TRUE(store.working.param({0, 0}, p).equal(tiny_value(plans.graph(), p)));
  store.working.drop({0, unit, false});
  EXPECT_THAT(message([&] {
                store.working.param({0, 0}, p);
              }),
              HasSubstr("rank 0: phase 0 has no parameters of unit 1"));
}

}  // namespace
}  // namespace switchyard::runtime
