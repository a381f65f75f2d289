#include "simulator/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

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
    case ir::Queue::gather:
      return "parameters of runs";
    case ir::Queue::switching:
      return "parameters";
    case ir::Queue::collective:
      return "collectives";
  }
  return "";
}

nlohmann::json named(const char* what, int rank, int thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

constexpr size_t kMostEvents = 100'000;  // most stretches within tasks

/// The ranks of a process, and its spans.
struct Process {
  std::vector<int> ranks;
  std::vector<TracedSpan> spans;
};

/// The numbers behind what a rank's process shows, without its replica: ranks with the same numbers have the same
/// process.
std::vector<double> shown_of(const ir::Program& program, const std::vector<TaskTime>& times, int rank) {
  std::vector<double> shown;
  for (const int id : program.of_rank[static_cast<size_t>(rank)]) {
    const TaskTime& time = times[static_cast<size_t>(id)];
    if (time.spans.empty()) continue;
    const ir::Task& t = program.tasks[static_cast<size_t>(id)];
    shown.insert(shown.end(),
                 {static_cast<double>(t.kind()), static_cast<double>(t.queue), static_cast<double>(t.phase)});
    const auto numbers = ir::numbers_of(t);
    shown.insert(shown.end(), numbers.begin() + 1, numbers.end());  // without its replica
    for (const Span& span : time.spans)
      shown.insert(shown.end(), {span.begin, span.end, span.communication ? 1.0 : 0.0});
  }
  return shown;
}

/// The stretches of a task, or the task as one: with what waits within it.
std::vector<Span> spans_of(const ir::Task& task, const TaskTime& time, bool stretches) {
  if (stretches || time.spans.size() < 2) return {time.spans.begin(), time.spans.end()};
  return {{time.spans.front().begin, time.spans.back().end, ir::is_transfer(task.kind())}};
}

std::vector<Process> processes_of(const ir::Program& program, const std::vector<TaskTime>& times) {
  std::map<std::vector<double>, size_t> known;
  std::vector<Process> processes;
  size_t events = 0;
  for (int rank = 0; rank < static_cast<int>(program.of_rank.size()); ++rank) {
    const auto [it, fresh] = known.try_emplace(shown_of(program, times, rank), processes.size());
    if (fresh) {
      processes.emplace_back();
      for (const int id : program.of_rank[static_cast<size_t>(rank)])
        events += times[static_cast<size_t>(id)].spans.size();
    }
    processes[it->second].ranks.push_back(rank);
  }
  for (Process& process : processes)
    for (const int id : program.of_rank[static_cast<size_t>(process.ranks[0])])
      for (const Span& span :
           spans_of(program.tasks[static_cast<size_t>(id)], times[static_cast<size_t>(id)], events <= kMostEvents))
        process.spans.push_back({id, span});
  return processes;
}

/// Perfetto puts processes of equally many events in the order of their titles: all numbers have as many digits as
/// `last`.
std::string title_of(const std::vector<int>& ranks, int last) {
  const size_t more = ranks.size() - 1, digits = fmt::formatted_size("{}", last);
  return fmt::format("rank {:0{}}", ranks[0], digits) +
         (more == 0 ? "" : fmt::format(" and {} like it, to rank {:0{}}", more, ranks.back(), digits));
}

/// Microseconds, as eighths: viewers read them as whole nanoseconds, and drop an event that then begins before the one
/// ahead of it ends.
double microseconds(double seconds) { return std::round(8e6 * seconds) / 8; }

void append(std::string& events, const nlohmann::json& event) {
  events += events.empty() ? "" : ",";
  events += event.dump();
}

std::string text_of(const ir::Program& program, const std::vector<Process>& processes,
                    const nlohmann::json& other_data) {
  std::string events;
  const int last = static_cast<int>(program.of_rank.size()) - 1;
  for (const Process& process : processes) {
    const int rank = process.ranks[0];
    append(events, named("process_name", rank, 1, title_of(process.ranks, last)));
    std::map<compiler::QueueKey, int> threads;
    for (const auto& [id, span] : process.spans) {
      const ir::Task& task = program.tasks[static_cast<size_t>(id)];
      const int next = static_cast<int>(threads.size()) + 1;  // 0 isn't a thread to all viewers
      const bool collective = span.communication && task.kind() == ir::TaskKind::run;
      const compiler::QueueKey queue =
          collective ? compiler::QueueKey{rank, ir::Queue::collective, 0} : compiler::queue_of(task, rank);
      const auto [thread, fresh] = threads.try_emplace(queue, next);
      if (fresh) append(events, named("thread_name", rank, thread->second, name_of(thread->first)));
      append(events, {{"ph", "X"},
                      {"name", ir::name_of(task)},
                      {"cat", span.communication ? "communication" : "compute"},
                      {"pid", rank},
                      {"tid", thread->second},
                      {"ts", microseconds(span.begin)},
                      {"dur", microseconds(span.end) - microseconds(span.begin)}});
    }
  }
  return "{\"traceEvents\":[" + events + "],\"displayTimeUnit\":\"ms\"" +
         (other_data.empty() ? "" : ",\"otherData\":" + other_data.dump()) + "}";
}

}  // namespace

std::string trace_of(const ir::Program& program, const Simulation& simulation) {
  return text_of(program, processes_of(program, simulation.tasks), nlohmann::json::object());
}

std::string trace_of(const ir::Program& program, const std::vector<std::vector<TracedSpan>>& spans,
                     const nlohmann::json& other_data) {
  std::vector<Process> processes;
  for (int rank = 0; rank < static_cast<int>(spans.size()); ++rank)
    processes.push_back({{rank}, spans[static_cast<size_t>(rank)]});
  return text_of(program, processes, other_data);
}

void start_when_last_rank_is_ready(const ir::Program& program, std::vector<std::vector<TracedSpan>>& spans) {
  const auto is_transfer = [&](const TracedSpan& one) {
    return one.span.communication && program.tasks[static_cast<size_t>(one.task)].kind() != ir::TaskKind::run;
  };
  std::map<int, double> ready;
  for (const auto& of_rank : spans)
    for (const TracedSpan& one : of_rank)
      if (is_transfer(one)) ready[one.task] = std::max(ready[one.task], one.span.begin);
  for (auto& of_rank : spans)
    for (TracedSpan& one : of_rank)
      if (is_transfer(one)) one.span.begin = std::min(ready[one.task], one.span.end);
}

}  // namespace switchyard::simulator
