// From the draft of a job, as written, to the job: what excludes what, what is missing, what follows from what.
#pragma once

#include "config/errors.hpp"
#include "config/job_keys.hpp"

namespace switchyard::config {

struct Resolution {
  Job job;
  bool complete = false;  // model and strategies are free of errors, so that one can be checked against the other
};

/// Checks the keys against each other, fills in presets and defaults. Strategies given by degrees have no groups yet.
Resolution resolve(const JobDraft& draft, Errors& errors);

/// The job of a draft, as load_job has it. errors: those of reading, thrown together with all others.
Job job_of(const JobDraft& draft, Errors& errors);

}  // namespace switchyard::config
