// What timed calls of operators tell of them: tables by size, and what ranks lose that wait for one another.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cluster/hardware.hpp"

namespace switchyard::train {

/// An operator's call and what it took on this rank. columns, work: as cluster/operator_table.hpp has them. attention
/// pairs or squared lengths are above 0 where the time goes by documents. seconds: of the call before the rounds, which
/// found memory untouched; then what it counts with.
struct Call {
  std::string name;
  double rows = 0, columns = 0, work = 0, attention_pairs = 0, squared_lengths = 0;
  double seconds = 0;
  std::vector<double> rounds{};  // seconds of each
  bool by_documents() const { return attention_pairs > 0 || squared_lengths > 0; }
};
/// The calls of some steps, in order; all have as many rounds.
using CallsOfSteps = std::vector<std::vector<Call>>;

/// Of each call over its rounds. What disturbs a machine for moments doubles the time of single calls: their least is
/// undisturbed.
std::vector<double> least_of(const CallsOfSteps& steps);

/// Calls of about one length: the sum of their seconds, and of the means of their rounds.
struct CallsOfLength {
  double quiet = 0, taken = 0;
};
/// From 1 us to 3 s, half an order of magnitude each.
std::vector<CallsOfLength> calls_by_length(const CallsOfSteps& steps);
/// What calls keep of their undisturbed speed on average, by their undisturbed seconds. A machine that gives its ranks
/// less than a core, in periods, interrupts every long call and only some short ones: the least time of a short one is
/// that of a whole core.
cluster::EfficiencyCurve kept_speed(const std::vector<CallsOfLength>& by_length);

/// Calls that follow one another for about so long. quiet: their seconds, of each stretch; taken: in each round,
/// stretch by stretch.
struct Stretches {
  std::vector<double> quiet, taken;
};
/// From 0.1 ms to 0.3 s, about half an order of magnitude apart; several are empty where steps are short.
std::vector<Stretches> stretches_of(const CallsOfSteps& steps);

/// What disturbs a machine takes a share of whole steps: quiet of taken seconds, by quiet ones. `taken` is to be that
/// of the rank that was slowest in each stretch, so that the curve tells what ranks keep of their speed that wait for
/// one another. It rises with length.
cluster::EfficiencyCurve lockstep_curve(const std::vector<Stretches>& by_length);

/// The median of calls alike. What goes by documents: per row and per pair (or square) with the least relative error,
/// neither below 0, where lengths are so far apart that they can be told from one another.
std::map<std::string, cluster::OperatorTable> tables_of(const CallsOfSteps& steps);

}  // namespace switchyard::train
