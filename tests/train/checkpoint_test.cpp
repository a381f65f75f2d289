#include "train/checkpoint.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "../comm/rank_threads.hpp"
#include "../files/scratch.hpp"
#include "base/errors.hpp"
#include "compiler/job_plans.hpp"
#include "runtime/store.hpp"
#include "runtime/tensors.hpp"
#include "small_run.hpp"
#include "train/weights.hpp"

namespace switchyard::train {
namespace {

// Master is drawn with seed 5; the moments are given multiples of it, so that all three differ.
void fill(const compiler::Plans& plans, runtime::Store& store) {
  store.home.initialize(random_weights(plans.graph(), 5));
  for (runtime::HomeUnit& unit : store.home.units()) {
    unit.m.copy_(unit.master.mul(2));
    unit.v.copy_(unit.master.mul(-3));
  }
}

std::vector<int> all_ranks(const config::Job& job) {
  std::vector<int> ranks(static_cast<size_t>(job.run.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// saved: the model whose parameters are written, if it isn't the job's.
void save(const config::Job& job, const TrainState& state, const config::Job* saved = nullptr) {
  const auto ends = comm::run_ranks(job.run.ranks, {}, [&](comm::Fabric& fabric) {
    const compiler::Plans plans = compiler::plans_of(saved ? *saved : job, fabric.cluster());
    runtime::Store store(plans, fabric.rank(), at::kCPU);
    fill(plans, store);
    comm::JointWork together(fabric, {7, all_ranks(job)}, comm::sign_interval(comm::FabricOptions{}.timeout));
    save_checkpoint(job, {{"config.json", "{}"}}, plans, state_part(plans, store, fabric.rank()), fabric.rank(),
                    together, state, 1);
  });
  EXPECT_EQ(ends, std::vector<std::string>(static_cast<size_t>(job.run.ranks)));
}

class Checkpoint : public testing::Test {
 protected:
  config::Job job(const std::vector<std::string>& sets = {}) const {
    return small_job("unused", (scratch_ / "run").string(), sets);
  }
  /// What save() wrote, whatever ranks and strategies load it.
  void expect_loaded(const config::Job& other) const {
    const auto ends = comm::run_ranks(other.run.ranks, {}, [&](comm::Fabric& fabric) {
      const compiler::Plans plans = compiler::plans_of(other, fabric.cluster());
      runtime::Store loaded(plans, fabric.rank(), at::kCPU), expected(plans, fabric.rank(), at::kCPU);
      fill(plans, expected);
      const TrainState state = load_checkpoint((scratch_ / "run").string(), plans, loaded, other);
      EXPECT_EQ(state.step, 6);
      EXPECT_EQ(state.updates, 5);
      EXPECT_EQ(state.tokens, 4321);
      EXPECT_EQ(state.decay_end, 99);
      EXPECT_EQ(state.schedule, "cosine");
      EXPECT_EQ(state.places, state_.places);
      size_t shards = 0;
      for (size_t u = 0; u < loaded.home.units().size(); ++u)
        for (size_t s = 0; s < loaded.home.units()[u].shards.size(); ++s, ++shards) {
          const runtime::HomeShard &a = loaded.home.units()[u].shards[s], &b = expected.home.units()[u].shards[s];
          EXPECT_TRUE(a.master.equal(b.master));
          EXPECT_TRUE(a.m.equal(b.m));
          EXPECT_TRUE(a.v.equal(b.v));
          EXPECT_TRUE(a.compute_copy.equal(b.compute_copy));
        }
      EXPECT_GT(shards, 0u);
    });
    EXPECT_EQ(ends, std::vector<std::string>(static_cast<size_t>(other.run.ranks)));
  }

  const TrainState state_{.step = 6,
                          .updates = 5,
                          .tokens = 4321,
                          .places = {{"code", 1, 7, 3, 1000.0 / 3, 90, 5000}, {"web", 0, 2, 0, 0.1, 8, 99}},
                          .decay_end = 99,
                          .schedule = "cosine"};
  Scratch scratch_;
};

TEST_F(Checkpoint, IsTheSameBitsUnderOtherStrategiesAndRanks) {
  save(job(), state_);
  expect_loaded(job({"run.ranks=4", "bucket.0.strategy=\"1,2,2\"", "bucket.1.strategy=\"4,1,1\"", "run.home=1"}));
}

// What all ranks keep, by parameter: residuals, and home's gradients of the elements that a rank owns.
struct Owed {
  std::vector<at::Tensor> kept, gradients;
};

Owed owed_of(const compiler::Plans& plans, const std::vector<std::unique_ptr<runtime::Store>>& stores) {
  Owed owed;
  for (const ir::Param& param : plans.graph().params())
    for (std::vector<at::Tensor>* all : {&owed.kept, &owed.gradients})
      all->push_back(runtime::zeros(param.shape.size, DType::f64, at::kCPU));
  const auto add = [&](std::vector<at::Tensor>& all, int param, const layout::Box& box, const at::Tensor& values) {
    runtime::view_of(all[static_cast<size_t>(param)], layout::whole(plans.graph().param(param).shape.size), box)
        .add_(values);
  };
  for (const auto& store : stores) {
    for (const runtime::Residuals::Part& part : store->residuals.parts())
      add(owed.kept, part.param, part.box, part.values);
    for (const runtime::HomeUnit& unit : store->home.units())
      for (const runtime::HomeShard& shard : unit.shards)
        for (const layout::Box* owned : store->holdings.owned(shard.param))
          if (shard.box.contains(*owned))
            add(owed.gradients, shard.param, *owned, runtime::view_of(shard.grad, shard.box, *owned));
  }
  return owed;
}

// Elements of a rank's residuals have its number, and a share that depends on the place.
void fill_residuals(runtime::Store& store) {
  for (const runtime::Residuals::Part& part : store.residuals.parts()) {
    at::Tensor values = part.values;
    for (i64 i = 0; i < values.numel(); ++i)
      values.view({values.numel()})[i].fill_(store.holdings.rank() + 1 + 1.0 / static_cast<double>(i + 3));
  }
}

TEST_F(Checkpoint, WhatCodecsLostIsTakenBackByWhoSendsItStillAndElseAddedToTheGradients) {
  const std::vector<std::string> coded{"run.ranks=4", "bucket.0.strategy=\"2,2,1\"", "bucket.1.strategy=\"4,1,1\"",
                                       "compression.gradients=\"top-1-of-32\"", "compression.smallest=0"};
  const auto with = [&](std::vector<std::string> further) {
    std::vector<std::string> sets = coded;
    sets.insert(sets.end(), further.begin(), further.end());
    return job(sets);
  };
  // Stores of all ranks of a job, new or loaded.
  const auto stores_of = [&](const config::Job& of, const compiler::Plans& plans, bool load) {
    std::vector<std::unique_ptr<runtime::Store>> stores(static_cast<size_t>(of.run.ranks));
    const auto ends = comm::run_ranks(of.run.ranks, {}, [&](comm::Fabric& fabric) {
      auto& store = stores[static_cast<size_t>(fabric.rank())];
      store = std::make_unique<runtime::Store>(plans, fabric.rank(), at::kCPU);
      if (load) {
        load_checkpoint((scratch_ / "run").string(), plans, *store, of);
        return;
      }
      fill(plans, *store);
      fill_residuals(*store);
      comm::JointWork together(fabric, {7, all_ranks(of)}, comm::sign_interval(comm::FabricOptions{}.timeout));
      save_checkpoint(of, {{"config.json", "{}"}}, plans, state_part(plans, *store, fabric.rank()), fabric.rank(),
                      together, state_, 1);
    });
    EXPECT_EQ(ends, std::vector<std::string>(stores.size()));
    return stores;
  };
  const auto plans_of = [](const config::Job& of) { return compiler::plans_of(of, cluster::uniform(1, of.run.ranks)); };
  const config::Job saved = with({});
  const compiler::Plans plans = plans_of(saved);
  const auto stores = stores_of(saved, plans, false);
  const Owed before = owed_of(plans, stores);

  const auto again = stores_of(saved, plans, true);
  for (size_t rank = 0; rank < again.size(); ++rank) {
    ASSERT_FALSE(again[rank]->residuals.parts().empty());
    for (size_t i = 0; i < again[rank]->residuals.parts().size(); ++i)
      EXPECT_TRUE(again[rank]->residuals.parts()[i].values.equal(stores[rank]->residuals.parts()[i].values));
  }
  for (const at::Tensor& gradient : owed_of(plans, again).gradients) EXPECT_EQ(gradient.abs().max().item<double>(), 0);

  bool some_kept = false, some_added = false;
  for (const std::vector<std::string>& change :
       {std::vector<std::string>{"bucket.0.strategy=\"1,4,1\""},
        {"bucket.0.strategy=\"dp=4,zero=3\"", "bucket.1.strategy=\"2,2,1\""},
        {"run.ranks=2", "bucket.0.strategy=\"1,2,1\"", "bucket.1.strategy=\"2,1,1\""},
        {"compression.error_feedback=\"off\""},
        {"parallel.zero=0"}}) {
    SCOPED_TRACE(change.front());
    const config::Job other = with(change);
    const compiler::Plans other_plans = plans_of(other);
    const auto loaded = stores_of(other, other_plans, true);
    const Owed after = owed_of(other_plans, loaded);
    for (size_t p = 0; p < before.kept.size(); ++p) {
      EXPECT_LT(after.kept[p].add(after.gradients[p]).sub(before.kept[p]).abs().max().item<double>(), 1e-12);
      some_kept |= after.kept[p].abs().max().item<double>() > 0;
      some_added |= after.gradients[p].abs().max().item<double>() > 0;
    }
  }
  EXPECT_TRUE(some_kept && some_added);
}

TEST_F(Checkpoint, OfReplicasHoldsEveryElementOnce) {
  save(job(), state_);
  const auto size_of_state = [&] {
    uintmax_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(scratch_ / "run/checkpoints/step-00000006/state"))
      if (file.path().extension() == ".safetensors") bytes += file.file_size();
    return static_cast<double>(bytes);
  };
  const double once = size_of_state();
  std::filesystem::remove_all(scratch_ / "run");
  const std::vector<std::string> replicas{"run.ranks=4", "bucket.0.strategy=\"2,2,1\"", "bucket.1.strategy=\"4,1,1\"",
                                          "parallel.zero=0"};
  save(job(replicas), state_);
  EXPECT_NEAR(size_of_state(), once, 0.2 * once) << "headers differ";
  for (const auto& sets : {replicas, std::vector<std::string>{}}) expect_loaded(job(sets));
}

TEST_F(Checkpoint, ItsModelFolderHoldsTheMasterWeightsInSinglePrecision) {
  save(job(), state_);
  const compiler::Plans plans = compiler::plans_of(job(), cluster::uniform(1, 2));
  const std::string folder = (scratch_ / "run/checkpoints/step-00000006/model").string();
  const auto exported = weights_from(plans.graph(), folder), drawn = random_weights(plans.graph(), 5);
  for (size_t p = 0; p < plans.graph().params().size(); ++p) {
    const std::vector<i64>& size = plans.graph().param(static_cast<int>(p)).shape.size;
    at::Tensor a = runtime::empty(size, DType::f64, at::kCPU), b = runtime::empty(size, DType::f64, at::kCPU);
    exported(static_cast<int>(p), layout::whole(size), a);
    drawn(static_cast<int>(p), layout::whole(size), b);
    EXPECT_TRUE(a.equal(b.to(at::kFloat).to(at::kDouble))) << plans.graph().param(static_cast<int>(p)).name;
  }
  EXPECT_EQ(files::get(folder + "/config.json"), "{}") << "as it was given";
}

TEST_F(Checkpoint, OnlyTheNewestAreKept) {
  const config::Job two = job({"run.keep_checkpoints=2"});
  for (const i64 step : {2, 4, 6}) save(two, {.step = step, .updates = step, .places = {{}}});
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "run/checkpoints/step-00000002"));
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "run/checkpoints/step-00000004/COMMITTED"));
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "run/checkpoints/step-00000006/COMMITTED"));
}

/// The error of resuming under a job.
std::string refusal(const Scratch& scratch, const config::Job& job) {
  return message_of<UserError>([&] {
    const compiler::Plans plans = compiler::plans_of(job, cluster::uniform(1, 2));
    runtime::Store store(plans, 0, at::kCPU);
    load_checkpoint((scratch / "run").string(), plans, store, job);
  });
}

TEST_F(Checkpoint, AnotherModelOrSeedIsRefusedWithBothNamed) {
  save(job(), state_);
  const std::string place = "checkpoint " + (scratch_ / "run/checkpoints/step-00000006").string();
  EXPECT_EQ(
      refusal(scratch_, job({"model.ffn_size=64", "model.rope_theta=5e5"})),
      place +
          " is of another model (model.ffn_size = 48, model.rope_theta = 10000.0) than the job's (model.ffn_size = 64, "
          "model.rope_theta = 500000.0). Use the job file it was made with.");
  EXPECT_EQ(refusal(scratch_, job({"seed=9"})),
            place + " was made with seed 3, the job has seed 9: the order of the data would change. Set seed = 3.");
}

TEST_F(Checkpoint, AModelThatComputesSomethingElseIsRefused) {
  save(job(), state_);
  for (const char* set :
       {"model.qkv_bias=true", "model.o_bias=true", "model.mlp_bias=true", "model.qk_norm=true", "model.rope_theta=5e5",
        "model.norm_eps=1e-6", "model.rope_scaling.factor=8", "model.tied_embeddings=true"}) {
    const std::string key = std::string(set).substr(0, std::string(set).find('='));
    EXPECT_NE(refusal(scratch_, job({set})).find("than the job's (" + key + " = "), std::string::npos) << set;
  }
  expect_loaded(job({"model.max_positions=99", "model.attention=unfused", "batch.context=30"}));
}

TEST_F(Checkpoint, AParameterThatTheStateLacksOrThatTheModelLacksIsNamed) {
  const config::Job plain = job(), biased = job({"model.qkv_bias=true", "model.o_bias=true"});
  const std::string place = "checkpoint " + (scratch_ / "run/checkpoints/step-00000006").string();
  save(biased, state_, &plain);
  EXPECT_EQ(refusal(scratch_, biased),
            place +
                ": state/manifest.json has no model.layers.0.self_attn.q_proj.bias, which the job's model has. "
                "Use the job file and the program it was made with.");
  std::filesystem::remove_all(scratch_ / "run");
  save(plain, state_, &biased);
  EXPECT_EQ(refusal(scratch_, plain),
            place +
                ": state/manifest.json has model.layers.0.self_attn.k_proj.bias, which the job's model lacks. "
                "Use the job file and the program it was made with.");
}

TEST_F(Checkpoint, AParameterOfAnotherShapeIsNamed) {
  const config::Job other = job({"model.ffn_size=64"});
  save(job(), state_, &other);
  EXPECT_NE(refusal(scratch_, job())
                .find("model.layers.0.mlp.gate_proj.weight has shape [64, 32] in state/manifest.json, but [48, 32] in "
                      "the job's"),
            std::string::npos);
}

}  // namespace
}  // namespace switchyard::train
