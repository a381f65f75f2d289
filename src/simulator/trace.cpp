#include "simulator/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/errors.hpp"
#include "compiler/order.hpp"

namespace switchyard::simulator {
namespace {

std::string name_of(const compiler::QueueKey& queue) {
  const auto& [rank, kind, stage] = queue;
  switch (kind) {
    case ir::Queue::compute:
      return "compute";
    case ir::Queue::forward:
      return fmt::format("activations from stage {}", stage);
    case ir::Queue::backward:
      return fmt::format("gradients from stage {}", stage);
    case ir::Queue::bulk:
      return "gradients to home";
    case ir::Queue::switching:
      return "parameters";
  }
  return "";
}

nlohmann::json named(const char* what, int rank, int thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

std::string trace_of(const ir::Program& program, const Simulation& simulation) {
  std::vector<std::vector<TracedSpan>> spans(program.of_rank.size());
  for (size_t rank = 0; rank < spans.size(); ++rank)
    for (const int row : program.of_rank[rank])
      for (const Span& span : simulation.rows[static_cast<size_t>(row)].spans) spans[rank].push_back({row, span});
  return trace_of(program, spans, nlohmann::json::object());
}

std::string trace_of(const ir::Program& program, const std::vector<std::vector<TracedSpan>>& spans, const nlohmann::json& told) {
  nlohmann::json events = nlohmann::json::array();
  for (int rank = 0; rank < static_cast<int>(spans.size()); ++rank) {
    events.push_back(named("process_name", rank, 0, fmt::format("rank {}", rank)));
    std::map<compiler::QueueKey, int> threads;
    for (const auto& [row, span] : spans[static_cast<size_t>(rank)]) {
      const ir::Task& task = program.rows[static_cast<size_t>(row)];
      const auto [thread, fresh] = threads.try_emplace(compiler::queue_of(task, rank), static_cast<int>(threads.size()));
      if (fresh) events.push_back(named("thread_name", rank, thread->second, name_of(thread->first)));
      events.push_back({{"ph", "X"},
                        {"name", ir::name_of(task)},
                        {"cat", span.communication ? "communication" : "compute"},
                        {"pid", rank},
                        {"tid", thread->second},
                        {"ts", 1e6 * span.begin},
                        {"dur", 1e6 * (span.end - span.begin)}});
    }
  }
  nlohmann::json trace{{"traceEvents", events}, {"displayTimeUnit", "ms"}};
  if (!told.empty()) trace["otherData"] = told;
  return trace.dump();
}

void begin_with_the_last(const ir::Program& program, std::vector<std::vector<TracedSpan>>& spans) {
  const auto is_transfer = [&](const TracedSpan& one) {
    return one.span.communication && program.rows[static_cast<size_t>(one.row)].kind != ir::TaskKind::run;
  };
  std::map<int, double> ready;
  for (const auto& of_rank : spans)
    for (const TracedSpan& one : of_rank)
      if (is_transfer(one)) ready[one.row] = std::max(ready[one.row], one.span.begin);
  for (auto& of_rank : spans)
    for (TracedSpan& one : of_rank)
      if (is_transfer(one)) one.span.begin = std::min(ready[one.row], one.span.end);
}

void write_trace(const std::string& path, const ir::Program& program, const Simulation& simulation) {
  std::ofstream file(path);
  file << trace_of(program, simulation) << '\n';
  file.close();
  if (!file) user_error("cannot write {}: {}. Choose another --trace.", path, std::strerror(errno));
}

}  // namespace switchyard::simulator
