// What a report page shows, as plain values: filled by the builders of this layer, turned into a page by html_of.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "compiler/memory.hpp"

namespace switchyard::report {

/// What a stretch of a rank's time is spent on.
enum class Kind {
  forward,
  backward,
  weight_gradient,
  collective,
  activation_send,
  gradient_send,
  move,
  reduce,
  norm,
  update,
  waiting,
  other
};
inline constexpr size_t kKinds = 12;
const char* name_of(Kind kind);
/// Of a row by its name (ir::name_of). communication: a transfer; inside a run that is a collective.
Kind kind_of(const std::string& row, bool communication);
/// Whether it occupies the compute stream.
bool computes(Kind kind);

/// Seconds from the step's start. name: index into Timeline::names.
struct Span {
  double begin = 0, end = 0;
  Kind kind = Kind::other;
  int name = 0;
  bool operator==(const Span&) const = default;
};

/// Ranks that behave alike, drawn as one. ranks: ascending; shown: the one whose spans stand for all.
struct Track {
  std::vector<int> ranks{};
  int shown = 0;
  bool measured = false;
  std::vector<Span> spans{};
};

/// One step. folded: how alike the ranks of a track are, as a sentence; "" where each has a track of its own.
struct Timeline {
  i64 step = 1;
  std::optional<double> predicted_seconds{}, measured_seconds{};
  std::vector<std::string> names{};
  std::vector<Track> tracks{};
  std::string folded{};
  i64 merged = 0;  // spans that were joined with a neighbour to bound the page
};

/// Bytes of a rank by class while the step runs: bytes[i] from seconds[i] until seconds[i + 1].
struct MemoryCurve {
  std::vector<int> ranks{};
  std::vector<double> seconds{};
  std::vector<std::array<i64, compiler::kMemoryClasses>> bytes{};
};

/// budget: bytes, 0: none; limit_name says what it is. Peaks: per rank, in bytes; empty if unknown.
struct Memory {
  i64 budget = 0;
  std::string limit_name{};
  std::vector<MemoryCurve> curves{};
  std::vector<i64> predicted_peak{}, measured_peak{};
};

/// A run's log by columns; a value that was not measured or isn't finite is absent.
struct Series {
  std::string name{};
  std::vector<std::optional<double>> values{};
};
struct Steps {
  std::vector<i64> step{};
  std::vector<Series> series{};
};

/// A bucket in the step shown. seconds: from its first to its last computation, over all ranks.
struct BucketRow {
  std::string strategy{};
  i64 max_length = 0, documents = 0, tokens = 0, computed = 0, micro_batches = 0;
  int ranks = 0, replicas = 0;
  std::optional<double> predicted_seconds{}, measured_seconds{};
  double padding_share() const {
    return computed > 0 ? static_cast<double>(computed - tokens) / static_cast<double>(computed) : 0;
  }
};

/// What all ranks send in a step, by class of link.
struct LinkUse {
  std::string what{};
  i64 intra = 0, inter = 0;  // bytes
};

/// Who sends how much to whom in one switch or reduce. Above kMostMatrixRanks ranks it is folded to hosts.
struct Matrix {
  struct Cell {
    int from = 0, to = 0;
    i64 bytes = 0;
  };
  std::string title{};
  bool by_host = false;
  int size = 0;
  std::vector<Cell> cells{};
  i64 intra = 0, inter = 0;
  std::optional<i64> inter_bound{};  // least that any plan could send between hosts
};
inline constexpr int kMostMatrixRanks = 64;

/// A plan that could have been chosen. seconds, peak: predicted for the step shown; absent where it can't run.
struct Candidate {
  std::string name{};
  std::optional<double> seconds{};
  std::optional<i64> peak{};  // bytes of the rank with the highest peak
  bool fits = true, chosen = false;
  std::string remark{};
};

/// Shares of a step, mean over ranks that behave alike.
struct TimeShare {
  std::vector<int> ranks{};
  double compute = 0, overlap = 0, communication = 0, idle = 0;  // compute, communication: without the overlap
};

/// One run, measured or simulated. facts: what it is, tiles: its figures, both (name, value) for people.
struct Run {
  std::string name{};
  bool simulated = false;
  std::vector<std::pair<std::string, std::string>> facts{}, tiles{};
  std::vector<std::string> notes{};
  std::optional<Steps> steps{};
  std::vector<Timeline> timelines{};
  std::optional<Memory> memory{};
  std::vector<BucketRow> buckets{};
  std::vector<LinkUse> links{};
  std::vector<Matrix> matrices{};
  std::vector<Candidate> candidates{};
  std::vector<TimeShare> shares{};
};

struct Page {
  std::string title{};
  std::vector<Run> runs{};
};

nlohmann::ordered_json to_json(const Candidate& candidate);
/// The page's data as the page's script reads it. Times are rounded to nanoseconds.
nlohmann::ordered_json to_json(const Page& page);
/// "0..3, 8": ascending ranks.
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace switchyard::report
