// What a job says of its batches, as the sampler takes it.
#pragma once

#include "config/job.hpp"
#include "data/sampler.hpp"

namespace switchyard::data {

Sampler::Settings sampler_settings(const config::Job& job);

/// Lengths of the documents of steps 0 ... count - 1 by batch.lengths: "full", or a histogram's file.
/// errors  UserError as read_length_bins and draw_lengths
std::vector<std::vector<i64>> given_lengths(const config::Job& job, int count);

}  // namespace switchyard::data
