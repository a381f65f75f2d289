#include "switching/bounds.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_maps.hpp"

namespace switchyard::switching {
namespace {


layout::ShardMap on(std::vector<int> ranks) {
  return layout::expand(layout::Mesh{{{"dp", static_cast<int>(ranks.size())}}, ranks}, layout::replicated(1),
                        layout::plain({10}));
}

TEST(Bound, counts_an_element_once_per_host_that_lacks_it) {
  const cluster::Cluster hosts = cluster::uniform(3, 2);
  EXPECT_EQ(inter_host_bound_bytes({on({0})}, {}, {on({1, 2, 3, 4})}, hosts, 2), 40);
  EXPECT_EQ(inter_host_bound_bytes({on({0})}, {on({2})}, {on({1, 2, 3, 4})}, hosts, 2), 20);
  EXPECT_EQ(inter_host_bound_bytes({on({0, 2, 4})}, {}, {on({1, 3, 5})}, hosts, 2), 0);
}

TEST(Traffic, counts_links_and_the_busiest_ranks_but_no_local_copies) {
  const layout::Box ten{1, {0}, {10}};
  const MovePlan plan{{{0, {{{{0, 0, 0, ten}, {0, 1, 0, ten}}, {{0, 2, 0, ten}}}}}, {1, {{{{1, 2, 1, ten}}}}}}, false};
  EXPECT_EQ(traffic(plan, cluster::uniform(2, 2), 4), (Traffic{{40, 80}, 80, 80}));
  EXPECT_EQ(traffic({}, cluster::Cluster{}, 4), (Traffic{{0, 0}, 0, 0}));
}

/// Bytes between hosts in units of one layer's weights.
struct Published {
  double relay, greedy, bound;
};

Published measure(const Model& model, const cluster::Cluster& hosts, const StrategySpec& from, const StrategySpec& to,
                  const std::vector<layout::ShardMap>& compute_copy) {
  const auto source = stored(model, from), target = stored(model, to);
  const double unit = 2.0 * static_cast<double>(layer_elements(model));
  const MovePlan relay = plan_switch(model.units, source, compute_copy, target, hosts, Planner::relay);
  EXPECT_NO_THROW(verify_switch(relay, source, compute_copy, target));
  const MovePlan greedy = plan_switch(model.units, source, compute_copy, target, hosts, Planner::greedy);
  const Traffic busy = traffic(relay, hosts, 2), published = traffic(greedy, hosts, 2);
  const i64 bound = inter_host_bound_bytes(source, compute_copy, target, hosts, 2);
  EXPECT_EQ(busy.links.inter_host, bound);
  EXPECT_LE(busy.max_receive, published.max_receive);
  const Published result{static_cast<double>(busy.links.inter_host) / unit,
                         static_cast<double>(published.links.inter_host) / unit, static_cast<double>(bound) / unit};
  fmt::print("layer weights between hosts: relay {:.3f}, greedy {:.3f}; busiest sender {:.1f} and {:.1f} MiB\n",
             result.relay, result.greedy, static_cast<double>(busy.max_send) / 1048576,
             static_cast<double>(published.max_send) / 1048576);
  return result;
}

TEST(PublishedSwitches, the_7b_model_to_full_copies_on_16_gpus_needs_32_layers_and_greedy_sends_256) {
  const Model model = llama_7b();
  const Published bytes = measure(model, cluster::uniform(2, 8), strategy(2, 4, 2, 32), strategy(16, 1, 1, 32), {});
  EXPECT_DOUBLE_EQ(bytes.relay, 32);
  EXPECT_DOUBLE_EQ(bytes.greedy, 256);
  EXPECT_DOUBLE_EQ(bytes.bound, 32);
}

TEST(PublishedSwitches, the_32b_model_to_four_replicas_on_32_gpus_needs_30_layers_and_greedy_sends_120) {
  const Model model = llama_32b();
  const Published bytes = measure(model, cluster::uniform(4, 8), strategy(1, 16, 2, 60), strategy(4, 2, 4, 60), {});
  EXPECT_NEAR(bytes.relay, 30, 0.001) << "norms are copies and stay";
  EXPECT_NEAR(bytes.greedy, 120, 0.004);
}

TEST(PublishedSwitches, the_32b_model_between_replicas_needs_60_layers_and_30_with_home_on_its_long_strategy) {
  const Model model = llama_32b();
  const cluster::Cluster hosts = cluster::uniform(4, 8);
  const StrategySpec from = strategy(4, 2, 4, 60), to = strategy(2, 8, 2, 60);
  EXPECT_DOUBLE_EQ(measure(model, hosts, from, to, {}).relay, 60);
  EXPECT_NEAR(measure(model, hosts, from, to, home(model, strategy(1, 16, 2, 60))).relay, 30, 0.001);
}

TEST(PublishedSwitches, after_full_copies_any_strategy_needs_nothing) {
  const Model model = llama_7b();
  const auto from = stored(model, strategy(16, 1, 1, 32));
  for (const StrategySpec& to : {strategy(2, 4, 2, 32), strategy(4, 4, 1, 32), strategy(16, 1, 1, 32)}) {
    const MovePlan plan = plan_switch(model.units, from, {}, stored(model, to), cluster::uniform(2, 8), Planner::relay);
    EXPECT_EQ(traffic(plan, cluster::uniform(2, 8), 2), (Traffic{}));
  }
}

}  // namespace
}  // namespace switchyard::switching
