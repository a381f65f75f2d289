#include "files/model_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/bfloat16.hpp"
#include "base/errors.hpp"
#include "files/disk.hpp"
#include "files/hf_config.hpp"
#include "files/safetensors.hpp"
#include "files/tensor_writer.hpp"

namespace switchyard::files {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfig = "config.json";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kSpecialTokens = "special_tokens_map.json";
constexpr const char* kChatTemplate = "chat_template.jinja";
/// Files of tokenizers, also of those that are kept in other forms than tokenizer.json.
constexpr std::array kTokenizerFiles = {kTokenizer,          kTokenizerConfig, kSpecialTokens,
                                        "added_tokens.json", kChatTemplate,    "chat_template.json",
                                        "tokenizer.model",   "vocab.json",     "merges.txt"};
constexpr std::array kBeginAndEnd = {"bos", "eos"};

json object_of(const ModelFiles& files, const char* name, const fs::path& folder) {
  const auto found = files.find(name);
  if (found == files.end()) return json::object();
  json object = json::parse(found->second, nullptr, false);
  if (!object.is_object())
    user_error("{}: it is not a JSON object. Repair it, or remove it.", (folder / name).string());
  return object;
}

ModelFiles present(const fs::path& folder, std::span<const char* const> names) {
  ModelFiles files;
  for (const char* name : names)
    if (fs::is_regular_file(folder / name)) files[name] = read_text(folder / name);
  return files;
}

/// A declared token, whose value is its text or an object with it.
std::optional<std::string> token_of(const json& declared, const std::string& key) {
  json value = declared.value(key, json());
  if (value.is_object()) value = value.value("content", json());
  if (!value.is_string() || value.get<std::string>().empty()) return std::nullopt;
  return value.get<std::string>();
}

/// Special tokens that tokenizer_config.json declares, in the form of special_tokens_map.json.
json special_tokens(const json& tokenizer_config) {
  json result = json::object();
  for (const auto& [key, value] : tokenizer_config.items())
    if (key.ends_with("_token") && token_of(tokenizer_config, key)) result[key] = *token_of(tokenizer_config, key);
  if (const auto more = tokenizer_config.find("additional_special_tokens");
      more != tokenizer_config.end() && more->is_array())
    result["additional_special_tokens"] = *more;
  return result;
}

/// The tokens of tokenizer.json by their ids.
std::map<i64, std::string> tokens_of(const json& tokenizer) {
  std::map<i64, std::string> tokens;
  const json vocab = tokenizer.value("model", json::object()).value("vocab", json());
  if (vocab.is_object())
    for (const auto& [token, id] : vocab.items())
      if (id.is_number_integer()) tokens[id.get<i64>()] = token;
  if (vocab.is_array())  // pairs of a token and its score
    for (size_t id = 0; id < vocab.size(); ++id)
      if (vocab[id].is_array() && !vocab[id].empty() && vocab[id][0].is_string())
        tokens[static_cast<i64>(id)] = vocab[id][0].get<std::string>();
  for (const json& added : tokenizer.value("added_tokens", json::array()))
    if (added.is_object() && added.value("content", json()).is_string() &&
        added.value("id", json()).is_number_integer())
      tokens[added["id"].get<i64>()] = added["content"].get<std::string>();
  return tokens;
}

/// The same of a folder; empty without the file.
std::map<i64, std::string> tokens_of(const fs::path& folder) {
  return tokens_of(object_of(present(folder, std::array{kTokenizer}), kTokenizer, folder));
}

/// The folder in which a corpus lies, or which it is.
fs::path folder_of(const fs::path& corpus) { return fs::is_directory(corpus) ? corpus : corpus.parent_path(); }

/// The tokenizer beside the data, or else that of the model, with the files that transformers needs.
ModelFiles tokenizer_files(const std::vector<fs::path>& corpora, const fs::path& started_from) {
  std::vector<fs::path> folders;
  for (const fs::path& corpus : corpora) folders.push_back(folder_of(corpus));
  if (!started_from.empty()) folders.push_back(started_from);
  for (const fs::path& folder : folders) {
    ModelFiles files = present(folder, kTokenizerFiles);
    if (!files.contains(kTokenizer) && !files.contains("tokenizer.model") && !files.contains("vocab.json")) continue;
    json config = object_of(files, kTokenizerConfig, folder);
    constexpr const char* kGeneralClass = "PreTrainedTokenizerFast";
    if (files.contains(kTokenizer) && config.value("tokenizer_class", json(kGeneralClass)) == kGeneralClass) {
      config["tokenizer_class"] = kGeneralClass;
      // This class would also give token types, which generate() of these models refuses.
      if (!config.contains("model_input_names")) config["model_input_names"] = {"input_ids", "attention_mask"};
      files[kTokenizerConfig] = config.dump(2) + "\n";
    }
    if (!files.contains(kSpecialTokens)) files[kSpecialTokens] = special_tokens(config).dump(2) + "\n";
    for (const fs::path& corpus : corpora) {
      if (files.contains(kChatTemplate) || config.contains("chat_template")) break;
      files.merge(present(folder_of(corpus), std::array{kChatTemplate}));
    }
    return files;
  }
  return {};
}

/// Ids of the tokenizer's tokens that begin and end a text, by "bos" and "eos"; those outside the vocabulary are left
/// out.
std::map<std::string, i64> begin_and_end(const ModelFiles& tokenizer, i64 vocabulary, const fs::path& origin) {
  std::map<std::string, i64> ids;
  if (!tokenizer.contains(kTokenizer)) return ids;
  json declared = object_of(tokenizer, kSpecialTokens, origin);
  declared.update(object_of(tokenizer, kTokenizerConfig, origin));
  const std::map<i64, std::string> tokens = tokens_of(object_of(tokenizer, kTokenizer, origin));
  for (const char* name : kBeginAndEnd)
    if (const auto token = token_of(declared, fmt::format("{}_token", name)))
      for (const auto& [id, text] : tokens)
        if (text == *token && id < vocabulary) ids[name] = id;
  return ids;
}

/// Sets bos_token_id and eos_token_id, unless they are among those that the object names.
void declare(json& object, const std::map<std::string, i64>& ids) {
  for (const auto& [name, id] : ids) {
    json& value = object[name + "_token_id"];
    const bool named = value == id || (value.is_array() && std::ranges::find(value, json(id)) != value.end());
    if (!named) value = id;
  }
}

/// Writes the bytes of F32 elements as `dtype`, in pieces, from element `at` of the tensor on.
void write_as(DType dtype, std::span<const std::byte> bytes, const std::string& name, i64 at, TensorFolderWriter& to) {
  if (dtype == DType::f32) return to.write(name, at * static_cast<i64>(sizeof(float)), bytes);
  constexpr size_t kPiece = 1 << 22;  // elements
  const size_t elements = bytes.size() / sizeof(float);
  std::vector<std::uint16_t> rounded;
  for (size_t first = 0; first < elements; first += kPiece) {
    rounded.resize(std::min(kPiece, elements - first));
    for (size_t i = 0; i < rounded.size(); ++i) {
      float value = 0;
      std::memcpy(&value, bytes.data() + (first + i) * sizeof(float), sizeof(float));
      rounded[i] = bfloat16_bits(value);
    }
    to.write(name, (at + static_cast<i64>(first)) * static_cast<i64>(sizeof(std::uint16_t)),
             std::as_bytes(std::span(rounded)));
  }
}

/// The mean of an F32 tensor's rows.
std::vector<float> mean_row(std::span<const std::byte> bytes, i64 rows) {
  std::vector<double> sums(bytes.size() / sizeof(float) / static_cast<size_t>(rows));
  const std::byte* at = bytes.data();
  for (i64 row = 0; row < rows; ++row)
    for (double& sum : sums) {
      float value = 0;
      std::memcpy(&value, at, sizeof value);
      sum += static_cast<double>(value);
      at += sizeof value;
    }
  std::vector<float> mean;
  for (const double sum : sums) mean.push_back(static_cast<float>(sum / static_cast<double>(rows)));
  return mean;
}

/// The tensor, with `entry`'s number of rows.
void copy_tensor(const TensorFolder& from, const TensorEntry& entry, TensorFolderWriter& to) {
  const TensorInfo& info = from.info(entry.name);
  const std::span<const std::byte> bytes = from.data(entry.name);
  if (info.dtype != FileDType::f32)
    user_error("{}: tensor \"{}\" is {}; the weights of a checkpoint are F32.", from.path().string(), entry.name,
               name_of(info.dtype));
  write_as(entry.dtype, bytes, entry.name, 0, to);
  if (entry.shape[0] == info.shape[0]) return;
  const std::vector<float> mean = mean_row(bytes, info.shape[0]);
  for (i64 row = info.shape[0]; row < entry.shape[0]; ++row)
    write_as(entry.dtype, std::as_bytes(std::span(mean)), entry.name, row * static_cast<i64>(mean.size()), to);
}

/// Whether a tensor of the families that are exported has a row for each entry of the vocabulary.
bool has_vocabulary(const std::string& name) {
  return name.ends_with("embed_tokens.weight") || name.ends_with("wte.weight") || name == "lm_head.weight";
}

i64 padded(i64 rows, i64 multiple) { return (rows + multiple - 1) / multiple * multiple; }

void write_weights(const TensorFolder& from, const fs::path& out, const ExportSettings& settings) {
  std::vector<TensorEntry> entries;
  for (const std::string& name : from.names()) {
    TensorEntry entry{.name = name, .dtype = settings.dtype, .shape = from.info(name).shape};
    if (has_vocabulary(name)) entry.shape[0] = padded(entry.shape[0], settings.vocab_multiple);
    entries.push_back(std::move(entry));
  }
  TensorFolderWriter to = TensorFolderWriter::create(out, entries);
  for (const TensorEntry& entry : entries) copy_tensor(from, entry, to);
  to.finish();
}

std::string with_padded_vocabulary(const std::string& text, i64 multiple) {
  json result = json::parse(text);
  result["vocab_size"] = padded(result.at("vocab_size").get<i64>(), multiple);
  return result.dump(2) + "\n";
}

constexpr const char* kPartial = ".partial";

/// Whether nothing is in a folder but what an export that was killed, or still writes, has there.
bool is_free(const fs::path& folder) {
  return std::ranges::all_of(fs::directory_iterator(folder),
                             [](const fs::directory_entry& item) { return item.path().filename() == kPartial; });
}

/// The folder in which an export writes until all is complete, emptied. Two exports can't have the same.
class PartialFolder {
 public:
  explicit PartialFolder(fs::path path) : path_(std::move(path)) {
    make_folder(path_);
    lock_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)  // some file systems have no locks
      user_error("{}: another export is writing there. Wait until it ends, or choose another folder for the model.",
                 path_.string());
    for (const auto& item : fs::directory_iterator(path_)) fs::remove_all(item.path());
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }
  /// To a new folder.
  void become(const fs::path& folder) {
    if (::rename(path_.c_str(), folder.c_str()) != 0) disk_error("rename to", folder, errno);
    path_.clear();
  }
  /// Into a folder that is there, config.json last: without it no program takes the folder for a model.
  void fill(const fs::path& folder) {
    std::vector<fs::path> names;
    for (const auto& item : fs::directory_iterator(path_)) names.push_back(item.path().filename());
    std::ranges::sort(names, {}, [](const fs::path& name) { return name == kConfig; });
    for (const fs::path& name : names)
      if (::rename((path_ / name).c_str(), (folder / name).c_str()) != 0) disk_error("rename to", folder / name, errno);
  }

 private:
  fs::path path_;
  Descriptor lock_;
};

}  // namespace

ModelFiles model_files(const config::ModelConfig& model, DType dtype, const fs::path& started_from,
                       const std::vector<fs::path>& corpora) {
  ModelFiles files = tokenizer_files(corpora, started_from);
  const ModelFiles before =
      started_from.empty() ? ModelFiles{} : present(started_from, std::array{kConfig, kGeneration});
  const auto ids = begin_and_end(files, model.vocab_size, corpora.empty() ? started_from : corpora.front());
  json config = json::parse(
      to_hf_config(model, dtype, before.contains(kConfig) ? std::optional(before.at(kConfig)) : std::nullopt));
  declare(config, ids);
  json generation = object_of(before, kGeneration, started_from);
  for (const char* name : kBeginAndEnd)
    if (const std::string key = fmt::format("{}_token_id", name); !generation.contains(key) && !config[key].is_null())
      generation[key] = config[key];
  declare(generation, ids);
  files[kConfig] = config.dump(2) + "\n";
  files[kGeneration] = generation.dump(2) + "\n";
  return files;
}

std::optional<TokenClash> token_clash(const fs::path& first, const fs::path& second) {
  const std::map<i64, std::string> others = tokens_of(second);
  for (const auto& [id, token] : tokens_of(first))
    if (const auto other = others.find(id); other != others.end() && other->second != token)
      return TokenClash{id, token, other->second};
  return std::nullopt;
}

bool export_model(const fs::path& checkpoint, const fs::path& out, const ExportSettings& settings) {
  const bool exists = fs::exists(out);
  if (exists && !(fs::is_directory(out) && is_free(out)))
    user_error("{} exists and is not an empty folder. Choose another one for the model.", out.string());
  // All is opened first: a run that goes on may remove the checkpoint meanwhile.
  const fs::path model = checkpoint / "model";
  const TensorFolder weights = TensorFolder::open(model);
  ModelFiles texts;
  for (const auto& item : fs::directory_iterator(model))
    if (const std::string name = item.path().filename().string(); name.find(".safetensors") == std::string::npos)
      texts[name] = read_text(item.path());
  texts[kConfig] =
      with_padded_vocabulary(with_dtype(read_text(model / kConfig), settings.dtype), settings.vocab_multiple);
  // A folder that is there may be a link, the current folder or another disk: it can't be replaced, but filled.
  const fs::path whole = fs::weakly_canonical(out / "").parent_path();
  PartialFolder partial(exists ? out / kPartial : fs::path(whole).concat(kPartial));
  write_weights(weights, partial.path(), settings);
  for (const auto& [name, text] : texts) write_text(partial.path() / name, text);
  if (exists)
    partial.fill(out);
  else
    partial.become(whole);
  return texts.contains(kTokenizerConfig);
}

}  // namespace switchyard::files
