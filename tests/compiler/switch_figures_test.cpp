#include "compiler/switch_figures.hpp"

#include <gtest/gtest.h>

#include "models/build.hpp"

namespace switchyard::compiler {
namespace {

using switching::Planner;

struct Case {
  std::string model;
  int hosts;
  std::string from, to, home;
  Planner planner;
};

SwitchFigures figures_of(const Case& c) {
  const cluster::Cluster cluster = cluster::uniform(c.hosts, 8);
  const config::ModelConfig model = config::model_preset(c.model);
  const auto strategy = [&](const std::string& spec) {
    return config::strategy_from_spec(spec, cluster.ranks(), model.layers);
  };
  const ir::Graph graph = models::build(model, precision_from("bf16"), models::Output::loss);
  const config::Strategy home = strategy(c.home.empty() ? c.from : c.home);
  const SwitchMaps maps = switch_maps(graph, strategy(c.from), strategy(c.to), c.home.empty() ? nullptr : &home);
  const switching::MovePlan plan =
      switching::plan_switch(maps.units, maps.from, maps.compute_copy, maps.to, cluster, c.planner);
  switching::verify_switch(plan, maps.from, maps.compute_copy, maps.to);
  return switch_figures(graph, maps, plan, cluster);
}

TEST(SwitchFigures, seven_b_on_two_hosts_sends_256_layers_greedily_and_32_by_relays) {
  const SwitchFigures greedy = figures_of({"7b", 2, "2,4,2", "16,1,1", "", Planner::greedy});
  const SwitchFigures relay = figures_of({"7b", 2, "2,4,2", "16,1,1", "", Planner::relay});
  EXPECT_EQ(greedy.layers_inter_host_bytes, 256 * greedy.layer_bytes);
  EXPECT_EQ(relay.layers_inter_host_bytes, 32 * relay.layer_bytes);
  EXPECT_EQ(relay.layers_inter_host_bound_bytes, 32 * relay.layer_bytes);
  EXPECT_EQ(relay.inter_host_bytes, relay.inter_host_bound_bytes);
  EXPECT_EQ(greedy.inter_host_bytes, 8 * relay.inter_host_bytes);
}

TEST(SwitchFigures, thirty_two_b_on_four_hosts_sends_120_layers_greedily_and_30_by_relays) {
  const SwitchFigures greedy = figures_of({"32b", 4, "1,16,2", "4,2,4", "", Planner::greedy});
  const SwitchFigures relay = figures_of({"32b", 4, "1,16,2", "4,2,4", "", Planner::relay});
  // Norm vectors are copies on every tensor-parallel rank: a receiver finds them on its own host more often than a cut
  // matrix.
  EXPECT_NEAR(static_cast<double>(greedy.layers_inter_host_bytes) / static_cast<double>(greedy.layer_bytes), 120, 0.01);
  EXPECT_NEAR(static_cast<double>(relay.layers_inter_host_bytes) / static_cast<double>(relay.layer_bytes), 30, 0.01);
  EXPECT_EQ(relay.inter_host_bytes, relay.inter_host_bound_bytes);
}

TEST(SwitchFigures, a_compute_copy_of_home_on_the_other_hosts_halves_what_crosses) {
  const SwitchFigures without = figures_of({"32b", 4, "4,2,4", "2,8,2", "", Planner::relay});
  const SwitchFigures with_home = figures_of({"32b", 4, "4,2,4", "2,8,2", "1,16,2", Planner::relay});
  EXPECT_NEAR(static_cast<double>(without.layers_inter_host_bytes) / static_cast<double>(without.layer_bytes), 60,
              0.01);
  EXPECT_NEAR(static_cast<double>(with_home.layers_inter_host_bytes) / static_cast<double>(with_home.layer_bytes), 30,
              0.01);
  EXPECT_EQ(without.inter_host_bytes, without.inter_host_bound_bytes);
  EXPECT_EQ(with_home.inter_host_bytes, with_home.inter_host_bound_bytes);
}

TEST(SwitchFigures, of_a_switch_to_the_same_strategy_are_nothing) {
  const SwitchFigures figures = figures_of({"3b", 1, "2,2,2", "2,2,2", "", Planner::relay});
  EXPECT_EQ(figures.inter_host_bytes + figures.intra_host_bytes + figures.max_send_bytes + figures.max_receive_bytes +
                figures.messages,
            0);
  EXPECT_EQ(figures.layer_bytes,
            2 * (4 * 2048 * 2048 + 3 * 2048 * 5120 + 2 * 2048));  // q k v o, gate up down, two norms, in bf16
}

TEST(SwitchFigures, of_a_gather_on_one_host_count_what_each_rank_lacks) {
  const SwitchFigures figures = figures_of({"3b", 1, "1,8,1", "8,1,1", "", Planner::relay});
  const i64 cut =
      16 * (figures.layer_bytes - 2 * 2 * 2048) + 2 * 2 * 32000 * 2048;  // layers without norms, embedding and head
  EXPECT_EQ(figures.inter_host_bytes, 0);
  EXPECT_EQ(figures.intra_host_bytes, 7 * cut);
  EXPECT_EQ(figures.max_receive_bytes, cut - cut / 8);
}

}  // namespace
}  // namespace switchyard::compiler
