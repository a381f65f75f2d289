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

/// Those on which a run with these as its data would train first, each once: `count`, or all of them. Where a source
/// has no more, the others have its share.
std::vector<data::Sequence> first_documents(const config::Job& job, const std::vector<data::Source>& sources,
                                            i64 count);

/// Documents run under the strategy of their bucket, forward only, without dropout. Collective: every rank calls the
/// same functions in the same order.
class Validation {
 public:
  /// The documents of [validation]: its first_documents, the same each time.
  /// Each bucket's range of lengths has a loss of its own. Job, sources and rank must outlive it.
  /// errors  UserError as Rank::assemble if the memory does not suffice
  Validation(const config::Job& job, const std::vector<data::Source>& sources, Rank& rank, comm::Fabric& fabric);
  /// The same for the documents that take() gets. max_lengths: ends of the ranges of lengths, the longest first.
  Validation(const config::Job& job, const std::vector<data::Source>& sources, std::vector<i64> max_lengths, Rank& rank,
             comm::Fabric& fabric);

  /// From now on these documents.
  void take(std::vector<data::Sequence> sequences);
  /// make_room: called when the memory that is needed is known (Rank::bound), before any is taken.
  ValidationRecord run(const std::function<void()>& make_room = [] {});

 private:
  // Each source and range of lengths has a loss of its own.
  runtime::Labels labels_of(const std::vector<bool>& read) const;
  ValidationRecord record_of(const std::vector<double>& loss) const;

  const config::Job& job_;
  comm::Fabric& fabric_;
  Rank& rank_;
  const std::vector<data::Source>& sources_;
  const compiler::Plans plans_;         // forward only
  const std::vector<i64> max_lengths_;  // longest document of each range, longest first
  std::vector<data::Sequence> sequences_;
  std::vector<int> range_;  // range of each sequence, an index of max_lengths_
  batch::StepPlan plan_;
  i64 transactions_ = 0;
};

}  // namespace switchyard::train
