// Alternative plans of a job, for its report.
#pragma once

#include <string>
#include <vector>

#include "cluster/hardware.hpp"
#include "config/job.hpp"
#include "first_step.hpp"
#include "report/page.hpp"

namespace switchyard::apps {

/// The job itself with its planned `step`, and each strategy of `specs` ("dp,tp,pp", or "all") alone for the same
/// documents. Peaks are those of the worst execution order, which the budget must hold. limit: bytes per rank, 0: none.
/// errors  UserError for a malformed spec; a strategy that doesn't fit the model is a candidate that can't run
std::vector<report::Candidate> candidates(const config::Job& job, const compiler::Plans& plans,
                                          const cluster::Hardware& hardware, const PlannedStep& step,
                                          const std::vector<std::string>& specs, i64 limit);

}  // namespace switchyard::apps
