// What a job says of its batches, as the sampler takes it.
#pragma once

#include "config/job.hpp"
#include "data/sampler.hpp"

namespace switchyard::data {

Sampler::Settings sampler_settings(const config::Job& job);

/// Lengths of the documents of `count` steps from index `first` on by batch.lengths: "full", or a histogram's file.
/// errors  UserError as read_length_bins and draw_lengths
std::vector<std::vector<i64>> given_lengths(const config::Job& job, int count, i64 first = 0);

}  // namespace switchyard::data
