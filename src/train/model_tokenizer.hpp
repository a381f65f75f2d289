// The tokenizers of a model and of a job's data.
#pragma once

#include <string>
#include <vector>

#include "data/sources.hpp"

namespace switchyard::train {

/// UserError if an id is another token in the tokenizer beside a source's tokens than in that of the model's folder:
/// the model would read other texts than those that were prepared. Where one of them is not there, nothing is known.
/// model: empty if there is none.
void require_tokenizer_of_model(const std::string& model, const std::vector<data::Source>& sources);

}  // namespace switchyard::train
