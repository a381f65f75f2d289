// List scheduling of pipelines with split gradients: all stages on one clock, each choosing what runs next by a rule.
#pragma once

#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "schedule/replay.hpp"
#include "schedule/schedule.hpp"

namespace switchyard::schedule {

/// How a stage chooses among items that could run.
struct Rule {
  /// Chunks' F and B, best first, written F, B for chunk 0 and f, b for chunk 1; which of the two lists holds depends
  /// on the F or B that the stage ran last.
  std::string_view after_gradient, after_forward;
  /// Rather than an F, wait for a B that comes within this share of its time; rather than a W, for a B or an F.
  double hold = 0;
  /// W runs when nothing else can, and first where more than so many wait.
  int waiting = std::numeric_limits<int>::max();
  /// Most activations that the stage holds, from F to W.
  int cap = std::numeric_limits<int>::max();
  bool operator==(const Rule&) const = default;
};

/// How long a schedule takes, the first thing first: all gradients are needed before the optimizer's step, so the
/// makespan counts; of two that end together the one with the shorter longest_stage() lets more of what comes before
/// and after run beside it.
struct Length {
  Seconds makespan, longest_stage;
  auto operator<=>(const Length&) const = default;
};

/// A pipeline to be scheduled.
struct Pipeline {
  int stages = 1, mbs = 0, chunks = 1;
  Placement placement = Placement::loop;
  Costs costs;

  int positions() const { return stages * chunks; }
};

struct Scheduled {
  Schedule schedule;
  Length length;
};

/// The schedule that the stages' rules make: items of a position in the order of micro-batches. Nothing if it would
/// take longer than `most`. length: what a replay takes, or where a rule holds back a little more.
/// errors   InternalError if a rule's cap is below the chunks, or its list lacks an item
std::optional<Scheduled> list_schedule(const Pipeline& pipeline, const std::vector<Rule>& rules, Seconds most);

/// What a replay of a valid schedule takes, without its spans: for searches.
/// errors   InternalError if the stages wait for each other in a cycle
Length length_of(const Pipeline& pipeline, const Schedule& schedule);

/// No schedule of this pipeline in which no stage holds more than `cap` activations takes less.
Length least_length(const Pipeline& pipeline, int cap);

}  // namespace switchyard::schedule
