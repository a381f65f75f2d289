#include "files/hf_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/errors.hpp"
#include "files/disk.hpp"

namespace switchyard::files {

namespace {

using config::Family;
using config::ModelConfig;
using nlohmann::json;

/// An object of config.json; a key that is absent or null has its default. UserError names origin and key.
class Keys {
 public:
  Keys(const json& object, std::string origin, std::string prefix = "")
      : object_(object), origin_(std::move(origin)), prefix_(std::move(prefix)) {}

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  i64 count(const char* key, i64 absent) const {
    if (!has(key)) return absent;
    // The bound keeps products of two sizes within 64 bits; config::validate has the real ones.
    const json& value = object_[key];
    if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > 0x1p31)
      refuse(key, "it must be a whole number, at most 2^31");
    return value.get<i64>();
  }
  double number(const char* key, double absent) const {
    if (!has(key)) return absent;
    if (!object_[key].is_number()) refuse(key, "it must be a number");
    return object_[key].get<double>();
  }
  bool flag(const char* key, bool absent) const {
    if (!has(key)) return absent;
    if (!object_[key].is_boolean()) refuse(key, "it must be true or false");
    return object_[key].get<bool>();
  }
  std::string text(const char* key, const std::string& absent) const {
    if (!has(key)) return absent;
    if (!object_[key].is_string()) refuse(key, "it must be a string");
    return object_[key].get<std::string>();
  }
  std::optional<Keys> object(const char* key) const {
    if (!has(key)) return std::nullopt;
    if (!object_[key].is_object()) refuse(key, "it must be an object or null");
    return Keys(object_[key], origin_, prefix_ + key + ".");
  }
  /// Whether the key is present and null, which means none and not the default.
  bool is_null(const char* key) const { return object_.contains(key) && object_[key].is_null(); }
  const json& value(const char* key) const { return object_[key]; }

  [[noreturn]] void refuse(const char* key, std::string_view why) const {
    user_error("{}: \"{}{}\" is {}: {}.", origin_, prefix_, key, has(key) ? object_[key].dump() : "absent", why);
  }

 private:
  const json& object_;
  std::string origin_, prefix_;
};

/// Differences between families with rotary positions. Source: transformers 4.57, configuration_<family>.py.
struct RotaryFamily {
  Family family;
  const char* architecture;
  // Defaults of what a config.json leaves out.
  i64 vocab_size = 32000, ffn_size = 11008;
  i64 kv_heads = 0;  // 0: as many as heads
  i64 head_dim = 0;  // 0: hidden_size / heads
  i64 max_positions = 2048;
  double norm_eps = 1e-6;
};
constexpr RotaryFamily kRotaryFamilies[] = {
    {.family = Family::llama, .architecture = "LlamaForCausalLM"},
    {.family = Family::mistral,
     .architecture = "MistralForCausalLM",
     .ffn_size = 14336,
     .kv_heads = 8,
     .max_positions = 131072},
    {.family = Family::qwen2,
     .architecture = "Qwen2ForCausalLM",
     .vocab_size = 151936,
     .ffn_size = 22016,
     .kv_heads = 32,
     .max_positions = 32768},
    {.family = Family::qwen3,
     .architecture = "Qwen3ForCausalLM",
     .vocab_size = 151936,
     .ffn_size = 22016,
     .kv_heads = 32,
     .head_dim = 128,
     .max_positions = 32768},
    {.family = Family::olmo2, .architecture = "Olmo2ForCausalLM", .vocab_size = 50304, .norm_eps = 1e-5},
};

const RotaryFamily* find_rotary(std::string_view name) {
  const auto* found = std::find_if(std::begin(kRotaryFamilies), std::end(kRotaryFamilies),
                                   [&](const RotaryFamily& family) { return name == config::name_of(family.family); });
  return found == std::end(kRotaryFamilies) ? nullptr : found;
}

/// YaRN's factor of queries and keys as transformers has it; 0: the one that follows from the factor.
double yarn_attention_factor(const Keys& scaling, double factor) {
  const double m = scaling.number("mscale", 0), all = scaling.number("mscale_all_dim", 0);
  const double given = scaling.number("attention_factor", 0);
  if (scaling.has("attention_factor") && !(given > 0)) scaling.refuse("attention_factor", "it must be above 0");
  if (given > 0 || m == 0 || all == 0) return given;
  return (0.1 * m * std::log(factor) + 1) / (0.1 * all * std::log(factor) + 1);
}

/// type_key: under which the object has its type.
config::RopeScaling read_scaling(const Keys& scaling, const char* type_key, const std::string& type,
                                 i64 max_positions) {
  config::RopeScaling result;
  const auto need = [&](const char* key) {
    if (!scaling.has(key)) scaling.refuse(key, fmt::format("rotary scaling of type {} needs it", type));
  };
  need("factor");
  result.factor = scaling.number("factor", 0);
  if (!(result.factor >= 1)) scaling.refuse("factor", "it must be at least 1");
  const char* const original = "original_max_position_embeddings";
  if (type == "linear") {
    result.type = config::RopeScalingType::linear;
  } else if (type == "llama3") {
    for (const char* key : {"low_freq_factor", "high_freq_factor", original}) need(key);
    result.low_freq_factor = scaling.number("low_freq_factor", 1);
    result.high_freq_factor = scaling.number("high_freq_factor", 4);
    result.original_context = static_cast<double>(scaling.count(original, 0));
  } else if (type == "yarn") {
    result.type = config::RopeScalingType::yarn;
    if (!scaling.flag("truncate", true)) scaling.refuse("truncate", "only true is supported");
    const auto known = [](double given, double absent) { return given == 0 ? absent : given; };  // like transformers
    result.original_context = static_cast<double>(scaling.count(original, 0));
    result.original_context = known(result.original_context, static_cast<double>(max_positions));
    result.beta_fast = known(scaling.number("beta_fast", 0), 32);
    result.beta_slow = known(scaling.number("beta_slow", 0), 1);
    result.attention_factor = yarn_attention_factor(scaling, result.factor);
  } else if (type == "dynamic") {
    result.type = config::RopeScalingType::dynamic;
    result.original_context = static_cast<double>(max_positions);  // like transformers, whatever `original` says
  } else {
    scaling.refuse(type_key, "supported are \"llama3\", \"linear\", \"yarn\", \"dynamic\" and \"default\"");
  }
  return result;
}

/// Older and newer versions of transformers read different ones of two places for a setting.
void refuse_other(const Keys& in, const char* key, bool same, std::string_view other) {
  if (in.has(key) && !same) in.refuse(key, fmt::format("{} says something else; remove one of them", other));
}

/// The key of an object with the type of scaling, and that type.
std::pair<const char*, std::string> scaling_type(const Keys& scaling) {
  const char* const key = scaling.has("rope_type") ? "rope_type" : "type";
  std::string type = scaling.text(key, "");
  refuse_other(scaling, "type", scaling.text("type", "") == type, key);
  if (!type.empty()) return {key, std::move(type)};
  if (scaling.has("factor")) scaling.refuse("rope_type", "beside \"factor\", it must name the type of scaling");
  return {key, "default"};
}

/// The context before scaling may also stand beside the object, where newer versions of transformers look first.
void refuse_other_context(const Keys& keys, const config::RopeScaling& scaling) {
  const char* const key = "original_max_position_embeddings";
  if (has_original_context(scaling) && !by_document(scaling))
    refuse_other(keys, key, static_cast<double>(keys.count(key, 0)) == scaling.original_context,
                 "\"rope_scaling\" or \"max_position_embeddings\"");
}

void read_rope(const Keys& keys, ModelConfig& model) {
  // Newer configurations keep theta and scaling together.
  const auto parameters = keys.object("rope_parameters");
  model.rope_theta = (parameters && !keys.has("rope_theta") ? *parameters : keys).number("rope_theta", 10000);
  const auto scaling = keys.object("rope_scaling");
  for (const auto& object : {std::optional(keys), parameters, scaling}) {
    if (!object) continue;
    if (object->number("partial_rotary_factor", 1) != 1) object->refuse("partial_rotary_factor", "only 1 is supported");
    refuse_other(*object, "rope_theta", object->number("rope_theta", 0) == model.rope_theta, "another \"rope_theta\"");
    for (const char* layers : {"full_attention", "sliding_attention"})
      if (object->has(layers)) object->refuse(layers, "only one rotation for all layers is supported");
  }
  const auto read = [&](const Keys& object) {
    const auto [key, type] = scaling_type(object);
    return type == "default" ? config::RopeScaling() : read_scaling(object, key, type, model.max_positions);
  };
  if (parameters) model.rope_scaling = read(*parameters);
  if (scaling) {
    model.rope_scaling = read(*scaling);
    refuse_other(keys, "rope_parameters", !parameters || read(*parameters) == model.rope_scaling, "\"rope_scaling\"");
  }
  refuse_other_context(keys, model.rope_scaling);
}

/// Attention sees the whole document. Mistral's window of all layers bounds the context; windows of some layers are
/// refused.
void read_windows(const Keys& keys, ModelConfig& model) {
  if (model.family == Family::mistral && !keys.is_null("sliding_window")) {
    model.sliding_window = keys.count("sliding_window", 4096);
    if (model.sliding_window < 1) keys.refuse("sliding_window", "it must be at least 1, or null for full attention");
  }
  if (model.family != Family::qwen2 && model.family != Family::qwen3) return;
  if (keys.has("layer_types")) {
    for (const json& type : keys.value("layer_types")) {
      if (type != "full_attention") keys.refuse("layer_types", "only \"full_attention\" is supported");
    }
  } else if (keys.flag("use_sliding_window", false) && !keys.is_null("sliding_window") &&
             keys.count("max_window_layers", 28) < model.layers) {
    keys.refuse("use_sliding_window",
                "sliding windows are not supported; set it to false to train with full attention");
  }
}

ModelConfig read_rotary(const Keys& keys, const RotaryFamily& family) {
  ModelConfig model = config::family_defaults(family.family);
  model.vocab_size = keys.count("vocab_size", family.vocab_size);
  model.hidden_size = keys.count("hidden_size", 4096);
  model.ffn_size = keys.count("intermediate_size", family.ffn_size);
  model.layers = keys.count("num_hidden_layers", 32);
  model.heads = keys.count("num_attention_heads", 32);
  if (model.heads < 1) keys.refuse("num_attention_heads", "it must be at least 1");
  const bool as_heads = family.kv_heads == 0 || keys.is_null("num_key_value_heads");
  model.kv_heads = keys.count("num_key_value_heads", as_heads ? model.heads : family.kv_heads);
  model.head_dim = keys.count("head_dim", family.head_dim == 0 ? model.hidden_size / model.heads : family.head_dim);
  model.max_positions = keys.count("max_position_embeddings", family.max_positions);
  model.norm_eps = keys.number("rms_norm_eps", family.norm_eps);
  model.initializer_range = keys.number("initializer_range", 0.02);
  model.tied_embeddings = keys.flag("tie_word_embeddings", false);
  read_rope(keys, model);
  read_windows(keys, model);
  if (const std::string activation = keys.text("hidden_act", "silu"); activation != "silu" && activation != "swish") {
    keys.refuse("hidden_act", fmt::format("{} supports \"silu\"", config::name_of(family.family)));
  }
  const bool attention_bias = keys.flag("attention_bias", false);
  if (family.family == Family::llama) {
    model.qkv_bias = model.o_bias = attention_bias;
    model.mlp_bias = keys.flag("mlp_bias", false);
  } else if ((family.family == Family::qwen3 || family.family == Family::olmo2) && attention_bias) {
    keys.refuse("attention_bias", fmt::format("{} is supported with false", config::name_of(family.family)));
  }
  return model;
}

/// A size of GPT-2, which transformers also takes by the name that other families have for it.
i64 gpt2_size(const Keys& keys, const char* key, const char* other, i64 absent) {
  const i64 size = keys.count(key, keys.count(other, absent));
  refuse_other(keys, other, keys.count(other, size) == size, fmt::format("\"{}\"", key));
  return size;
}

ModelConfig read_gpt2(const Keys& keys) {
  ModelConfig model = config::family_defaults(Family::gpt2);
  model.vocab_size = keys.count("vocab_size", 50257);
  model.max_positions = gpt2_size(keys, "n_positions", "max_position_embeddings", 1024);
  model.hidden_size = gpt2_size(keys, "n_embd", "hidden_size", 768);
  model.layers = gpt2_size(keys, "n_layer", "num_hidden_layers", 12);
  model.heads = model.kv_heads = gpt2_size(keys, "n_head", "num_attention_heads", 12);
  if (model.heads < 1) keys.refuse("n_head", "it must be at least 1");
  model.head_dim = model.hidden_size / model.heads;
  if (model.head_dim * model.heads != model.hidden_size) keys.refuse("n_embd", "it must be a multiple of n_head");
  model.ffn_size = keys.count("n_inner", 4 * model.hidden_size);
  model.norm_eps = keys.number("layer_norm_epsilon", 1e-5);
  model.initializer_range = keys.number("initializer_range", 0.02);
  model.tied_embeddings = keys.flag("tie_word_embeddings", true);
  const std::string activation = keys.text("activation_function", "gelu_new");
  model.gelu_tanh = activation != "gelu";
  if (activation != "gelu" && activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    keys.refuse("activation_function", "gpt2 supports \"gelu_new\", \"gelu_pytorch_tanh\" and \"gelu\"");
  }
  if (!keys.flag("scale_attn_weights", true)) keys.refuse("scale_attn_weights", "only true is supported");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (keys.flag(key, false)) keys.refuse(key, "only false is supported");
  }
  return model;
}

std::string dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    default:
      break;
  }
  throw InternalError("to_hf_config: weights are not integers");
}

json gpt2_json(const ModelConfig& model) {
  return {{"model_type", "gpt2"},
          {"architectures", {"GPT2LMHeadModel"}},
          {"vocab_size", model.vocab_size},
          {"n_positions", model.max_positions},
          {"n_embd", model.hidden_size},
          {"n_layer", model.layers},
          {"n_head", model.heads},
          {"n_inner", model.ffn_size},
          {"activation_function", model.gelu_tanh ? "gelu_new" : "gelu"},
          {"layer_norm_epsilon", model.norm_eps},
          {"attn_pdrop", model.dropout},
          {"embd_pdrop", model.dropout},
          {"resid_pdrop", model.dropout}};
}

/// type_key: under which the family's configuration expects the type.
json scaling_json(const config::RopeScaling& scaling, const char* type_key) {
  json result = {{type_key, config::name_of(scaling.type)}, {"factor", scaling.factor}};
  if (scaling.type == config::RopeScalingType::linear || scaling.type == config::RopeScalingType::dynamic)
    return result;
  result["original_max_position_embeddings"] = static_cast<i64>(scaling.original_context);
  if (scaling.type == config::RopeScalingType::llama3) {
    result["low_freq_factor"] = scaling.low_freq_factor;
    result["high_freq_factor"] = scaling.high_freq_factor;
  } else {
    result["beta_fast"] = scaling.beta_fast;
    result["beta_slow"] = scaling.beta_slow;
    if (scaling.attention_factor != 0) result["attention_factor"] = scaling.attention_factor;
  }
  return result;
}

json rotary_json(const ModelConfig& model, const RotaryFamily& family) {
  // With dynamic scaling, transformers reads the context before scaling from max_position_embeddings.
  const i64 max_positions =
      by_document(model.rope_scaling) ? static_cast<i64>(model.rope_scaling.original_context) : model.max_positions;
  json result = {{"model_type", config::name_of(model.family)},
                 {"architectures", {family.architecture}},
                 {"vocab_size", model.vocab_size},
                 {"hidden_size", model.hidden_size},
                 {"intermediate_size", model.ffn_size},
                 {"num_hidden_layers", model.layers},
                 {"num_attention_heads", model.heads},
                 {"num_key_value_heads", model.kv_heads},
                 {"head_dim", model.head_dim},
                 {"max_position_embeddings", max_positions},
                 {"hidden_act", "silu"},
                 {"rms_norm_eps", model.norm_eps},
                 {"rope_theta", model.rope_theta},
                 {"rope_scaling", nullptr},
                 {"attention_dropout", 0.0}};
  if (model.rope_scaling.factor != 0)
    result["rope_scaling"] = scaling_json(model.rope_scaling, model.family == Family::olmo2 ? "type" : "rope_type");
  if (model.family == Family::llama) {
    result["attention_bias"] = model.qkv_bias;
    result["mlp_bias"] = model.mlp_bias;
  } else if (model.family == Family::olmo2) {
    result["pad_token_id"] = nullptr;  // that of transformers' default would have no gradient there
  } else {
    result["sliding_window"] = model.sliding_window > 0 ? json(model.sliding_window) : json(nullptr);
  }
  return result;
}

/// What a config.json says of a model.
json json_of(const ModelConfig& model) {
  json result;
  if (model.family == Family::gpt2) {
    result = gpt2_json(model);
  } else {
    const RotaryFamily* family = find_rotary(config::name_of(model.family));
    check(family != nullptr, "to_hf_config: unknown family");
    result = rotary_json(model, *family);
  }
  result["initializer_range"] = model.initializer_range;
  result["tie_word_embeddings"] = model.tied_embeddings;
  return result;
}

/// A job may combine settings for which Hugging Face's families have no key; then the exported weights would not fit.
void refuse_unsayable(const ModelConfig& model, const ModelConfig& read_back) {
  const double context = relevant(model.rope_scaling).original_context;
  if (context != relevant(read_back.rope_scaling).original_context)
    user_error("Hugging Face's {} has whole numbers for rope_scaling.original_context only, not {}. Round it.",
               config::name_of(model.family), context);
  const auto settings = [](const ModelConfig& m) { return std::array{m.qkv_bias, m.o_bias, m.mlp_bias, m.qk_norm}; };
  if (settings(model) == settings(read_back)) return;
  user_error(
      "Hugging Face's {} has no model with qkv_bias = {}, o_bias = {}, mlp_bias = {}, qk_norm = {}. Change them, or "
      "the architecture.",
      config::name_of(model.family), model.qkv_bias, model.o_bias, model.mlp_bias, model.qk_norm);
}

}  // namespace

ModelConfig hf_config_from_json(const std::string& text, const std::string& origin) {
  json object;
  try {
    object = json::parse(text);
  } catch (const json::exception& error) {  // Python writes NaN and Infinity, which JSON doesn't have
    user_error("{}: it is not valid JSON: {}.", origin, error.what());
  }
  if (!object.is_object())
    user_error("{}: it is not a JSON object. Give the config.json of a Hugging Face model.", origin);
  const Keys keys(object, origin);
  if (keys.has("quantization_config"))
    keys.refuse("quantization_config", "quantized weights can't be trained; use the original model");
  const std::string type = keys.text("model_type", "");
  ModelConfig model;
  if (type == "gpt2") {
    model = read_gpt2(keys);
  } else {
    const RotaryFamily* family = find_rotary(type);
    if (family == nullptr) keys.refuse("model_type", "supported are llama, mistral, qwen2, qwen3, gpt2 and olmo2");
    model = read_rotary(keys, *family);
  }
  if (keys.has("auto_map"))
    keys.refuse("auto_map", fmt::format("the model has code of its own; remove the key if that computes a {}", type));
  if (!keys.flag("is_causal", true)) keys.refuse("is_causal", "only true is supported");
  try {
    config::validate(model);
  } catch (const UserError& error) {
    user_error("{}: {}", origin, error.what());
  }
  return model;
}

std::filesystem::path hf_config_file(const std::filesystem::path& path) {
  std::error_code unknown;  // then reading says why
  const std::filesystem::file_type type = std::filesystem::status(path, unknown).type();
  if (type == std::filesystem::file_type::not_found)
    user_error(
        "there is no model folder {}. Check the path; a model of Hugging Face's hub has to be downloaded first, as by "
        "hf download NAME --local-dir FOLDER. If a run started from it and it is gone, take what the run has: --set "
        "model.path=RUN/checkpoints/step-.../model.",
        path.string());
  if (type != std::filesystem::file_type::directory) return path;
  const auto has = [&](const char* name) { return std::filesystem::exists(path / name, unknown); };
  if (!has("config.json") && has("adapter_config.json"))
    user_error(
        "{}: it holds an adapter (adapter_config.json), not a model. Merge it into its model, in Python with the "
        "package peft: AutoPeftModelForCausalLM.from_pretrained('{}').merge_and_unload().save_pretrained(FOLDER)",
        path.string(), path.string());
  if (!has("config.json") && has("snapshots"))
    user_error(
        "{}: it is a model in the cache of Hugging Face's hub, whose files are in a folder of its snapshots/. "
        "Give that folder.",
        path.string());
  return path / "config.json";
}

ModelConfig read_hf_config(const std::filesystem::path& path) {
  const std::filesystem::path file = hf_config_file(path);
  return hf_config_from_json(read_text(file), file.string());
}

std::string to_hf_config(const ModelConfig& model, DType dtype, const std::optional<std::string>& before) {
  json result = json_of(model);
  if (before) {
    const json fresh = std::move(result), old = json_of(hf_config_from_json(*before, "config.json"));
    result = json::parse(*before);
    const auto changed = [&](const std::string& key) { return fresh.value(key, json()) != old.value(key, json()); };
    // Scaling that does not tell its original context takes it from max_position_embeddings.
    const bool rope = changed("rope_theta") || changed("rope_scaling") ||
                      (changed("max_position_embeddings") && has_original_context(model.rope_scaling));
    if (rope) result.erase("rope_parameters");  // the newer form of both
    for (const auto& [key, value] : fresh.items())
      if (changed(key) || (rope && key.starts_with("rope_"))) result[key] = value;
    if (result.contains("rope_parameters"))  // which older versions of transformers don't read
      for (const char* key : {"rope_theta", "rope_scaling"})
        if (result.value(key, json()).is_null()) result[key] = fresh.value(key, json());
    result["architectures"] = fresh["architectures"];  // a base model's are those of a model without a head
  }
  for (const char* key : {"bos_token_id", "eos_token_id"})
    if (!result.contains(key)) result[key] = nullptr;  // defaults of transformers may lie outside the vocabulary
  const std::string text = with_dtype(result.dump(), dtype);
  refuse_unsayable(model, hf_config_from_json(text, "config.json"));
  return text;
}

std::string with_dtype(const std::string& text, DType dtype) {
  json result = json::parse(text);
  for (const char* key : {"torch_dtype", "dtype"}) result[key] = dtype_name(dtype);  // the older and the newer name
  return result.dump(2) + "\n";
}

}  // namespace switchyard::files
