// Turns the draft of a job into the job: checks for keys that exclude each other or are missing, and derives the rest.
#pragma once

#include "config/errors.hpp"
#include "config/job_keys.hpp"

namespace switchyard::config {

/// Whether the bucket's strategy is left to the planner. A job of which some buckets are has errors when resolved.
bool is_auto(const BucketDraft& bucket);

inline constexpr double kGpt2Dropout = 0.1;  // with unfused attention, as Hugging Face's GPT2Config

struct Resolution {
  Job job;
  bool complete = false;  // model and strategies are free of errors, so that one can be checked against the other
};

/// Checks the keys against each other, fills in presets and defaults. Strategies given by degrees have no groups yet.
Resolution resolve(const JobDraft& draft, Errors& errors);

/// Where a section ("model", "bucket.0") has the key that an error is about: one that the message names, on the command
/// line if there is one. A bucket without such a key: where it was given; any other section: the job file.
std::string place_of(const JobDraft& draft, const std::string& section, std::string_view message);

/// The job of a draft, as load_job returns it. errors: those found while reading, thrown together with all others.
Job job_of(const JobDraft& draft, Errors& errors);

}  // namespace switchyard::config
