#include "files/model_folder.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>

#include <nlohmann/json.hpp>

#include "base/bfloat16.hpp"
#include "base/errors.hpp"
#include "files/disk.hpp"
#include "files/hf_config.hpp"
#include "files/safetensors.hpp"
#include "files/tensor_writer.hpp"
#include "full_disk.hpp"
#include "scratch.hpp"

namespace switchyard::files {
namespace {

using nlohmann::json;

const std::string kTokenizer = R"({"added_tokens": [{"id": 7, "content": "<|end|>", "special": true}],
                                   "model": {"vocab": {"<s>": 3, "a": 0}}})";

class ModelFolder : public testing::Test {
 protected:
  std::filesystem::path folder(const std::string& name, const ModelFiles& files) {
    std::filesystem::create_directories(scratch_ / name);
    for (const auto& [file, text] : files) put(scratch_ / name / file, text);
    return scratch_ / name;
  }
  const Scratch scratch_;
  const config::ModelConfig model_ = read_hf_config(std::filesystem::path(SWITCHYARD_FIXTURES) / "llama-gqa");
};

TEST_F(ModelFolder, TheTokenizerIsThatOfTheDataAndDeclaresWhatBeginsAndEndsATextInAllItsFiles) {
  const auto data = folder("data", {{"tokenizer.json", kTokenizer},
                                    {"chat_template.jinja", "{{ messages }}"},
                                    {"tokenizer_config.json",
                                     R"({"eos_token": {"content": "<|end|>"}, "bos_token": "<s>", "unk_token": null})"},
                                    {"corpus.bin", "tokens"}});
  const auto before = folder("model", {{"tokenizer.json", "{}"}, {"config.json", to_hf_config(model_, DType::f32)}});
  for (const auto& place : {data, data / "corpus"}) {
    const ModelFiles files = model_files(model_, DType::f32, before, {place});
    EXPECT_EQ(files.at("tokenizer.json"), kTokenizer);
    EXPECT_EQ(files.at("chat_template.jinja"), "{{ messages }}");
    EXPECT_FALSE(files.contains("corpus.bin"));
    const json config = json::parse(files.at("tokenizer_config.json"));
    EXPECT_EQ(config.at("tokenizer_class"), "PreTrainedTokenizerFast");
    EXPECT_EQ(config.at("model_input_names"), (json{"input_ids", "attention_mask"})) << "no token types";
    EXPECT_EQ(config.at("bos_token"), "<s>");
    EXPECT_EQ(json::parse(files.at("special_tokens_map.json")), (json{{"bos_token", "<s>"}, {"eos_token", "<|end|>"}}));
    for (const char* name : {"config.json", "generation_config.json"}) {
      EXPECT_EQ(json::parse(files.at(name)).at("eos_token_id"), 7) << name;
      EXPECT_EQ(json::parse(files.at(name)).at("bos_token_id"), 3) << name;
    }
  }
}

TEST_F(ModelFolder, ATokenOfAUnigramTokenizerHasItsPlaceInTheListAsItsId) {
  const auto data =
      folder("data", {{"tokenizer.json", R"({"model": {"vocab": [["<unk>", 0.0], ["a", -1.5], ["</s>", 0]]}})"},
                      {"tokenizer_config.json", R"({"eos_token": "</s>", "bos_token": "<s>"})"}});
  const json config = json::parse(model_files(model_, DType::f32, "", {data}).at("config.json"));
  EXPECT_EQ(config.at("eos_token_id"), 2);
  EXPECT_TRUE(config.at("bos_token_id").is_null()) << "not in the list";
}

TEST_F(ModelFolder, WithoutATokenizerBesideTheDataItIsTheModelsAndWithoutAnyThereIsNone) {
  const auto data = folder("data", {{"corpus.bin", "tokens"}});
  const auto before = folder("model", {{"tokenizer.json", kTokenizer},
                                       {"special_tokens_map.json", R"({"eos_token": "<|end|>"})"},
                                       {"config.json", to_hf_config(model_, DType::f32)}});
  const ModelFiles files = model_files(model_, DType::f32, before, {data});
  EXPECT_EQ(files.at("tokenizer.json"), kTokenizer);
  EXPECT_EQ(files.at("special_tokens_map.json"), R"({"eos_token": "<|end|>"})");
  EXPECT_EQ(json::parse(files.at("config.json")).at("eos_token_id"), 7);
  const ModelFiles none = model_files(model_, DType::f32, "", {data});
  EXPECT_EQ(none.size(), 2u) << "config.json and generation_config.json";
  EXPECT_TRUE(json::parse(none.at("config.json")).at("eos_token_id").is_null());
}

TEST_F(ModelFolder, OfSeveralCorporaTheFirstWithATokenizerGivesItAndAnyTheChatTemplate) {
  const auto bare = folder("bare", {{"corpus.bin", "tokens"}});
  const auto texts = folder("texts", {{"tokenizer.json", kTokenizer}, {"vocab.json", "of texts"}});
  const auto chats = folder("chats", {{"tokenizer.json", kTokenizer}, {"chat_template.jinja", "{{ messages }}"}});
  const ModelFiles files = model_files(model_, DType::f32, "", {bare, texts, chats});
  EXPECT_EQ(files.at("tokenizer.json"), kTokenizer);
  EXPECT_EQ(files.at("vocab.json"), "of texts");
  EXPECT_EQ(files.at("chat_template.jinja"), "{{ messages }}");
  put(texts / "tokenizer_config.json", R"({"chat_template": "its own"})");
  EXPECT_FALSE(model_files(model_, DType::f32, "", {texts, chats}).contains("chat_template.jinja"));
}

TEST_F(ModelFolder, WithoutCorporaOrAModelNoTokenizerIsTakenFromTheWorkingFolder) {
  const auto here = folder("here", {{"tokenizer.json", kTokenizer}});
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(here);
  const ModelFiles files = model_files(model_, DType::f32, "", {});
  std::filesystem::current_path(before);
  EXPECT_FALSE(files.contains("tokenizer.json"));
}

TEST_F(ModelFolder, TwoTokenizersClashWhereAnIdHasTwoTokens) {
  const auto one = folder("one", {{"tokenizer.json", kTokenizer}}), none = folder("none", {{"corpus.bin", "tokens"}});
  const auto more = folder("more", {{"tokenizer.json", R"({"model": {"vocab": {"new": 2}}, "added_tokens": []})"}});
  EXPECT_FALSE(token_clash(one, one));
  EXPECT_FALSE(token_clash(one, none));
  EXPECT_FALSE(token_clash(one, more)) << "it has other tokens";
  const auto other =
      folder("other", {{"tokenizer.json", R"({"added_tokens": [{"content": "<stop>", "id": 7, "special": true}]})"}});
  const auto clash = token_clash(one, other);
  ASSERT_TRUE(clash);
  EXPECT_EQ(clash->id, 7);
  EXPECT_EQ(clash->first, "<|end|>");
  EXPECT_EQ(clash->second, "<stop>");
  const auto pairs = folder("pairs", {{"tokenizer.json", R"({"model": {"vocab": [["b", -1.5], ["<s>", -2]]}})"}});
  ASSERT_TRUE(token_clash(one, pairs));
  EXPECT_EQ(token_clash(one, pairs)->second, "b");
}

TEST_F(ModelFolder, KeepsWhatTheModelSaidOfGenerationAndSeveralEnds) {
  json config = json::parse(to_hf_config(model_, DType::bf16));
  config["eos_token_id"] = {5, 7};
  config["pretraining_tp"] = 1;
  const auto before = folder("model", {{"config.json", config.dump()},
                                       {"generation_config.json", R"({"temperature": 0.6, "eos_token_id": [5, 6]})"}});
  const auto data =
      folder("data", {{"tokenizer.json", kTokenizer}, {"tokenizer_config.json", R"({"eos_token": "<|end|>"})"}});
  const ModelFiles files = model_files(model_, DType::f32, before, {data});
  const json after = json::parse(files.at("config.json")), generation = json::parse(files.at("generation_config.json"));
  EXPECT_EQ(after.at("eos_token_id"), (json{5, 7}));
  EXPECT_EQ(after.at("pretraining_tp"), 1);
  EXPECT_EQ(after.at("dtype"), "float32");
  EXPECT_EQ(generation.at("temperature"), 0.6);
  EXPECT_EQ(generation.at("eos_token_id"), 7) << "a text of the data ends with another token than these";
}

TEST_F(ModelFolder, ATokenOutsideTheVocabularyIsNotNamedAndADamagedFileIs) {
  config::ModelConfig small = model_;
  small.vocab_size = 7;
  const auto data =
      folder("data", {{"tokenizer.json", kTokenizer}, {"tokenizer_config.json", R"({"eos_token": "<|end|>"})"}});
  EXPECT_TRUE(json::parse(model_files(small, DType::f32, "", {data}).at("config.json")).at("eos_token_id").is_null());
  put(data / "tokenizer_config.json", "[");
  EXPECT_EQ(message_of<UserError>([&] { model_files(small, DType::f32, "", {data}); }),
            (data / "tokenizer_config.json").string() + ": it is not a JSON object. Repair it, or remove it.");
}

class Export : public ModelFolder {
 protected:
  Export() {
    TensorFolderWriter writer = TensorFolderWriter::create(checkpoint_ / "model", {{"x", DType::f32, {2, 2}}});
    writer.write("x", 0, raw_bytes(values_));
    writer.finish();
    put(checkpoint_ / "model/config.json", to_hf_config(model_, DType::f32));
  }
  const std::filesystem::path checkpoint_ = scratch_ / "step-00000001";
  const std::vector<float> values_ = {1.0f, 1.00390625f, -3.14159f, 1e-30f};
};

TEST_F(Export, WritesTheWeightsInTheTypeThatIsAskedForAndAllOtherFiles) {
  EXPECT_FALSE(export_model(checkpoint_, scratch_ / "full", {})) << "there is no tokenizer";
  put(checkpoint_ / "model/tokenizer_config.json", "{}");
  EXPECT_TRUE(export_model(checkpoint_, scratch_ / "half/", {.dtype = DType::bf16}));
  EXPECT_EQ(values_of<float>(TensorFolder::open(scratch_ / "full").data("x")), values_);
  EXPECT_EQ(get(scratch_ / "full/config.json"), to_hf_config(model_, DType::f32));
  const TensorFolder half = TensorFolder::open(scratch_ / "half");
  std::vector<std::uint16_t> rounded;
  for (const float value : values_) rounded.push_back(bfloat16_bits(value));
  EXPECT_EQ(half.info("x").dtype, FileDType::bf16);
  EXPECT_EQ(values_of<std::uint16_t>(half.data("x")), rounded);
  EXPECT_EQ(get(scratch_ / "half/config.json"), to_hf_config(model_, DType::bf16));
  EXPECT_EQ(get(scratch_ / "half/tokenizer_config.json"), "{}");
}

TEST_F(Export, PadsTheVocabularyWhereItIsAskedTo) {
  std::filesystem::remove(checkpoint_ / "model/model.safetensors");
  TensorFolderWriter writer = TensorFolderWriter::create(
      checkpoint_ / "model",
      {{"model.embed_tokens.weight", DType::f32, {2, 2}}, {"model.norm.weight", DType::f32, {4}}});
  writer.write("model.embed_tokens.weight", 0, raw_bytes(values_));
  writer.write("model.norm.weight", 0, raw_bytes(values_));
  writer.finish();
  export_model(checkpoint_, scratch_ / "padded", {.vocab_multiple = 3});
  const TensorFolder padded = TensorFolder::open(scratch_ / "padded");
  EXPECT_EQ(padded.info("model.embed_tokens.weight").shape, (std::vector<i64>{3, 2}));
  std::vector<float> rows = values_;
  for (const size_t column : {0, 1}) rows.push_back((values_[column] + values_[column + 2]) / 2);
  EXPECT_EQ(values_of<float>(padded.data("model.embed_tokens.weight")), rows);
  EXPECT_EQ(values_of<float>(padded.data("model.norm.weight")), values_) << "no vocabulary";
  EXPECT_EQ(json::parse(get(scratch_ / "padded/config.json")).at("vocab_size"), (model_.vocab_size + 2) / 3 * 3);
}

TEST_F(Export, TakesOnlyANewOrEmptyFolderAndLeavesNothingWhereItFails) {
  const auto taken = folder("taken", {{"notes.txt", "mine"}});
  EXPECT_EQ(message_of<UserError>([&] { export_model(checkpoint_, taken, {}); }),
            taken.string() + " exists and is not an empty folder. Choose another one for the model.");
  const auto empty = folder("empty", {});
  export_model(checkpoint_, empty, {});
  EXPECT_TRUE(std::filesystem::exists(empty / "model.safetensors"));
  TensorWriter writer = TensorWriter::create(checkpoint_ / "model/model.safetensors", {{"x", DType::f64, {1}}});
  writer.finish();
  EXPECT_EQ(message_of<UserError>([&] { export_model(checkpoint_, scratch_ / "new", {}); }),
            (checkpoint_ / "model").string() + ": tensor \"x\" is F64; the weights of a checkpoint are F32.");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "new"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "new.partial"));
}

TEST_F(Export, FillsAnEmptyFolderThatIsALinkOrTheCurrentOne) {
  const auto real = folder("real", {}), current = folder("current", {});
  std::filesystem::create_directory_symlink(real, scratch_ / "link");
  export_model(checkpoint_, scratch_ / "link", {});
  EXPECT_TRUE(std::filesystem::is_symlink(scratch_ / "link"));
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(current);
  export_model(checkpoint_, ".", {});
  std::filesystem::current_path(before);
  for (const auto& filled : {real, current}) {
    EXPECT_EQ(values_of<float>(TensorFolder::open(filled).data("x")), values_);
    EXPECT_TRUE(std::filesystem::exists(filled / "config.json"));
    EXPECT_FALSE(std::filesystem::exists(filled / ".partial"));
  }
}

TEST_F(Export, FillsAnEmptyFolderOnAnotherDisk) {
  const SmallDisk disk(scratch_ / "disk", 1 << 20);
  if (!disk.mounted()) GTEST_SKIP() << "mounting needs root";
  export_model(checkpoint_, scratch_ / "disk", {});
  EXPECT_EQ(values_of<float>(TensorFolder::open(scratch_ / "disk").data("x")), values_);
}

TEST_F(Export, WaitsForNoOtherExportToTheSameFolderAndLeavesItsFiles) {
  const auto empty = folder("empty", {});
  for (const auto& folders :
       {std::pair(scratch_ / "new", scratch_ / "new.partial"), std::pair(empty, empty / ".partial")}) {
    const auto &out = folders.first, &partial = folders.second;
    std::filesystem::create_directory(partial);
    put(partial / "model.safetensors.tmp", "of the other");
    Descriptor other(::open(partial.c_str(), O_RDONLY | O_DIRECTORY));
    ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
    EXPECT_EQ(message_of<UserError>([&] { export_model(checkpoint_, out, {}); }),
              partial.string() +
                  ": another export is writing there. Wait until it ends, or choose another folder for the model.");
    EXPECT_EQ(get(partial / "model.safetensors.tmp"), "of the other");
    other.close();  // killed
    export_model(checkpoint_, out, {});
    EXPECT_EQ(values_of<float>(TensorFolder::open(out).data("x")), values_);
    EXPECT_FALSE(std::filesystem::exists(out / "model.safetensors.tmp"));
    EXPECT_FALSE(std::filesystem::exists(partial));
  }
}

}  // namespace
}  // namespace switchyard::files
