#include "train/bench_rank.hpp"

#include <memory>

#include "ir/autodiff.hpp"
#include "models/build.hpp"

namespace switchyard::train {

BenchMemory::BenchMemory() : memory_(i64{1} << 36), scope_(&memory_) {}

std::function<void()> BenchMemory::begin_stream() {
  return [this] {
    thread_local std::unique_ptr<kernels::MemoryScope> held;
    held = std::make_unique<kernels::MemoryScope>(&memory_);
  };
}

compiler::Plans bench_plans(const config::ModelConfig& model, const std::string& precision, const std::vector<std::string>& strategies,
                            const cluster::Cluster& cluster) {
  std::vector<config::Strategy> made;
  for (const std::string& strategy : strategies) {
    made.push_back(config::strategy_from_spec(strategy, cluster.ranks(), model.layers));
    config::validate(made.back(), model, cluster.ranks());
  }
  ir::Graph graph = models::build(model, precision_from(precision), models::Output::loss);
  ir::differentiate(graph);
  return compiler::Plans(std::move(graph), std::move(made), 0, cluster, switching::Planner::relay);
}

}  // namespace switchyard::train
