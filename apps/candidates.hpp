// Plans that a job could have had, for its report.
#pragma once

#include <string>
#include <vector>

#include "cluster/hardware.hpp"
#include "config/job.hpp"
#include "first_step.hpp"
#include "report/page.hpp"

namespace switchyard::apps {

/// The job itself, as it plans and simulates `step`, and each of `specs` ("dp,tp,pp", or "all" of them) alone for the
/// same documents. Peaks are at the worst pace, which a budget must hold; limit: bytes of a rank, 0: none.
/// errors  UserError for a malformed spec; what doesn't fit the model is a candidate that can't run
std::vector<report::Candidate> candidates(const config::Job& job, const compiler::Plans& plans,
                                          const cluster::Hardware& hardware, const PlannedStep& step,
                                          const std::vector<std::string>& specs, i64 limit);

}  // namespace switchyard::apps
