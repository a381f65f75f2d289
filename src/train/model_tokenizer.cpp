#include "train/model_tokenizer.hpp"

#include "base/errors.hpp"
#include "files/model_folder.hpp"

namespace switchyard::train {

void require_tokenizer_of_model(const config::Job& job, const std::vector<data::Source>& sources) {
  if (job.model.path.empty()) return;
  for (const data::Source& source : sources)
    if (const auto clash = files::token_clash(source.corpus.folder(), job.model.path))
      user_error(
          "{0} was prepared with another tokenizer than that of the model in {1}: id {2} is \"{3}\" there and \"{4}\" "
          "in "
          "the model. Prepare it again with --tokenizer {1}.",
          source.corpus.folder(), job.model.path, clash->id, clash->first, clash->second);
}

}  // namespace switchyard::train
