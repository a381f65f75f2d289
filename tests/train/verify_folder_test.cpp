#include "train/verify_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>

#include "../files/scratch.hpp"
#include "base/errors.hpp"
#include "files/hf_config.hpp"
#include "files/tensor_writer.hpp"
#include "models/build.hpp"

namespace switchyard::train {
namespace {

using testing::HasSubstr;

const std::filesystem::path kFixtures = SWITCHYARD_FIXTURES;

struct Values {
  DType dtype = DType::f64;
  std::vector<i64> shape;
  std::vector<std::byte> bytes;
};
using Tensors = std::map<std::string, Values>;

template <class T>
Values values(DType dtype, std::vector<i64> shape, std::vector<T> list) {
  const auto bytes = files::raw_bytes(list);
  return {dtype, std::move(shape), {bytes.begin(), bytes.end()}};
}

template <class T>
T* data(Values& tensor) {
  return reinterpret_cast<T*>(tensor.bytes.data());
}

Tensors read(const std::filesystem::path& path) {
  const files::TensorFile file = files::TensorFile::open(path);
  Tensors tensors;
  for (const std::string& name : file.names()) {
    const auto bytes = file.data(name);
    tensors[name] = {file.info(name).dtype == files::FileDType::i64 ? DType::i64 : DType::f64,
                     file.info(name).shape,
                     {bytes.begin(), bytes.end()}};
  }
  return tensors;
}

void write(const std::filesystem::path& path, const Tensors& tensors) {
  std::vector<files::TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, tensor.dtype, tensor.shape});
  files::TensorWriter writer = files::TensorWriter::create(path, entries);
  for (const auto& [name, tensor] : tensors) writer.write(name, 0, tensor.bytes);
  writer.finish();
}

VerifyFolder open(const std::filesystem::path& folder, const config::ModelConfig& model) {
  return VerifyFolder(folder.string(), model, models::build(model, precision_from("fp64"), models::Output::loss));
}

/// The error of a fixture with a change in a file or in the model; "valid" if there is none.
struct Odd {
  std::string fixture = "llama-tied";
  std::function<void(Tensors&)> input{}, expected{};
  std::function<void(config::ModelConfig&)> model{};
};
std::string error_of(const Odd& odd) {
  const Scratch scratch;
  for (const auto& [name, change] :
       {std::pair("input.safetensors", odd.input), {"expected.safetensors", odd.expected}}) {
    const auto from = kFixtures / odd.fixture / name;
    if (!change) {
      std::filesystem::copy_file(from, scratch / name);
      continue;
    }
    Tensors tensors = read(from);
    change(tensors);
    write(scratch / name, tensors);
  }
  config::ModelConfig model = files::read_hf_config(kFixtures / odd.fixture);
  if (odd.model) odd.model(model);
  try {
    open(scratch.path(), model);
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with((scratch / "").string())) << text;
    return text.substr((scratch / "").string().size());
  }
  return "valid";
}

TEST(VerifyFolder, gives_documents_and_expected_results) {
  for (const char* name : {"llama-gqa", "llama-tied", "llama3-rope", "llama-dynamic", "llama-linear", "qwen2",
                           "qwen3-yarn", "gpt2", "olmo2"}) {
    const config::ModelConfig model = files::read_hf_config(kFixtures / name);
    const VerifyFolder folder = open(kFixtures / name, model);
    ASSERT_EQ(folder.documents.size(), 8u) << name;
    i64 at = 0;
    for (size_t d = 0; d < folder.documents.size(); ++d) {
      EXPECT_EQ(folder.starts[d], at);
      EXPECT_EQ(std::ssize(folder.documents[d]), folder.lengths[d]);
      at += folder.lengths[d];
    }
    EXPECT_EQ(folder.shape("logits"), (std::vector<i64>{at, model.vocab_size}));
    EXPECT_EQ(folder.expected("train.loss").size(), 5u);
    EXPECT_EQ(folder.expected("loss")[0], folder.expected("train.loss")[0]);
    EXPECT_FALSE(folder.has("no such tensor"));
  }
}

TEST(VerifyFolder, does_without_what_is_not_compared) {
  EXPECT_EQ(error_of({}), "valid");
  const auto drop = [](std::vector<std::string> names) {
    return [names](Tensors& t) {
      for (const std::string& name : names) EXPECT_EQ(t.erase(name), 1u) << name;
    };
  };
  EXPECT_EQ(error_of({.input = drop({"labels"}), .expected = drop({"doc_loss_sum", "valid_tokens"})}), "valid");
  const std::string bias = "transformer.h.0.attn.c_attn.bias";
  EXPECT_EQ(
      error_of({.fixture = "gpt2", .expected = drop({"train.final_sum_qkv." + bias, "train.final_sumsq_qkv." + bias})}),
      "valid");
  EXPECT_THAT(error_of({.fixture = "gpt2", .expected = drop({"train.final_sumsq_qkv." + bias})}),
              HasSubstr("there is no tensor"));
}

TEST(VerifyFolder, every_other_tensor_is_needed) {
  for (const auto& [name, tensor] : read(kFixtures / "qwen2/expected.safetensors")) {
    if (name == "doc_loss_sum" || name == "valid_tokens") continue;
    const std::string text = error_of({.fixture = "qwen2", .expected = [&](Tensors& t) { t.erase(name); }});
    EXPECT_THAT(text, HasSubstr("expected.safetensors: there is no tensor \"" + name + "\"")) << name;
  }
  for (const char* name : {"tokens", "doc_lengths"})
    EXPECT_THAT(error_of({.input = [&](Tensors& t) { t.erase(name); }}),
                HasSubstr(std::string("there is no tensor \"") + name))
        << name;
}

TEST(VerifyFolder, every_tensor_has_its_type_and_shape) {
  for (const char* file : {"input", "expected"}) {
    for (const auto& [name, tensor] : read(kFixtures / "gpt2" / (std::string(file) + ".safetensors"))) {
      const auto error = [&](const std::function<void(Values&)>& change) {
        const auto damage = [&](Tensors& t) { change(t.at(name)); };
        const std::string text = error_of(std::string(file) == "input" ? Odd{.fixture = "gpt2", .input = damage}
                                                                       : Odd{.fixture = "gpt2", .expected = damage});
        EXPECT_THAT(text, HasSubstr(fmt::format("{}.safetensors: tensor \"{}\" ", file, name)));
        EXPECT_THAT(text, HasSubstr(" needed; docs/file-formats.md has what a verification folder holds."));
      };
      error([](Values& v) { v.dtype = v.dtype == DType::i64 ? DType::f64 : DType::i64; });
      error([](Values& v) { v.shape.insert(v.shape.begin(), 1); });
    }
  }
  EXPECT_EQ(error_of({.expected = [](Tensors& t) { t["loss"] = values<float>(DType::f32, {1}, {4.5f}); }}),
            "expected.safetensors: tensor \"loss\" is F32 [1], but F64 [1] is needed; docs/file-formats.md has what a "
            "verification folder holds.");
  EXPECT_THAT(error_of({.expected = [](Tensors& t) { t["train.loss"] = values<double>(DType::f64, {0}, {}); }}),
              HasSubstr("tensor \"train.loss\" is F64 [0], but F64 [5] is needed"));
}

TEST(VerifyFolder, results_are_finite_and_those_that_divide_are_positive) {
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const char* name : {"logits", "doc_loss_sum", "grad.model.norm.weight", "train.final_sum.model.norm.weight"})
      EXPECT_THAT(error_of({.expected = [&](Tensors& t) { data<double>(t.at(name))[0] = value; }}),
                  HasSubstr(fmt::format("tensor \"{}\" holds {}, but all values must be finite", name, value)));
  for (const char* name : {"loss", "grad_norm", "train.loss", "train.grad_norm", "train.final_loss"})
    EXPECT_THAT(error_of({.expected = [&](Tensors& t) { data<double>(t.at(name))[0] = 0; }}),
                HasSubstr(fmt::format("tensor \"{}\" holds 0, but its values must be above 0", name)));
}

TEST(VerifyFolder, results_of_another_model_are_named) {
  EXPECT_THAT(
      error_of(
          {.expected =
               [](Tensors& t) { t["grad.model.layers.0.self_attn.q_proj.bias"] = t.at("grad.model.norm.weight"); }}),
      HasSubstr("tensor \"grad.model.layers.0.self_attn.q_proj.bias\" is no result that the model of config.json has"));
  EXPECT_THAT(error_of({.expected = [](Tensors& t) { data<i64>(t.at("valid_tokens"))[0] = 7; }}),
              HasSubstr("tensor \"valid_tokens\" is 7, but the batch has 341"));
}

TEST(VerifyFolder, tokens_are_in_the_vocabulary) {
  for (const i64 token : {i64{103}, i64{-1}, i64{1} << 40})
    EXPECT_THAT(error_of({.input = [&](Tensors& t) { data<i64>(t.at("tokens"))[5] = token; }}),
                HasSubstr(fmt::format("tensor \"tokens\" has {} at place 5, outside the vocabulary of 103", token)));
}

TEST(VerifyFolder, documents_add_up_to_the_tokens) {
  const auto lengths = [](std::vector<i64> list) {
    return error_of({.input = [&](Tensors& t) { t["doc_lengths"] = values(DType::i64, {std::ssize(list)}, list); }});
  };
  EXPECT_THAT(lengths({0, 349}), HasSubstr("tensor \"doc_lengths\" has 0 at place 0, where 1 to 349 tokens are left"));
  EXPECT_THAT(lengths({300, -1, 50}), HasSubstr("has -1 at place 1, where 1 to 49"));
  EXPECT_THAT(lengths({300, std::numeric_limits<i64>::max()}), HasSubstr("at place 1, where 1 to 49"));
  EXPECT_THAT(lengths({300, 48}), HasSubstr("tensor \"doc_lengths\" adds up to 348, but there are 349 tokens"));
  EXPECT_THAT(lengths({}), HasSubstr("adds up to 0"));
  EXPECT_THAT(lengths(std::vector<i64>(349, 1)),
              HasSubstr("has no document of two tokens, so that nothing is predicted"));
  EXPECT_THAT(error_of({.fixture = "gpt2",
                        .input =
                            [](Tensors& t) {
                              t["doc_lengths"] = values<i64>(DType::i64, {2}, {161, 188});
                            }}),
              HasSubstr("has 161 at place 0, but the model has 160 positions"));
  EXPECT_THAT(error_of({.model = [](config::ModelConfig& m) { m.sliding_window = 129; }}),
              HasSubstr("above the model's sliding_window of 129, which is not supported"));
  EXPECT_EQ(error_of({.model = [](config::ModelConfig& m) { m.sliding_window = 130; }}), "valid");
}

TEST(VerifyFolder, labels_follow_from_the_tokens) {
  for (const size_t place : {0u, 348u})
    EXPECT_THAT(error_of({.input = [&](Tensors& t) { data<i64>(t.at("labels"))[place] = 1000; }}),
                HasSubstr(fmt::format("tensor \"labels\" has 1000 at place {}, where ", place)));
}

}  // namespace
}  // namespace switchyard::train
