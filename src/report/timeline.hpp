// Timelines of a step: from a simulation, from a measured trace, or both side by side.
#pragma once

#include <string>
#include <vector>

#include "ir/program.hpp"
#include "report/page.hpp"
#include "simulator/simulate.hpp"

namespace switchyard::report {

/// A track for each rank, with the spans of its tasks. Gaps of its compute stream are waiting, named after the next
/// task.
Timeline predicted_timeline(const ir::Program& program, const simulator::Simulation& simulation);

/// The same from a run's timeline.json in the Trace Event Format: complete events ("ph": "X") with name, cat, pid (the
/// rank), ts and dur in microseconds; other events are skipped. otherData has the step, the hosts of the ranks,
/// whether collectives ran beside products, the job and the emulated cluster (default: step 1, no ranks, they did, "",
/// "").
/// errors  UserError naming `origin` if it is not such a trace
struct MeasuredStep {
  Timeline timeline;
  cluster::Cluster cluster;
  std::string job{};       // config::trained_fingerprint, as 16 hexadecimal digits
  std::string emulated{};  // cluster whose times these are; empty: the machine's own
};
MeasuredStep measured_timeline(const std::string& text, const std::string& origin);

/// Ranks with bit-identical kinds and times of spans become one track; names may differ by replica.
void fold_equal(Timeline& timeline);
/// If there are more than `most` tracks, those whose compute streams have identical times become one, whatever they
/// transfer. If there are still too many, as always with measured times, those with tasks of the same kinds in the same
/// order and of similar lengths become one. Timeline::folded says which.
void fold_similar(Timeline& timeline, size_t most);
/// Folds a measured timeline to the tracks of a folded predicted one.
void fold_as(Timeline& measured, const Timeline& predicted);
/// Merges spans until at most `most` remain, or one of each kind per track: neighbours of one kind become one where the
/// gap and one of them are short, the shortest first. Timeline::merged counts the spans that were merged away.
void merge_short(Timeline& timeline, size_t most);

/// One timeline with the tracks of both, sorted by first rank, the predicted one first.
Timeline side_by_side(Timeline predicted, Timeline measured);

/// Shares of the step. Ranks whose shares agree to a tenth of a percent are grouped, with their means.
std::vector<TimeShare> time_shares(const simulator::Simulation& simulation);

}  // namespace switchyard::report
