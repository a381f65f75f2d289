// A simulated step as a trace that opens in Perfetto and chrome://tracing.
#pragma once

#include <string>

#include "ir/program.hpp"
#include "simulator/simulate.hpp"

namespace switchyard::simulator {

/// Trace Event Format (JSON): a process for each rank, a thread for each of its streams, an event for each stretch in which a row works,
/// in microseconds.
std::string trace_of(const ir::Program& program, const Simulation& simulation);

/// The same to a file. UserError if it can't be written.
void write_trace(const std::string& path, const ir::Program& program, const Simulation& simulation);

}  // namespace switchyard::simulator
