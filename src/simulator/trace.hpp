// A simulated step as a trace that opens in Perfetto and chrome://tracing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ir/program.hpp"
#include "simulator/simulate.hpp"

namespace switchyard::simulator {

/// Trace Event Format (JSON): a process for each rank, a thread for each of its streams, an event for each span in
/// which a task works, in microseconds, rounded to eighths. Ranks that do the same at the same times share a process,
/// under the lowest number; the title has their count. With more than 100,000 spans an event covers a whole task, from
/// the begin of its first span to the end of its last.
std::string trace_of(const ir::Program& program, const Simulation& simulation);

/// A span in which a task works, predicted or measured.
struct TracedSpan {
  int task = 0;
  Span span;
};
/// Moves the begin of measured transfers to the time at which the last of their ranks is ready: waiting for other ranks
/// is not work.
void start_when_last_rank_is_ready(const ir::Program& program, std::vector<std::vector<TracedSpan>>& spans);

/// A trace of any spans, those of rank r in spans[r]; spans in which a task only waits must not be among them.
/// other_data: written to otherData unchanged.
std::string trace_of(const ir::Program& program, const std::vector<std::vector<TracedSpan>>& spans,
                     const nlohmann::json& other_data);

}  // namespace switchyard::simulator
