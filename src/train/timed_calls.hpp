// Evaluation of timed operator calls: tables by size.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "cluster/hardware.hpp"

namespace switchyard::train {

/// An operator's call and its time on this rank. columns, work, head_dim: as in cluster/operator_table.hpp.
/// attention_pairs or squared_lengths are above 0 if the time depends on document lengths. seconds: at first of the
/// call before the rounds, which found untouched memory; later the time that the tables use.
struct Call {
  std::string name;
  double rows = 0, columns = 0, work = 0, head_dim = 0, attention_pairs = 0, squared_lengths = 0;
  double seconds = 0;
  std::vector<double> rounds{};  // seconds of each
  bool by_documents() const { return attention_pairs > 0 || squared_lengths > 0; }
};
/// The calls of some steps, in order; all have as many rounds.
using CallsOfSteps = std::vector<std::vector<Call>>;

/// The least of some times of a call. Times of 0 are no measurements: now and then the processor clock of a virtual
/// machine stands still during a call.
/// errors  UserError if all are 0: the clock is too coarse
double shortest(std::span<const double> seconds);
/// The shortest time of each call over its rounds. Momentary disturbances double the time of single calls; the minimum
/// is undisturbed.
std::vector<double> least_of(const CallsOfSteps& steps);

/// Calls of similar length: the sum of their seconds (quiet), and the sum of the means of their rounds (taken).
struct CallsOfLength {
  double quiet = 0, taken = 0;
};
/// Calls by length, from 1 us to 3 s in classes of half an order of magnitude.
std::vector<CallsOfLength> calls_by_length(const CallsOfSteps& steps);
/// The share of their undisturbed speed that calls keep on average, by their undisturbed seconds. On a machine that
/// gives its ranks less than a core, in periods, every long call and only some short ones are interrupted: the minimum
/// time of a short call is that on a whole core.
cluster::EfficiencyCurve kept_speed(const std::vector<CallsOfLength>& by_length);

/// Tables with the median of equal calls. If the time depends on document lengths: seconds per row and per pair (or
/// square) with the smallest relative error, neither below 0, if lengths differ enough to separate the two.
std::map<std::string, cluster::OperatorTable> tables_of(const CallsOfSteps& steps);

}  // namespace switchyard::train
