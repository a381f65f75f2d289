// Lines on the terminal about the run that begins.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/units.hpp"
#include "batch/planner.hpp"
#include "cluster/cluster.hpp"
#include "config/job.hpp"

namespace switchyard::train {

/// Facts that the job file does not have.
struct StartFacts {
  i64 documents = 0, tokens = 0;    // size of the data
  batch::WorkModel work;            // flops of a document's forward pass
  Precision precision;              // precision of computation and of the state
  const cluster::Cluster& cluster;  // where the ranks are
  Bytes predicted;                  // highest predicted peak of a rank in the first step
};

inline constexpr size_t kBannerLabel = 10;  // characters of a line's label

/// A line each: model, data, batch, strategies, ranks, memory, and the cluster that is emulated.
std::vector<std::string> start_banner(const config::Job& job, const StartFacts& facts);

}  // namespace switchyard::train
