// `switchyard evaluate`: the loss of a model on documents, without training.
#pragma once

#include <functional>
#include <optional>

#include "comm/launch.hpp"
#include "config/job.hpp"
#include "train/metrics.hpp"

namespace switchyard::train {

/// job: model.path is the folder with the weights, the data is what they are evaluated on. sequences: so many of its
/// documents, those that [validation] with this number would take; 0: all, once each. progress: is called on rank 0
/// with the tokens that are done and all tokens, before the first of them and after tokens_per_rank for each rank.
struct EvaluateSettings {
  config::Job job{};
  i64 sequences = 0;
  i64 tokens_per_rank = i64{1} << 18;
  std::function<void(i64 done, i64 all)> progress{};
};

/// Ranks hold the weights in the precision of computation, and nothing for an optimizer.
/// The mean loss over all labels, by source and by length: up to the context, up to a half of it, and so on down to 256
/// tokens. Nothing in processes that don't have rank 0.
/// errors  UserError: data or weights that are missing or don't fit each other, or a model that does not fit the
/// memory;
///         ClusterError: a rank failed or stopped responding
std::optional<ValidationRecord> evaluate(EvaluateSettings settings, const comm::Launch& launch);

}  // namespace switchyard::train
