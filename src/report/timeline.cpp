#include "report/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "report/kept_file.hpp"

namespace switchyard::report {
namespace {

class Names {
 public:
  explicit Names(std::vector<std::string>& list) : list_(list) {
    for (size_t i = 0; i < list.size(); ++i) index_[list[i]] = static_cast<int>(i);
  }
  int of(const std::string& name) {
    const auto [it, fresh] = index_.try_emplace(name, static_cast<int>(list_.size()));
    if (fresh) list_.push_back(name);
    return it->second;
  }

 private:
  std::vector<std::string>& list_;
  std::map<std::string, int> index_;
};

bool by_begin(const Span& a, const Span& b) { return a.begin < b.begin; }

void add_waiting(std::vector<Span>& spans) {
  std::stable_sort(spans.begin(), spans.end(), by_begin);
  std::vector<Span> waits;
  double free = 0;
  for (const Span& span : spans) {
    if (!computes(span.kind)) continue;
    if (span.begin > free)
      waits.push_back({.begin = free, .end = span.begin, .kind = Kind::waiting, .name = span.name});
    free = std::max(free, span.end);
  }
  spans.insert(spans.end(), waits.begin(), waits.end());
  std::stable_sort(spans.begin(), spans.end(), by_begin);
}

// Tracks with equal keys are folded.
using Key = std::vector<std::uint64_t>;

Key equal_key(const Track& track) {
  Key key{track.measured};
  for (const Span& span : track.spans)
    key.insert(key.end(), {static_cast<std::uint64_t>(span.kind), std::bit_cast<std::uint64_t>(span.begin),
                           std::bit_cast<std::uint64_t>(span.end)});
  return key;
}

Key compute_key(const Track& track) {
  Key key{track.measured};
  for (const Span& span : track.spans)
    if (computes(span.kind))
      key.insert(key.end(), {static_cast<std::uint64_t>(span.kind), std::bit_cast<std::uint64_t>(span.begin),
                             std::bit_cast<std::uint64_t>(span.end)});
  return key;
}

// Kinds of tasks in order. A task counts once, because ranks are interrupted at different points.
Key task_key(const Track& track) {
  Key key{track.measured};
  int task = -1;
  for (const Span& span : track.spans) {
    if (!computes(span.kind) || span.kind == Kind::collective || span.name == task) continue;
    key.push_back(static_cast<std::uint64_t>(span.kind));
    task = span.name;
  }
  return key;
}

double busy(const Track& track) {
  double seconds = 0;
  for (const Span& span : track.spans)
    if (computes(span.kind)) seconds += span.end - span.begin;
  return seconds;
}

template <class KeyOf>
void fold(Timeline& timeline, KeyOf key_of) {
  std::map<Key, size_t> first;
  std::vector<Track> tracks;
  for (Track& track : timeline.tracks) {
    const auto [it, fresh] = first.try_emplace(key_of(track), tracks.size());
    if (fresh) {
      tracks.push_back(std::move(track));
      continue;
    }
    std::vector<int>& ranks = tracks[it->second].ranks;
    ranks.insert(ranks.end(), track.ranks.begin(), track.ranks.end());
    std::sort(ranks.begin(), ranks.end());
  }
  timeline.tracks = std::move(tracks);
}

Track joined(const std::vector<const Track*>& tracks) {
  Track one = *tracks[tracks.size() / 2];
  one.ranks.clear();
  for (const Track* track : tracks) one.ranks.insert(one.ranks.end(), track->ranks.begin(), track->ranks.end());
  std::sort(one.ranks.begin(), one.ranks.end());
  return one;
}

void sort_by_rank(std::vector<Track>& tracks) {
  std::stable_sort(tracks.begin(), tracks.end(),
                   [](const Track& a, const Track& b) { return a.ranks.front() < b.ranks.front(); });
}

// Joins tracks that are neighbours by tasks and busy time. Each task list gets its share of `most`, at least one track.
void fold_by_tasks(Timeline& timeline, size_t most) {
  std::map<Key, std::vector<const Track*>> by_tasks;
  for (const Track& track : timeline.tracks) by_tasks[task_key(track)].push_back(&track);
  if (by_tasks.size() > most) {
    std::vector<const Track*> all;
    for (const auto& [key, tracks] : by_tasks) all.insert(all.end(), tracks.begin(), tracks.end());
    by_tasks = {{Key{}, std::move(all)}};
  }
  const size_t spare = most - by_tasks.size();
  std::vector<Track> folded;
  for (auto& [key, tracks] : by_tasks) {
    std::stable_sort(tracks.begin(), tracks.end(), [](const Track* a, const Track* b) { return busy(*a) < busy(*b); });
    const size_t parts = std::min(tracks.size(), 1 + spare * tracks.size() / timeline.tracks.size());
    for (size_t part = 0; part < parts; ++part)
      folded.push_back(joined({tracks.begin() + static_cast<std::ptrdiff_t>(part * tracks.size() / parts),
                               tracks.begin() + static_cast<std::ptrdiff_t>((part + 1) * tracks.size() / parts)}));
  }
  sort_by_rank(folded);
  timeline.tracks = std::move(folded);
}

size_t spans_of(const Timeline& timeline) {
  size_t count = 0;
  for (const Track& track : timeline.tracks) count += track.spans.size();
  return count;
}

// Joins a span with the one of its kind before it if the gap and one of both are shorter than `shortest`.
std::vector<Span> merged(const std::vector<Span>& spans, double shortest, i64& gone) {
  std::array<int, kKinds> last;
  last.fill(-1);
  std::vector<Span> out;
  for (const Span& span : spans) {
    int& before = last[static_cast<size_t>(span.kind)];
    if (before >= 0 && span.begin - out[static_cast<size_t>(before)].end < shortest &&
        (span.end - span.begin < shortest ||
         out[static_cast<size_t>(before)].end - out[static_cast<size_t>(before)].begin < shortest)) {
      Span& joined = out[static_cast<size_t>(before)];
      const double working = joined.busy * (joined.end - joined.begin) + span.busy * (span.end - span.begin);
      joined.end = std::max(joined.end, span.end);
      joined.busy = std::min(1.0, working / (joined.end - joined.begin));
      ++gone;
      continue;
    }
    before = static_cast<int>(out.size());
    out.push_back(span);
  }
  return out;
}

Timeline timeline_of_events(const config::Node& events, i64 step) {
  constexpr i64 kMostRanks = 1 << 20;
  constexpr double kMicrosecond = 1e-6;
  Timeline timeline{.step = step};
  Names names(timeline.names);
  std::map<int, Track> tracks;
  double last = 0;
  const auto seconds = [](const config::Node& node) {
    return kMicrosecond * node.number(0, kMostSeconds / kMicrosecond);
  };
  for (const config::Node& event : events.items()) {
    if (event["ph"].text() != "X") continue;
    const int rank = static_cast<int>(event["pid"].integer(0, kMostRanks - 1));
    const std::string name = event["name"].text(), category = event.has("cat") ? event["cat"].text() : "";
    const double begin = seconds(event["ts"]), end = begin + seconds(event["dur"]);
    Track& track = tracks[rank];
    track.spans.push_back(
        {.begin = begin, .end = end, .kind = kind_of(name, category == "communication"), .name = names.of(name)});
    last = std::max(last, end);
  }
  for (auto& [rank, track] : tracks) {
    track.ranks = {rank};
    track.shown = rank;
    track.measured = true;
    add_waiting(track.spans);
    timeline.tracks.push_back(std::move(track));
  }
  timeline.measured_seconds = last;
  return timeline;
}

}  // namespace

Timeline predicted_timeline(const ir::Program& program, const simulator::Simulation& simulation) {
  Timeline timeline;
  Names names(timeline.names);
  for (int rank = 0; rank < static_cast<int>(program.of_rank.size()); ++rank) {
    Track track{.ranks = {rank}, .shown = rank};
    for (const int row : program.of_rank[static_cast<size_t>(rank)]) {
      const simulator::TaskTime& time = simulation.tasks[static_cast<size_t>(row)];
      if (time.spans.empty()) continue;
      const std::string name = ir::name_of(program.tasks[static_cast<size_t>(row)]);
      const int index = names.of(name);
      for (const simulator::Span& span : time.spans)
        if (span.end > span.begin)
          track.spans.push_back(
              {.begin = span.begin, .end = span.end, .kind = kind_of(name, span.communication), .name = index});
    }
    add_waiting(track.spans);
    timeline.tracks.push_back(std::move(track));
  }
  timeline.predicted_seconds = simulation.step_seconds;
  return timeline;
}

MeasuredStep measured_timeline(const std::string& text, const std::string& origin) {
  return read_kept(text, origin, "timeline of a run", "Remove it, or train again with run.trace_step.",
                   [](const config::Node& trace) {
                     i64 step = 1;
                     cluster::Cluster cluster;
                     std::string job, emulated;
                     if (trace.has("otherData")) {
                       const config::Node other = trace["otherData"];
                       if (other.has("step")) step = other["step"].integer(1, std::numeric_limits<i64>::max());
                       if (other.has("hosts")) {
                         const std::vector<config::Node> ranks = other["hosts"].items();
                         for (const config::Node& host : ranks)
                           cluster.host.push_back(static_cast<int>(host.integer(0, std::ssize(ranks) - 1)));
                       }
                       if (other.has("overlap_collectives"))
                         cluster.overlaps_collectives = other["overlap_collectives"].boolean();
                       if (other.has("job")) job = other["job"].text();
                       if (other.has("emulated")) emulated = other["emulated"].text();
                     }
                     return MeasuredStep{timeline_of_events(trace["traceEvents"], step), std::move(cluster),
                                         std::move(job), std::move(emulated)};
                   });
}

void fold_equal(Timeline& timeline) {
  const size_t before = timeline.tracks.size();
  fold(timeline, equal_key);
  if (timeline.tracks.size() < before) timeline.folded = "Ranks of one row have exactly the same times.";
}

void fold_similar(Timeline& timeline, size_t most) {
  if (timeline.tracks.size() <= most) return;
  fold(timeline, compute_key);
  timeline.folded = "Ranks of one row compute at exactly the same times; the transfers are those of one of them.";
  if (timeline.tracks.size() <= most) return;
  fold_by_tasks(timeline, most);
  timeline.folded =
      "Ranks of one row have the same kinds of tasks in the same order and of similar lengths; the times are those of "
      "one of them.";
}

void fold_as(Timeline& measured, const Timeline& predicted) {
  std::map<int, const Track*> of_rank;
  for (const Track& track : measured.tracks) of_rank[track.shown] = &track;
  std::vector<Track> tracks;
  for (const Track& group : predicted.tracks)
    if (const auto found = of_rank.find(group.shown); found != of_rank.end())
      tracks.push_back({.ranks = group.ranks, .shown = group.shown, .measured = true, .spans = found->second->spans});
  measured.tracks = std::move(tracks);
  measured.folded = "The times are those of one rank of the row.";
}

void merge_short(Timeline& timeline, size_t most) {
  double last = 0;
  for (const Track& track : timeline.tracks)
    for (const Span& span : track.spans) last = std::max(last, span.end);
  for (double shortest = last / 65536; spans_of(timeline) > most && shortest < 2 * last; shortest *= 2)
    for (Track& track : timeline.tracks) track.spans = merged(track.spans, shortest, timeline.merged);
}

Timeline side_by_side(Timeline predicted, Timeline measured) {
  Timeline both = std::move(predicted);
  both.step = measured.step;
  both.measured_seconds = measured.measured_seconds;
  both.merged += measured.merged;
  if (both.folded != measured.folded)
    both.folded = fmt::format("{}{}{}", both.folded.empty() ? "" : "Predicted: " + both.folded,
                              both.folded.empty() || measured.folded.empty() ? "" : " ",
                              measured.folded.empty() ? "" : "Measured: " + measured.folded);
  Names names(both.names);
  for (Track& track : measured.tracks) {
    for (Span& span : track.spans) span.name = names.of(measured.names[static_cast<size_t>(span.name)]);
    both.tracks.push_back(std::move(track));
  }
  sort_by_rank(both.tracks);
  return both;
}

std::vector<TimeShare> time_shares(const simulator::Simulation& simulation) {
  std::vector<TimeShare> shares;
  std::map<std::array<i64, 4>, size_t> found;
  const double step = simulation.step_seconds > 0 ? simulation.step_seconds : 1;
  for (size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    const simulator::RankTime& time = simulation.ranks[rank];
    const std::array<double, 4> parts{(time.compute - time.overlap) / step, time.overlap / step,
                                      (time.communication - time.overlap) / step, time.idle / step};
    std::array<i64, 4> key;
    for (size_t p = 0; p < 4; ++p) key[p] = std::llround(1000 * parts[p]);
    const auto [it, fresh] = found.try_emplace(key, shares.size());
    if (fresh) shares.emplace_back();
    TimeShare& share = shares[it->second];
    share.ranks.push_back(static_cast<int>(rank));
    const double weight = 1 / static_cast<double>(share.ranks.size());
    const auto mean = [&](double& value, double part) { value += weight * (part - value); };
    mean(share.compute, parts[0]);
    mean(share.overlap, parts[1]);
    mean(share.communication, parts[2]);
    mean(share.idle, parts[3]);
  }
  return shares;
}

}  // namespace switchyard::report
