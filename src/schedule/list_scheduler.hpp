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
  /// F and B of the chunks in order of preference: F, B for chunk 0 and f, b for chunk 1. Which of the two lists
  /// applies depends on whether the stage ran a B or an F last.
  std::string_view after_gradient, after_forward;
  /// Instead of running an F, wait for a B that comes within this share of the F's time; instead of a W, for a B or an
  /// F.
  double hold = 0;
  /// W runs when nothing else can, and before other items where more than this many wait.
  int waiting = std::numeric_limits<int>::max();
  /// Most activations that the stage holds, from F to W.
  int cap = std::numeric_limits<int>::max();
  bool operator==(const Rule&) const = default;
};

/// Length of a schedule, compared by makespan first, because the optimizer's step needs all gradients. Of two schedules
/// with equal makespan, the one with the shorter longest_stage() leaves more time for work before and after it.
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

/// The schedule that the stages' rules give, with the items of a position in the order of micro-batches. Nothing if it
/// would take longer than `most`. length: that of a replay, or a little more where a rule holds items back.
/// errors   InternalError if a rule's cap is below the chunks, or its list lacks an item
std::optional<Scheduled> list_schedule(const Pipeline& pipeline, const std::vector<Rule>& rules, Seconds most);

/// Length of a replay of a valid schedule, without its spans: for searches.
/// errors   InternalError if the stages wait for each other in a cycle
Length length_of(const Pipeline& pipeline, const Schedule& schedule);

/// Lower bound of the length of any schedule of this pipeline that has gradients apart, and in which no stage holds
/// more than `cap` activations.
Length least_length(const Pipeline& pipeline, int cap);

}  // namespace switchyard::schedule
