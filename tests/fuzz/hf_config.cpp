// Any text as a config.json: a UserError, or a model that prints to a config.json which reads back the same.
#include "files/hf_config.hpp"

#include <cstdint>

#include "base/errors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, size_t size) {
  using namespace switchyard;
  const std::string text(reinterpret_cast<const char*>(data), size);
  config::ModelConfig model;
  try {
    model = files::hf_config_from_json(text, "fuzz");
  } catch (const UserError&) {
    return 0;
  }
  const std::string printed = files::to_hf_config(model, DType::f32);
  check(files::hf_config_from_json(printed, "printed") == model, "{} reads back as another model", printed);
  return 0;
}
