// A simulated step as a trace that opens in Perfetto and chrome://tracing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ir/program.hpp"
#include "simulator/simulate.hpp"

namespace switchyard::simulator {

/// Trace Event Format (JSON): a process for each rank, a thread for each of its streams, an event for each stretch in
/// which a task works, in microseconds, rounded to eighths. Ranks that do the same at the same times share a process,
/// under the lowest number; the title has their count. With more than 100,000 stretches an event is a whole task, from
/// its first stretch to its last.
std::string trace_of(const ir::Program& program, const Simulation& simulation);

/// A stretch of a task, predicted or measured.
struct TracedSpan {
  int task = 0;
  Span span;
};
/// Measured transfers begin when the last of their ranks is ready: what a rank waited for the others before is no work.
void begin_with_the_last(const ir::Program& program, std::vector<std::vector<TracedSpan>>& spans);

/// A trace of any spans, those of rank r in spans[r]; stretches in which a task only waits are not among them. told:
/// goes into otherData as it is.
std::string trace_of(const ir::Program& program, const std::vector<std::vector<TracedSpan>>& spans,
                     const nlohmann::json& told);

/// The first to a file. UserError if it can't be written.
void write_trace(const std::string& path, const ir::Program& program, const Simulation& simulation);

}  // namespace switchyard::simulator
