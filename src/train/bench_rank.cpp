#include "train/bench_rank.hpp"

#include "ir/autodiff.hpp"
#include "models/build.hpp"

namespace switchyard::train {

compiler::Plans bench_plans(const config::ModelConfig& model, const std::string& precision,
                            const std::vector<std::string>& strategies, const cluster::Cluster& cluster,
                            cluster::DeviceType device) {
  std::vector<config::Strategy> made;
  for (const std::string& strategy : strategies) {
    made.push_back(config::strategy_from_spec(strategy, cluster.ranks(), model.layers));
    config::validate(made.back(), model, cluster.ranks());
  }
  ir::Graph graph = models::build(model, precision_from(precision), models::Output::loss);
  ir::differentiate(graph);
  return compiler::Plans(
      std::move(graph), std::move(made), 0, cluster, switching::Planner::relay,
      {.on_devices = device == cluster::DeviceType::cuda, .element_kernels = device == cluster::DeviceType::cuda});
}

}  // namespace switchyard::train
