#include "train/model_tokenizer.hpp"

#include "base/errors.hpp"
#include "files/model_folder.hpp"

namespace switchyard::train {

void require_tokenizer_of_model(const std::string& model, const std::vector<data::Source>& sources) {
  if (model.empty()) return;
  for (const data::Source& source : sources)
    if (const auto clash = files::token_clash(source.corpus.folder(), model))
      user_error(
          "{0} was prepared with another tokenizer than that of the model in {1}: id {2} is \"{3}\" there and \"{4}\" "
          "in "
          "the model. Prepare it again with --tokenizer {1}.",
          source.corpus.folder(), model, clash->id, clash->first, clash->second);
}

}  // namespace switchyard::train
