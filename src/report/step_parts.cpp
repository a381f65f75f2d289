#include "report/step_parts.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>

namespace switchyard::report {
namespace {

constexpr int kNoPhase = -1;

// The number behind a word in a task's name (ir::name_of).
int number_after(std::string_view word, std::string_view name, int otherwise) {
  const size_t at = name.find(word);
  if (at != std::string_view::npos)
    std::from_chars(name.data() + at + word.size(), name.data() + name.size(), otherwise);
  return otherwise;
}

int phase_of(std::string_view name) { return number_after("phase ", name, kNoPhase); }

// Phases whose strategy has several stages.
std::set<int> pipelines_of(const std::vector<std::string>& names) {
  std::set<int> phases;
  for (const std::string& name : names)
    if (number_after("stage ", name, 0) > 0) phases.insert(phase_of(name));
  return phases;
}

// Seconds that intervals cover together. They are added in order of their begins.
class Cover {
 public:
  void add(double begin, double end) {
    const double from = std::max(begin, end_);
    if (end <= from) return;
    seconds_ += end - from;
    end_ = end;
  }
  double seconds() const { return seconds_; }
  double end() const { return end_; }

 private:
  double end_ = 0, seconds_ = 0;
};

// A stretch of a rank without computing. phases: of the tasks before and after; to_end: no run follows.
struct Gap {
  double begin = 0, end = 0;
  int before = kNoPhase, after = kNoPhase;
  bool to_end = false;
};

class TrackParts {
 public:
  TrackParts(const Timeline& timeline, const std::set<int>& pipelines, const Track& track, double step)
      : names_(timeline.names), pipelines_(pipelines), spans_(track.spans) {
    std::stable_sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    double latest = 0;
    for (const Span& span : spans_) latest_.push_back(latest = std::max(latest, span.end));
    Gap gap;
    for (const Span& span : spans_) {
      if (!computes(span.kind) || span.kind == Kind::collective) continue;
      gap.after = phase_of(name(span));
      gap.to_end = gap.after == kNoPhase;  // an update
      add(gap, span.begin);
      parts_.compute += std::max(0.0, span.end - std::max(span.begin, gap.begin));
      gap.begin = std::max(gap.begin, span.end);
      gap.before = gap.after;
    }
    gap.after = kNoPhase;
    gap.to_end = true;
    add(gap, step);
  }
  const StepParts& seconds() const { return parts_; }

 private:
  const std::string& name(const Span& span) const { return names_[static_cast<size_t>(span.name)]; }

  // Covered by the spans of `is` between begin and end.
  template <class Is>
  double covered(const Gap& gap, Is is) const {
    Cover cover;
    const auto first = std::upper_bound(latest_.begin(), latest_.end(), gap.begin) - latest_.begin();
    for (size_t i = static_cast<size_t>(first); i < spans_.size() && spans_[i].begin < gap.end; ++i)
      if (is(spans_[i])) cover.add(std::max(spans_[i].begin, gap.begin), std::min(spans_[i].end, gap.end));
    return cover.seconds();
  }

  void add(Gap gap, double end) {
    gap.end = end;
    if (gap.end <= gap.begin) return;
    const auto collective = [](const Span& span) { return span.kind == Kind::collective; };
    const auto switching = [&](const Span& span) {
      if (span.kind != Kind::move && span.kind != Kind::reduce && (span.kind != Kind::norm || !gap.to_end))
        return false;
      return gap.to_end || phase_of(name(span)) == gap.after;
    };
    const auto sent = [&](const Span& span) {
      return (span.kind == Kind::activation_send || span.kind == Kind::gradient_send) &&
             phase_of(name(span)) == gap.after;
    };
    const double collectives = covered(gap, collective);
    const double up_to_switching = covered(gap, [&](const Span& s) { return collective(s) || switching(s); });
    const double up_to_sends = covered(gap, [&](const Span& s) { return collective(s) || switching(s) || sent(s); });
    parts_.collectives += collectives;
    parts_.switching += up_to_switching - collectives;
    parts_.sends += up_to_sends - up_to_switching;
    const bool for_stages = !gap.to_end && gap.before == gap.after && pipelines_.contains(gap.after);
    (for_stages ? parts_.pipeline : parts_.imbalance) += gap.end - gap.begin - up_to_sends;
  }

  const std::vector<std::string>& names_;
  const std::set<int>& pipelines_;
  std::vector<Span> spans_;
  std::vector<double> latest_;  // end of the spans up to each
  StepParts parts_;
};

// A task's spans on one track, in order of their begins.
struct Stretch {
  Kind kind = Kind::other;
  double begin = 0;
  Cover working;
};

}  // namespace

StepParts parts_of(const Timeline& timeline, bool measured) {
  const std::optional<double>& length = measured ? timeline.measured_seconds : timeline.predicted_seconds;
  const double step = length.value_or(0) > 0 ? *length : 1;
  const std::set<int> pipelines = pipelines_of(timeline.names);
  StepParts mean{.measured = measured};
  double ranks = 0;
  for (const Track& track : timeline.tracks)
    if (track.measured == measured) ranks += static_cast<double>(track.ranks.size());
  for (const Track& track : timeline.tracks) {
    if (track.measured != measured) continue;
    const StepParts seconds = TrackParts(timeline, pipelines, track, step).seconds();
    const double weight = static_cast<double>(track.ranks.size()) / (ranks * step);
    for (double StepParts::*part : {&StepParts::compute, &StepParts::collectives, &StepParts::switching,
                                    &StepParts::sends, &StepParts::pipeline, &StepParts::imbalance})
      mean.*part += weight * (seconds.*part);
    if (seconds.compute / step <= mean.longest) continue;
    mean.longest = seconds.compute / step;
    mean.longest_rank = track.shown;
  }
  return mean;
}

std::vector<LongTask> longest_tasks(const Timeline& timeline, bool measured, size_t most) {
  std::map<int, LongTask> longest;  // by name
  for (const Track& track : timeline.tracks) {
    if (track.measured != measured) continue;
    std::map<int, Stretch> tasks;
    for (const Span& span : track.spans) {
      if (span.kind == Kind::waiting) continue;
      Stretch& task = tasks.try_emplace(span.name, Stretch{span.kind, span.begin, {}}).first->second;
      if (task.kind == Kind::collective) task.kind = span.kind;  // the kind of the run that it belongs to
      task.working.add(span.begin, span.end);
    }
    for (const auto& [name, task] : tasks) {
      LongTask& known = longest[name];
      if (task.working.end() - task.begin <= known.end - known.begin) continue;
      known = {.name = timeline.names[static_cast<size_t>(name)],
               .kind = task.kind,
               .measured = measured,
               .rank = track.shown,
               .begin = task.begin,
               .end = task.working.end(),
               .working = task.working.seconds()};
    }
  }
  std::vector<LongTask> tasks;
  for (auto& [name, task] : longest) tasks.push_back(std::move(task));
  std::ranges::stable_sort(tasks,
                           [](const LongTask& a, const LongTask& b) { return a.end - a.begin > b.end - b.begin; });
  tasks.resize(std::min(tasks.size(), most));
  return tasks;
}

}  // namespace switchyard::report
