// The figures of a step, listed once: the log line and the TensorBoard scalars are two views of one list of fields.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"

namespace switchyard::train {

/// Some of the documents: those of a source, or of a range of lengths. loss: mean over their labels, natural logarithm;
/// nothing if they have none.
struct PartRecord {
  std::string name;
  i64 tokens = 0, labels = 0;
  std::optional<double> loss{};
};

/// One optimizer step, over all ranks. Absent values weren't measured.
struct StepRecord {
  i64 step = 0;                       // number of the step, the first is 1
  std::optional<double> loss{};       // mean over all labels of the global batch, natural logarithm; none without any
  std::vector<PartRecord> sources{};  // empty if there is only one
  double learning_rate = 0;
  double grad_norm = 0;                              // before clipping
  i64 tokens = 0;                                    // tokens of the global batch, padding not counted
  Seconds time{};                                    // wall time of the step
  std::optional<double> matmul_share{};              // achieved / measured matmul peak of the device
  std::vector<Bytes> peak_memory{};                  // each rank's, in the step
  std::vector<Bytes> predicted_peak_memory{};        // the same as predicted before it, at the expected pace
  std::vector<Bytes> peak_memory_bound{};            // the most that it can be, at any pace
  Bytes intra_host_traffic{}, inter_host_traffic{};  // sent by all ranks
  Seconds switch_time{};                             // waited for switches, longest over the ranks
  double padding_share = 0;                          // padding / tokens computed, 0 to 1
  std::optional<double> bubble_share{};              // waiting of compute streams / (ranks * time), 0 to 1
  std::optional<int> slowest_rank{};                 // whose compute stream waited least; of several ranks
  Seconds slowest_rank_time{};                       // that this rank did not wait
  Seconds median_rank_time{};                        // that the median rank did not wait
  std::optional<double> hidden_share{};              // share of transfers beside computing, 0 to 1
  std::optional<Seconds> checkpoint_time{};          // that training stood still for a checkpoint before the step
  std::vector<int> chosen_buckets{};                 // numbers in the job, where each step chooses; otherwise empty
  bool skipped = false;                              // loss or gradient not finite: no update
  std::string emulated{};                            // cluster whose times these are; empty: this machine's own

  /// 0 for a step without duration.
  double tokens_per_second() const;
  double switch_share() const;
};

/// Sets the bubble's share and, of several ranks, the slowest and the median one. waiting: seconds in which each rank's
/// compute stream waited during the record's time.
void set_waiting(StepRecord& record, const std::vector<double>& waiting);

/// Documents that are not trained, after a step. lengths: by bucket, sources: by source; empty if there is only one.
struct ValidationRecord {
  i64 step = 0;
  PartRecord all{};
  std::vector<PartRecord> lengths{}, sources{};
  Seconds time{};
};

/// A line of validation.jsonl. Keys: step, loss, tokens, seconds, and of each bucket ("to 4096") and source (its name)
/// loss/PART and tokens/PART.
nlohmann::ordered_json to_json(const ValidationRecord& record);
/// The same for TensorBoard: "validation/loss" and so on.
std::vector<std::pair<std::string, double>> scalars(const ValidationRecord& record);
/// "validation loss 3.2131, to 4096 3.3012, to 512 3.1950".
std::string to_string(const ValidationRecord& record);

/// A log line. Keys: step, loss, lr, grad_norm, tokens, seconds, tokens_per_second, matmul_share, peak_bytes_per_rank,
/// predicted_peak_bytes_per_rank, peak_bound_bytes_per_rank (arrays), intra_bytes, inter_bytes, switch_seconds,
/// switch_share, padding_share, bubble_share, slowest_rank, slowest_rank_seconds, median_rank_seconds, hidden_share,
/// checkpoint_seconds, loss/NAME and tokens/NAME of each source, chosen_buckets (array), emulated (the cluster),
/// skipped. Absent values are left out.
nlohmann::ordered_json to_json(const StepRecord& record);

/// The same as (tag, value) for TensorBoard: "train/loss" and so on; of an array per rank the largest, such as
/// "train/peak_bytes"; "train/emulated" 1 where times are emulated. Weights & Biases gets them from the log line
/// (switchyard_data/wandb_log.py).
std::vector<std::pair<std::string, double>> scalars(const StepRecord& record);

}  // namespace switchyard::train
