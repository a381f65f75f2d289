#include "compiler/job_plans.hpp"

#include "compiler/bucket_spec.hpp"
#include "ir/autodiff.hpp"
#include "models/build.hpp"

namespace switchyard::compiler {

Precision precision_of(const config::RunSettings& run) {
  if (run.precision == "auto") return precision_from(run.device == cluster::DeviceType::cuda ? "bf16" : "fp32");
  return precision_from(run.precision);
}

CodeOptions code_options(const config::Job& job, const cluster::Cluster& cluster) {
  const bool cuda = job.run.device == cluster::DeviceType::cuda;
  return {.overlap = job.run.overlap && cluster.overlaps_collectives,
          .overlap_transfers = job.run.overlap_transfers,
          .on_devices = cuda,
          .element_kernels = cuda && !cluster.torch_elements,
          .exchanges = std::make_shared<KnownExchanges>()};
}

std::shared_ptr<const CompiledModel> model_of(const config::Job& job, const cluster::Cluster& cluster) {
  ir::Graph graph = models::build(job.model.config, precision_of(job.run), models::Output::loss);
  ir::differentiate(graph);
  return std::make_shared<const CompiledModel>(std::move(graph), cluster, code_options(job, cluster));
}

std::shared_ptr<const CompiledModel> evaluated_model_of(const config::Job& job, const cluster::Cluster& cluster) {
  config::ModelConfig model = job.model.config;
  model.dropout = 0;
  return std::make_shared<const CompiledModel>(models::build(model, precision_of(job.run), models::Output::loss),
                                               cluster, code_options(job, cluster));
}

Plans plans_of(const config::Job& job, std::shared_ptr<const CompiledModel> model) {
  std::vector<config::Strategy> strategies;
  for (const config::Bucket& bucket : job.buckets) strategies.push_back(bucket.strategy);
  return Plans(std::move(model), strategies, job.run.home, job.switch_planner, job.buckets.front().max_length);
}

Plans plans_of(const config::Job& job, const cluster::Cluster& cluster) {
  return plans_of(job, model_of(job, cluster));
}

std::vector<batch::BucketSpec> bucket_specs(const config::Job& job, const Plans& plans) {
  std::vector<batch::BucketSpec> specs;
  for (size_t b = 0; b < job.buckets.size(); ++b)
    specs.push_back(bucket_spec(plans, static_cast<int>(b), job.buckets[b].max_length));
  return specs;
}

std::vector<int> phase_order(const config::Job& job) {
  return job.run.order.empty() ? batch::published_order(static_cast<int>(job.buckets.size())) : job.run.order;
}

batch::WorkModel work_model(const config::ModelConfig& model) {
  // Rows of embeddings are looked up, not multiplied; a tied one is the head's product.
  const i64 tables =
      (model.tied_embeddings ? 0 : model.vocab_size) + (model.family == config::Family::gpt2 ? model.max_positions : 0);
  const i64 multiplied = config::parameter_count(model) - tables * model.hidden_size;
  // Causal: half of n^2 pairs, unless scores are stored.
  const double products = model.attention == config::AttentionKind::fused ? 2 : 4;
  return {2.0 * static_cast<double>(multiplied),
          products * static_cast<double>(model.layers * model.heads * model.head_dim)};
}

double step_flops(const batch::WorkModel& work, const std::vector<i64>& lengths) {
  double flops = 0;
  for (const i64 length : lengths) flops += 3 * work(length);
  return flops;
}

}  // namespace switchyard::compiler
