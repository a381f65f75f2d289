// A Hugging Face folder as a whole: what it has beside its weights, and the export of a checkpoint.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/model.hpp"

namespace switchyard::files {

/// Contents of the files beside the weights, by name.
using ModelFiles = std::map<std::string, std::string>;

/// The files beside the weights of a trained model: config.json, generation_config.json, and the tokenizer's files.
/// started_from: folder of the model that training began with, whose keys of config.json are kept where the model
/// agrees with them; empty: none. corpora: of one tokenizer; the first that has it beside it gives its files, and if
/// none has, started_from. Without a chat template of its own it gets that of the first corpus with one. Where a
/// tokenizer lacks tokenizer_config.json or special_tokens_map.json, it gets one. The tokens that begin and end a text
/// are the tokenizer's.
/// errors  UserError naming the file: not a JSON object, or a model that config.json can't express
ModelFiles model_files(const config::ModelConfig& model, DType dtype, const std::filesystem::path& started_from,
                       const std::vector<std::filesystem::path>& corpora);

/// An id of two tokens.
struct TokenClash {
  i64 id = 0;
  std::string first, second;
};
/// The lowest id that tokenizer.json of two folders gives to different tokens; nothing where there is none, also
/// because a folder has no such file. UserError: it is not a JSON object.
std::optional<TokenClash> token_clash(const std::filesystem::path& first, const std::filesystem::path& second);

/// dtype: f32 or bf16. vocab_multiple: the embedding and the head get rows up to a multiple of so many, each the mean
/// of the others, and config.json's vocab_size is as large.
struct ExportSettings {
  DType dtype = DType::f32;
  i64 vocab_multiple = 1;
};

/// Writes the model of a committed checkpoint to the new or empty folder `out`: a new one appears when it is whole, an
/// empty one is filled then. Returns whether the model has a tokenizer. The checkpoint may be removed meanwhile.
/// errors  UserError: `out` is not empty, or another export writes there; weights that are not F32;
///         ClusterError for the disk
bool export_model(const std::filesystem::path& checkpoint, const std::filesystem::path& out,
                  const ExportSettings& settings);

}  // namespace switchyard::files
