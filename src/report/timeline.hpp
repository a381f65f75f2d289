// Timelines of a step: from a simulation, from a measured trace, and both in one picture.
#pragma once

#include <string>
#include <vector>

#include "ir/program.hpp"
#include "report/page.hpp"
#include "simulator/simulate.hpp"

namespace switchyard::report {

/// A track for each rank, with the spans of its rows. Gaps between what its compute stream does are waiting, named
/// after the row to come.
Timeline predicted_timeline(const ir::Program& program, const simulator::Simulation& simulation);

/// The same from the Trace Event Format that a run writes (timeline.json): complete events ("ph": "X") with name, cat,
/// pid (the rank), ts and dur in microseconds; other events are passed over. otherData tells the step and the hosts of
/// the ranks (else step 1 and none).
/// errors  UserError naming `origin` if it is no such trace
struct MeasuredStep {
  Timeline timeline;
  std::vector<int> hosts;
};
MeasuredStep measured_timeline(const std::string& text, const std::string& origin);

/// Ranks whose spans are the same to the last bit (kinds and times; names may differ by replica) become one track.
void fold_equal(Timeline& timeline);
/// If there are more than `most` tracks: those whose compute streams do the same at the same time become one, whatever
/// they transfer; if they are still too many (or measured, and so never the same to the last bit), those with tasks of
/// the same kinds in the same order that take about as long. Timeline::folded tells which.
void fold_alike(Timeline& timeline, size_t most);
/// A measured timeline with the tracks of a folded predicted one.
void fold_as(Timeline& measured, const Timeline& predicted);
/// Until there are at most `most` spans (if one of each kind and track is that few): neighbours of one kind in a track
/// become one where the gap and one of them are short, the shortest first. Timeline::merged counts how many are gone.
void merge_short(Timeline& timeline, size_t most);

/// Tracks of the same first ranks next to each other, the predicted one first.
Timeline side_by_side(Timeline predicted, Timeline measured);

/// Shares of the step; ranks whose shares agree to a tenth of a percent are together, with their means.
std::vector<TimeShare> time_shares(const simulator::Simulation& simulation);

}  // namespace switchyard::report
