// The tokenizers of a job's model and of its data.
#pragma once

#include <vector>

#include "config/job.hpp"
#include "data/sources.hpp"

namespace switchyard::train {

/// UserError if an id is another token in the tokenizer beside a source's tokens than in that of model.path: the model
/// would read other texts than those that were prepared. Where one of them is not there, nothing is known.
void require_tokenizer_of_model(const config::Job& job, const std::vector<data::Source>& sources);

}  // namespace switchyard::train
