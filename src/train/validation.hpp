// The loss of documents that are not trained.
#pragma once

#include <functional>
#include <vector>

#include "batch/planner.hpp"
#include "config/job.hpp"
#include "data/sources.hpp"
#include "train/metrics.hpp"
#include "train/rank.hpp"

namespace switchyard::train {

/// The documents of [validation]: those that a run with these as its data would train on first, the same each time.
/// Every document runs under the strategy of its bucket, forward only, without dropout. Collective: every rank calls
/// the same functions in the same order.
class Validation {
 public:
  /// Job and sources must outlive it.
  /// errors  UserError as Rank::assemble if the memory does not suffice
  Validation(const config::Job& job, const std::vector<data::Source>& sources, Rank& rank, comm::Fabric& fabric);

  /// make_room: called when the memory that is needed is known (Rank::bound), before any is taken.
  ValidationRecord run(Rank& rank, const std::function<void()>& make_room);

 private:
  // Each source and range of lengths has a loss of its own.
  runtime::Labels labels_of(const std::vector<bool>& read) const;
  ValidationRecord record_of(const std::vector<double>& loss) const;

  const config::Job& job_;
  comm::Fabric& fabric_;
  const std::vector<data::Source>& sources_;
  const std::vector<data::Sequence> sequences_;
  const compiler::Plans plans_;         // forward only
  const std::vector<i64> max_lengths_;  // of the job's buckets, longest first, each once
  std::vector<int> range_;              // of each sequence, an index of these
  batch::StepPlan plan_;
  i64 runs_ = 0;
};

}  // namespace switchyard::train
