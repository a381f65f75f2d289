#include "report/headline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/units.hpp"

namespace switchyard::report {
namespace {

struct Part {
  const char* name;
  double StepParts::*share;
  const char* remedy;  // "" for computing
};

constexpr std::array<Part, 6> kParts{{
    {"computing", &StepParts::compute, ""},
    {"collectives inside stages", &StepParts::collectives,
     "less communication inside stages: a smaller tensor-parallel degree, or run.overlap where links allow it"},
    {"waiting for parameters and gradients", &StepParts::switching,
     "moving parameters and gradients earlier: fewer strategies in a step, a larger batch, or memory to prefetch"},
    {"sends between stages", &StepParts::sends, "faster sends between stages: fewer stages, or stages on one host"},
    {"waiting for other stages", &StepParts::pipeline,
     "a fuller pipeline: more micro-batches, fewer stages, or an interleaved or zero-bubble schedule"},
    {"waiting for other ranks", &StepParts::imbalance,
     "an even load: other bucket limits or strategies, which `switchyard plan` looks for"},
}};

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string duration(double seconds) { return format_duration(Seconds{seconds}); }

// The first timeline with a measured or predicted step.
const Timeline* timeline_of(const Run& run, bool measured) {
  const auto found = std::ranges::find_if(run.timelines, [&](const Timeline& timeline) {
    return (measured ? timeline.measured_seconds : timeline.predicted_seconds).has_value();
  });
  return found == run.timelines.end() ? nullptr : &*found;
}

std::string limit(const Run& run, const StepParts& parts) {
  std::array<Part, kParts.size()> order = kParts;
  std::ranges::stable_sort(order, [&](const Part& a, const Part& b) { return parts.*a.share > parts.*b.share; });
  const Timeline* timeline = timeline_of(run, parts.measured);
  const std::string step =
      !timeline ? std::string("The step")
                : fmt::format("Step {}, {} {},", timeline->step,
                              !parts.measured        ? "predicted to take"
                              : run.emulated.empty() ? "measured at"
                                                     : "emulated at",
                              duration(*(parts.measured ? timeline->measured_seconds : timeline->predicted_seconds)));
  std::string text =
      fmt::format("{} is limited by {}: {} of the ranks' time", step, order[0].name, percent(parts.*order[0].share));
  if (parts.*order[1].share >= 0.01)
    text += fmt::format(", then {} ({})", order[1].name, percent(parts.*order[1].share));
  return text + ".";
}

// The gain of the chosen plan over the quickest single strategy that fits.
std::string gain(const std::vector<Candidate>& candidates) {
  const auto chosen =
      std::ranges::find_if(candidates, [](const Candidate& c) { return c.chosen && c.seconds.has_value(); });
  if (chosen == candidates.end()) return "";
  const Candidate* single = nullptr;
  bool compared = false;
  for (const Candidate& c : candidates) {
    compared |= c.single && !c.chosen;
    if (c.single && c.fits && c.seconds && (!single || *c.seconds < *single->seconds)) single = &c;
  }
  if (!compared) return "";
  if (!single) return "No single strategy that was compared fits the memory.";
  if (single->chosen) return "One strategy for all documents is the quickest that fits.";
  const double saved = 1 - *chosen->seconds / *single->seconds;
  const std::string other = fmt::format("the best single strategy, {} ({})", single->name, duration(*single->seconds));
  if (saved >= 0.005) return fmt::format("It takes {} less time than {}.", percent(saved), other);
  if (saved <= -1) return fmt::format("It takes {:.1f} times as long as {}.", 1 - saved, other);
  if (saved <= -0.005) return fmt::format("It takes {} more time than {}.", percent(-saved), other);
  return fmt::format("It takes as long as {}.", other);
}

std::string against_prediction(const Run& run) {
  for (const Timeline& timeline : run.timelines) {
    if (!timeline.predicted_seconds || !timeline.measured_seconds || *timeline.predicted_seconds <= 0) continue;
    const double ratio = *timeline.measured_seconds / *timeline.predicted_seconds;
    const std::string how = ratio >= 2      ? fmt::format("{:.1f} times as long", ratio)
                            : ratio > 1.005 ? fmt::format("{} longer than predicted", percent(ratio - 1))
                            : ratio < 0.995 ? fmt::format("{} shorter than predicted", percent(1 - ratio))
                                            : std::string("as predicted");
    return fmt::format("The prediction was {}: {}, the step is {}.", duration(*timeline.predicted_seconds),
                       run.emulated.empty() ? "measured" : "emulated", how);
  }
  return "";
}

std::string remedy(const Run& run, const StepParts& parts) {
  const auto worst = std::max_element(kParts.begin() + 1, kParts.end(),
                                      [&](const Part& a, const Part& b) { return parts.*a.share < parts.*b.share; });
  i64 tokens = 0, computed = 0;
  for (const BucketRow& row : run.buckets) {
    tokens += row.tokens;
    computed += row.computed;
  }
  const double padding =
      computed > 0 ? parts.compute * static_cast<double>(computed - tokens) / static_cast<double>(computed) : 0;
  const double share = parts.*worst->share;
  if (std::max(share, padding) < 0.02)
    return "Ranks hardly wait: what would help most is less computing, such as less recomputation, or quicker devices.";
  if (padding > share)
    return fmt::format("What would help most is less padding: it takes {} of the ranks' time.", percent(padding));
  return fmt::format("What would help most is {}. At stake: {} of the ranks' time.", worst->remedy, percent(share));
}

}  // namespace

std::vector<std::string> headline_of(const Run& run) {
  std::vector<std::string> sentences;
  if (!run.parts.empty()) sentences.push_back(limit(run, run.parts.back()));
  sentences.push_back(gain(run.candidates));
  sentences.push_back(against_prediction(run));
  if (!run.parts.empty()) sentences.push_back(remedy(run, run.parts.back()));
  if (!run.emulated.empty())
    sentences.push_back(
        fmt::format("Steps were emulated: times are those on {}, with cores of one machine as devices.", run.emulated));
  std::erase(sentences, "");
  return sentences;
}

}  // namespace switchyard::report
