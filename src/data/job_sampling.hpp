// The batch settings of a job in the sampler's form.
#pragma once

#include "config/job.hpp"
#include "data/sampler.hpp"

namespace switchyard::data {

Sampler::Settings sampler_settings(const config::Job& job);

/// Lengths of the documents of steps first ... first + count - 1, by batch.lengths: "full", or a histogram's file.
/// errors  UserError as read_length_bins and draw_lengths
std::vector<std::vector<i64>> given_lengths(const config::Job& job, int count, i64 first = 0);

}  // namespace switchyard::data
