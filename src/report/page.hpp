// The contents of a report page as plain values. The other files of this layer fill them; html_of makes the page.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "batch/document_places.hpp"
#include "compiler/memory.hpp"

namespace switchyard::report {

/// What a rank does during a span of time.
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
/// The kind of a task by its name (ir::name_of). communication: a transfer; within a run that is a collective.
Kind kind_of(const std::string& task, bool communication);
/// Whether such a span occupies the compute stream.
bool computes(Kind kind);

/// Seconds from the step's start. name: index into Timeline::names. busy: share of the span in which its kind works,
/// below 1 only where short spans were joined.
struct Span {
  double begin = 0, end = 0;
  Kind kind = Kind::other;
  int name = 0;
  double busy = 1;
  bool operator==(const Span&) const = default;
};

/// Ranks that are drawn as one row. ranks: ascending; shown: the rank whose spans are drawn.
struct Track {
  std::vector<int> ranks{};
  int shown = 0;
  bool measured = false;
  std::vector<Span> spans{};
};

/// tokens: with padding.
struct MicroBatchLabel {
  i64 documents = 0, tokens = 0;
};

/// What a phase of a step runs. layers: "0-15" by group and stage; group, micro_batches: of each replica.
struct PhaseLabel {
  std::string strategy{};
  std::vector<std::vector<std::string>> layers{};
  std::vector<int> group{};
  std::vector<std::vector<MicroBatchLabel>> micro_batches{};
};

/// One step. phases: none where the step's plan is unknown. folded: a sentence on what the ranks of a track have in
/// common; "" where each has a track of its own.
struct Timeline {
  i64 step = 1;
  std::optional<double> predicted_seconds{}, measured_seconds{};
  std::vector<std::string> names{};
  std::vector<Track> tracks{};
  std::vector<PhaseLabel> phases{};
  std::string folded{};
  i64 merged = 0;  // spans that were joined with a neighbour to limit the size of the page
};

/// Bytes of a rank by class while the step runs: bytes[i] from seconds[i] until seconds[i + 1].
struct MemoryCurve {
  std::vector<int> ranks{};
  std::vector<double> seconds{};
  std::vector<std::array<i64, compiler::kMemoryClasses>> bytes{};
};

/// budget: bytes, 0: none; limit_name: its name. Peaks: bytes per rank; empty if unknown.
struct Memory {
  i64 budget = 0;
  std::string limit_name{};
  std::vector<MemoryCurve> curves{};
  std::vector<i64> predicted_peak{}, measured_peak{};
};

/// A run's log by columns; values that were not measured or are not finite are absent.
struct Series {
  std::string name{};
  std::vector<std::optional<double>> values{};
};
struct Steps {
  std::vector<i64> step{};
  std::vector<Series> series{};
};

/// A bucket in the step shown. seconds: from the start of its first task to the end of its last, over all ranks.
/// min_length: of the documents that it takes; absent where the step doesn't use it (run.choose_buckets).
struct BucketRow {
  std::string strategy{};
  std::optional<i64> min_length{};
  i64 max_length = 0, documents = 0, tokens = 0, computed = 0, micro_batches = 0;
  int ranks = 0, replicas = 0;
  std::optional<double> predicted_seconds{}, measured_seconds{};
  double padding_share() const {
    return computed > 0 ? static_cast<double>(computed - tokens) / static_cast<double>(computed) : 0;
  }
};

/// Where the documents of the step shown lie. lengths: tokens of each document; strategies: names, of each phase.
struct Documents {
  i64 step = 1;
  std::vector<i64> lengths{};
  std::vector<std::string> strategies{};
  std::vector<batch::PhasePlaces> phases{};
};

/// Bytes that all ranks send in a step, by class of link.
struct LinkUse {
  std::string what{};
  i64 intra = 0, inter = 0;  // bytes
};

/// Bytes between each pair of ranks in one switch or reduce; between hosts if there are over kMostMatrixRanks ranks.
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
  std::optional<i64> inter_bound{};  // lower bound for bytes between hosts in any plan
};
inline constexpr int kMostMatrixRanks = 64;

/// A plan that was compared. seconds, peak: predicted for the step shown; absent where it can't run. single: one
/// strategy for all documents.
struct Candidate {
  std::string name{};
  std::optional<double> seconds{};
  std::optional<i64> peak{};  // bytes of the rank with the highest peak
  bool fits = true, chosen = false, single = false;
  std::string remark{};
};

/// Shares of a step, means over ranks with nearly equal shares.
struct TimeShare {
  std::vector<int> ranks{};
  double compute = 0, overlap = 0, communication = 0, idle = 0;  // compute, communication: without the overlap
};

/// Where the time of a step goes: shares of the step, means over ranks, which sum to 1. Collectives that go by under
/// computing count as computing.
struct StepParts {
  bool measured = false;
  double compute = 0;
  double collectives = 0;  // inside stages, while nothing else computes
  double switching = 0;    // waiting while parameters come or gradients go
  double sends = 0;        // waiting while activations or gradients pass between stages
  double pipeline = 0;     // waiting for other stages
  double imbalance = 0;    // waiting for other ranks: other strategies or replicas, or at the step's end
  int longest_rank = 0;    // the rank that computes longest
  double longest = 0;      // its share of computing
};

/// A task on the rank where it takes longest. working: seconds between begin and end in which it computes or transfers.
struct LongTask {
  std::string name{};  // ir::name_of
  Kind kind = Kind::other;
  bool measured = false;
  int rank = 0;
  double begin = 0, end = 0, working = 0;
};

/// One run, measured or simulated. facts: its settings, tiles: its results, both as texts (name, value).
struct Run {
  std::string name{};
  bool simulated = false;
  std::string emulated{};  // cluster whose times measured ones are; empty: the machine's own
  std::vector<std::pair<std::string, std::string>> facts{}, tiles{};
  std::vector<std::string> notes{};
  std::optional<Steps> steps{};
  std::vector<Timeline> timelines{};
  std::optional<Memory> memory{};
  std::vector<BucketRow> buckets{};
  std::optional<Documents> documents{};
  std::vector<LinkUse> links{};
  std::vector<Matrix> matrices{};
  std::vector<Candidate> candidates{};
  std::vector<TimeShare> shares{};
  std::vector<StepParts> parts{};   // parts of the step shown: predicted, measured, or both
  std::vector<LongTask> longest{};  // tasks of the step shown, the longest first
};

struct Page {
  std::string title{};
  std::vector<Run> runs{};
};

nlohmann::ordered_json to_json(const Candidate& candidate);
/// The data for the page's script. Times are rounded to nanoseconds.
nlohmann::ordered_json to_json(const Page& page);
/// "0..3, 8": ascending ranks.
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace switchyard::report
