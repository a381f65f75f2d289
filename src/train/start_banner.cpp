#include "train/start_banner.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "base/text.hpp"

namespace switchyard::train {
namespace {

std::string model_line(const config::Job& job, const batch::WorkModel& work) {
  const config::ModelConfig& model = job.model.config;
  const i64 context = job.batch.context;
  const double flops = 3 * work(context) / static_cast<double>(context);  // backward: twice the forward pass
  return fmt::format("{}, {} layers of {} features, {} parameters, {} flops a token at length {}",
                     config::name_of(model.family), model.layers, model.hidden_size,
                     format_count(static_cast<double>(config::parameter_count(model))), format_count(flops), context);
}

std::string batch_line(const config::BatchSettings& batch) {
  const std::string size =
      batch.sequences > 0 ? fmt::format("{} documents", batch.sequences) : fmt::format("about {} tokens", batch.tokens);
  return fmt::format("{} a step, documents of up to {} tokens", size, batch.context);
}

std::string strategy_line(const std::vector<config::Bucket>& buckets) {
  if (buckets.size() == 1) return buckets[0].strategy.name;
  std::vector<std::string> parts;
  for (const config::Bucket& bucket : buckets)
    parts.push_back(fmt::format("to {}: {}", bucket.max_length, bucket.strategy.name));
  return fmt::format("{}", fmt::join(parts, "; "));
}

// "data/mine", or "75% mine, 25% chats".
std::string data_words(const std::vector<config::DataSource>& sources) {
  if (sources.size() == 1) return sources[0].path;
  double all = 0;
  for (const config::DataSource& source : sources) all += source.weight;
  std::vector<std::string> parts;
  for (const config::DataSource& source : sources)
    parts.push_back(fmt::format("{:.3g}% {}", 100 * source.weight / all, source.name));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Their devices are paid for.
std::vector<int> idle_ranks(const config::Job& job, int ranks) {
  std::set<int> used;
  for (const config::Bucket& bucket : job.buckets)
    for (const int rank : bucket.strategy.ranks()) used.insert(rank);
  std::vector<int> idle;
  for (int rank = 0; rank < ranks; ++rank)
    if (!used.contains(rank)) idle.push_back(rank);
  return idle;
}

}  // namespace

std::vector<std::string> start_banner(const config::Job& job, const StartFacts& facts) {
  const int hosts = facts.cluster.hosts();
  const Bytes budget = job.run.memory_budget;
  std::vector<std::string> lines{
      "model     " + model_line(job, facts.work),
      fmt::format("data      {}: {} documents, {} tokens", data_words(config::sources_of(job)), facts.documents,
                  format_count(static_cast<double>(facts.tokens))),
      "batch     " + batch_line(job.batch),
      "strategy  " + strategy_line(job.buckets),
      fmt::format("ranks     {} on {} host{}, {}, {}", facts.cluster.ranks(), hosts, hosts == 1 ? "" : "s",
                  name_of(job.run.device), name_of(facts.precision)),
      budget.count > 0
          ? fmt::format("memory    {} of {} a rank in the first step", format_bytes(facts.predicted),
                        format_bytes(budget))
          : fmt::format("memory    {} a rank in the first step, without a budget", format_bytes(facts.predicted))};
  if (const std::vector<int> idle = idle_ranks(job, facts.cluster.ranks()); !idle.empty())
    lines.push_back(fmt::format("idle      {}: no strategy uses {}",
                                idle.size() > 1 ? fmt::format("{} ranks, the first is {}", idle.size(), idle.front())
                                                : fmt::format("rank {}", idle.front()),
                                idle.size() > 1 ? "them" : "it"));
  if (!job.run.emulate.empty())
    lines.push_back(
        fmt::format("emulated  {}: times of steps are those on this cluster, with cores of this machine as "
                    "its devices",
                    job.run.emulate));
  return lines;
}

}  // namespace switchyard::train
