// What a run is about to do, for the terminal.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/units.hpp"
#include "batch/planner.hpp"
#include "cluster/cluster.hpp"
#include "config/job.hpp"

namespace switchyard::train {

/// What the job file does not say.
struct StartFacts {
  i64 documents = 0, tokens = 0;    // of the data
  batch::WorkModel work;            // flops of a document's forward pass
  Precision precision;              // of computation and of the state
  const cluster::Cluster& cluster;  // of the ranks
  Bytes predicted;                  // highest predicted peak of a rank in the first step
};

inline constexpr size_t kBannerLabel = 10;  // characters of a line's label

/// A line each: model, data, batch, strategies, ranks, memory, and the cluster that is emulated.
std::vector<std::string> start_banner(const config::Job& job, const StartFacts& facts);

}  // namespace switchyard::train
