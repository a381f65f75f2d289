// Hugging Face's config.json to and from ModelConfig: llama, mistral, qwen2, qwen3, gpt2, olmo2.
// Defaults of absent keys are those of transformers 4.57.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/dtype.hpp"
#include "config/model.hpp"

namespace switchyard::files {

/// The config.json that `path` is, or the folder that holds it. UserError if there is neither.
std::filesystem::path hf_config_file(const std::filesystem::path& path);
/// `path`: as for hf_config_file. UserError names file, key and what is supported.
config::ModelConfig read_hf_config(const std::filesystem::path& path);
/// The same from text; `origin` names it in messages.
config::ModelConfig hf_config_from_json(const std::string& text, const std::string& origin);
/// Text of a config.json that transformers loads; `dtype`: of the weights beside it. before: the config.json that the
/// model came with; its keys stay, except those in which the model differs from it. UserError for settings that no such
/// file can express.
std::string to_hf_config(const config::ModelConfig& model, DType dtype,
                         const std::optional<std::string>& before = std::nullopt);
/// The text of a config.json for weights of another type.
std::string with_dtype(const std::string& text, DType dtype);

}  // namespace switchyard::files
