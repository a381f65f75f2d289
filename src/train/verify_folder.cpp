#include "train/verify_folder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/errors.hpp"

namespace switchyard::train {
namespace {

using files::FileDType;
using files::TensorFile;

constexpr const char* kRemedy = "docs/file-formats.md has what a verification folder holds";
constexpr i64 kNoLabel = -100;

template <class... Args>
[[noreturn]] void refuse(const TensorFile& file, const std::string& name, fmt::format_string<Args...> format,
                         Args&&... args) {
  user_error("{}: tensor \"{}\" {}; {}.", file.path().string(), name, fmt::format(format, std::forward<Args>(args)...),
             kRemedy);
}

void require(const TensorFile& file, const std::string& name, FileDType type, const std::vector<i64>& shape) {
  const files::TensorInfo& info = file.info(name);
  if (info.dtype != type || info.shape != shape)
    refuse(file, name, "is {} {}, but {} {} is needed", files::name_of(info.dtype), info.shape, files::name_of(type),
           shape);
}

template <class T>
std::vector<T> values_of(const TensorFile& file, const std::string& name) {
  const auto bytes = file.data(name);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// A list of integers of any length.
std::vector<i64> integers(const TensorFile& file, const std::string& name) {
  const files::TensorInfo& info = file.info(name);
  if (info.dtype != FileDType::i64 || info.shape.size() != 1)
    refuse(file, name, "is {} {}, but a list of I64 is needed", files::name_of(info.dtype), info.shape);
  return values_of<i64>(file, name);
}

/// Shapes of the files' tensors: parts of a packed tensor together, transposed ones as stored.
std::map<std::string, std::vector<i64>> file_shapes(const ir::Graph& graph) {
  std::map<std::string, std::vector<i64>> shapes;
  for (const ir::Param& param : graph.params()) {
    std::vector<i64> size = param.shape.size;
    size[0] += param.file.first;
    if (param.file.transposed) std::swap(size[0], size[1]);
    std::vector<i64>& whole = shapes[param.file.name];
    whole.resize(size.size());
    for (size_t d = 0; d < size.size(); ++d) whole[d] = std::max(whole[d], size[d]);
  }
  return shapes;
}

/// Checks the tensors of expected.safetensors one by one, and that there are no others.
class ExpectedCheck {
 public:
  explicit ExpectedCheck(const TensorFile& file) : file_(file) {}

  void finite(const std::string& name, const std::vector<i64>& shape) { values(name, shape, false); }
  void positive(const std::string& name, const std::vector<i64>& shape) { values(name, shape, true); }
  void optional(const std::string& name, const std::vector<i64>& shape) {
    if (file_.contains(name)) finite(name, shape);
  }
  void count(const std::string& name, i64 expected) {
    if (!file_.contains(name)) return;
    require(file_, name, FileDType::i64, {1});
    if (const i64 value = integers(file_, name)[0]; value != expected)
      refuse(file_, name, "is {}, but the batch has {}", value, expected);
    known_.insert(name);
  }
  void nothing_else() const {
    for (const std::string& name : file_.names())
      if (!known_.contains(name)) refuse(file_, name, "is no result that the model of config.json has");
  }

 private:
  void values(const std::string& name, const std::vector<i64>& shape, bool positive) {
    require(file_, name, FileDType::f64, shape);
    for (const double value : values_of<double>(file_, name)) {
      if (!std::isfinite(value)) refuse(file_, name, "holds {}, but all values must be finite", value);
      if (positive && !(value > 0)) refuse(file_, name, "holds {}, but its values must be above 0", value);
    }
    known_.insert(name);
  }

  const TensorFile& file_;
  std::set<std::string> known_;
};

}  // namespace

VerifyFolder::VerifyFolder(const std::string& folder, const config::ModelConfig& model, const ir::Graph& graph)
    : input_(TensorFile::open(folder + "/input.safetensors")),
      expected_(TensorFile::open(folder + "/expected.safetensors")) {
  read_documents(model);
  if (input_.contains("labels")) check_labels();
  check_expected(model, graph);
}

std::vector<double> VerifyFolder::expected(const std::string& name) const { return values_of<double>(expected_, name); }

void VerifyFolder::read_documents(const config::ModelConfig& model) {
  const std::vector<i64> tokens = integers(input_, "tokens");
  lengths = integers(input_, "doc_lengths");
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= model.vocab_size)
      refuse(input_, "tokens", "has {} at place {}, outside the vocabulary of {}", tokens[i], i, model.vocab_size);
  const bool learned = model.family == config::Family::gpt2;
  i64 at = 0;
  const i64 all = static_cast<i64>(tokens.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    const i64 n = lengths[i];
    if (n < 1 || n > all - at)
      refuse(input_, "doc_lengths", "has {} at place {}, where 1 to {} tokens are left", n, i, all - at);
    if (learned && n > model.max_positions)
      refuse(input_, "doc_lengths", "has {} at place {}, but the model has {} positions", n, i, model.max_positions);
    if (model.sliding_window > 0 && n > model.sliding_window)
      refuse(input_, "doc_lengths",
             "has {} at place {}, above the model's sliding_window of {}, which is not supported", n, i,
             model.sliding_window);
    documents.emplace_back(tokens.begin() + at, tokens.begin() + at + n);
    starts.push_back(at);
    at += n;
    labels_ += n - 1;
  }
  if (at != all) refuse(input_, "doc_lengths", "adds up to {}, but there are {} tokens", at, all);
  if (labels_ == 0) refuse(input_, "doc_lengths", "has no document of two tokens, so that nothing is predicted");
}

void VerifyFolder::check_labels() const {
  const i64 tokens = starts.back() + lengths.back();
  require(input_, "labels", FileDType::i64, {tokens});
  const std::vector<i64> labels = integers(input_, "labels");
  for (size_t d = 0; d < documents.size(); ++d)
    for (size_t i = 0; i < documents[d].size(); ++i) {
      const size_t place = static_cast<size_t>(starts[d]) + i;
      const i64 next = i + 1 < documents[d].size() ? i64{documents[d][i + 1]} : kNoLabel;
      if (labels[place] != next)
        refuse(input_, "labels", "has {} at place {}, where {} follows from the tokens", labels[place], place, next);
    }
}

void VerifyFolder::check_expected(const config::ModelConfig& model, const ir::Graph& graph) const {
  ExpectedCheck check(expected_);
  check.finite("logits", {starts.back() + lengths.back(), model.vocab_size});
  for (const char* name : {"loss", "grad_norm", "train.final_loss"}) check.positive(name, {1});
  for (const char* name : {"train.loss", "train.grad_norm"}) check.positive(name, {kVerifiedSteps});
  check.optional("doc_loss_sum", {static_cast<i64>(lengths.size())});
  check.count("valid_tokens", labels_);
  std::map<std::string, i64> parts;
  for (const ir::Param& param : graph.params()) ++parts[param.file.name];
  for (const auto& [name, shape] : file_shapes(graph)) {
    check.finite("grad." + name, shape);
    for (const char* sum : {"train.final_sum", "train.final_sumsq"}) {
      check.finite(fmt::format("{}.{}", sum, name), {1});
      if (parts[name] > 1) check.optional(fmt::format("{}_qkv.{}", sum, name), {parts[name]});
    }
  }
  // Both or none must exist: what is compared of a packed tensor follows from the first.
  for (const auto& [name, count] : parts)
    if (expected_.contains("train.final_sum_qkv." + name)) check.finite("train.final_sumsq_qkv." + name, {count});
  check.nothing_else();
}

}  // namespace switchyard::train
