#include "simulator/bucket_choice.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::simulator {
namespace {

std::vector<int> members(unsigned set, size_t buckets) {
  std::vector<int> found;
  for (size_t b = 0; b < buckets; ++b)
    if (set >> b & 1U) found.push_back(static_cast<int>(b));
  return found;
}

// used: ascending, so from the longest to the shortest.
bool is_choice(const std::vector<int>& used, std::span<const batch::BucketSpec> buckets, std::span<const i64> lengths) {
  const auto max_length = [&](int bucket) { return buckets[static_cast<size_t>(bucket)].max_length; };
  const auto has_documents = [&](i64 above, i64 most) {
    return std::ranges::any_of(lengths, [&](i64 length) { return above < length && length <= most; });
  };
  if (used.empty() || max_length(used.front()) < std::ranges::max(lengths)) return false;
  for (size_t i = 0; i < used.size(); ++i) {
    const i64 next = i + 1 < used.size() ? max_length(used[i + 1]) : 0;
    if (!has_documents(next, max_length(used[i]))) return false;  // nor if both are equal
  }
  return true;
}

}  // namespace

std::vector<std::vector<int>> bucket_choices(std::span<const batch::BucketSpec> buckets, std::span<const i64> lengths) {
  check(!lengths.empty() && buckets.size() < 32, "a choice of {} buckets for {} documents", buckets.size(),
        lengths.size());
  std::vector<std::vector<int>> choices;
  for (unsigned set = 1; set < 1U << buckets.size(); ++set)
    if (std::vector<int> used = members(set, buckets.size()); is_choice(used, buckets, lengths))
      choices.push_back(std::move(used));
  return choices;
}

BucketChooser::BucketChooser(const compiler::StepSettings& settings, const compiler::Plans& plans,
                             const cluster::Hardware& hardware, KnownSegments& known)
    : settings_(settings), plans_(plans), hardware_(hardware), known_(known) {}

ChosenStep BucketChooser::choose(i64 index, const std::vector<i64>& lengths) {
  const i64 budget = settings_.memory_budget;
  std::optional<ChosenStep> best;
  const auto fits = [&](const ChosenStep& chosen) { return budget == 0 || *chosen.step.peak <= budget; };
  for (std::vector<int>& used : bucket_choices(settings_.buckets, lengths)) {
    compiler::StepPlanner planner(settings_, plans_, compiler::planned_batch(settings_, index, lengths, used), lengths);
    const auto seconds = [&] {
      const compiler::PlannedStep& step = planner.step();
      return simulate(step.program, step.plan, plans_, hardware_, known_).step_seconds;
    };
    ChosenStep next{.buckets = std::move(used), .step = {}, .seconds = seconds()};
    // Prefetching less, to keep to the budget, takes no less time; and memory takes longer to find than time.
    if (best && fits(*best) && best->seconds <= next.seconds) continue;
    if (planner.keep_to_budget()) next.seconds = seconds();
    if (budget > 0) planner.peak();
    next.step = std::move(planner).step();
    const bool better = !best || (fits(*best) ? fits(next) && next.seconds < best->seconds
                                              : fits(next) || *next.step.peak < *best->step.peak);
    if (better) best = std::move(next);
  }
  check(best.has_value(), "no buckets for the documents of step {}", index + 1);
  return std::move(*best);
}

}  // namespace switchyard::simulator
