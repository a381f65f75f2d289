// Runs the reference trainer as a program and compares its files.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "../scratch.hpp"

namespace {

namespace fs = std::filesystem;
using Values = std::vector<double>;
using Named = std::map<std::string, Values>;

struct Result {
  int status;
  std::string output;  // standard output and error
};

Result reference(const std::string& arguments) {
  const std::string command = std::string(SWITCHYARD_REFERENCE) + " " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  Result result{-1, {}};
  if (!pipe) return result;
  std::array<char, 4096> buffer{};
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) result.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// The tensors that a run dumped, by name. Each line of the index is "name dim dim ...".
Named read_dump(const fs::path& folder) {
  Named values;
  std::ifstream index(folder / "index.txt");
  for (std::string line; std::getline(index, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    size_t count = 1;
    for (size_t dim; words >> dim;) count *= dim;
    const std::string bytes = read_file(folder / (name + ".f64"));
    EXPECT_EQ(bytes.size(), count * 8) << name;
    values[name].resize(bytes.size() / 8);
    std::memcpy(values[name].data(), bytes.data(), bytes.size());
  }
  return values;
}

/// All tensors of a safetensors file as double.
Named read_safetensors(const fs::path& path) {
  const std::string file = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  Named values;
  const nlohmann::json header = nlohmann::json::parse(file.substr(8, length));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = 8 + length + entry["data_offsets"][0].get<size_t>();
    const size_t bytes = 8 + length + entry["data_offsets"][1].get<size_t>() - begin;
    Values& into = values[name];
    const auto read = [&]<class T>(T) {
      std::vector<T> raw(bytes / sizeof(T));
      std::memcpy(raw.data(), file.data() + begin, bytes);
      into.assign(raw.begin(), raw.end());
    };
    if (entry["dtype"] == "F32")
      read(float{});
    else if (entry["dtype"] == "F64")
      read(double{});
    else
      read(int64_t{});
  }
  return values;
}

double max_error(const Values& a, const Values& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(a[i] - b[i]);
    if (std::isnan(error)) return INFINITY;
    worst = std::max(worst, error);
  }
  return worst;
}

class ReferenceTrainer : public testing::TestWithParam<const char*> {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Named run(const std::string& arguments) const {
    const Result result = reference(arguments + " --dump " + path("dump"));
    EXPECT_EQ(result.status, 0) << result.output;
    return read_dump(folder_ / "dump");
  }
  void expect_error(const std::string& arguments, const std::string& message) const {
    const Result result = reference(arguments);
    EXPECT_EQ(result.status, 1) << arguments;
    EXPECT_NE(result.output.find(message), std::string::npos) << arguments << ": " << result.output;
  }

 private:
  switchyard::Scratch folder_;
};

using GoldenFixture = ReferenceTrainer;

TEST_P(GoldenFixture, LogitsLossGradientsAndFiveStepsMatch) {
  const fs::path fixture = fs::path(SWITCHYARD_FIXTURES) / GetParam();
  const Named expected = read_safetensors(fixture / "expected.safetensors");
  const Named actual = run(fixture.string());
  size_t gradients = 0;
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    gradients += name.starts_with("grad.");
    EXPECT_LT(max_error(actual.at(name), values), name.starts_with("train.") ? 1e-10 : 1e-11) << name;
  }
  EXPECT_EQ(gradients, read_safetensors(fixture / "model.safetensors").size());
}

INSTANTIATE_TEST_SUITE_P(Folders, GoldenFixture, testing::Values("llama-gqa", "llama-tied", "llama3-rope"),
                         [](const auto& folder) {
                           std::string name = folder.param;
                           std::erase(name, '-');
                           return name;
                         });

/// The loss at w + a d and w - a d, d = the gradient's direction, gives the gradient's norm by central difference.
TEST_P(ReferenceTrainer, GradientIsTheSlopeOfTheLoss) {
  const Named start = run(std::string("--random 5 --model ") + GetParam() + " --write-model " + path("model"));
  const std::string original = read_file(path("model/model.safetensors"));
  uint64_t length = 0;
  std::memcpy(&length, original.data(), 8);
  const nlohmann::json header = nlohmann::json::parse(original.substr(8, length));

  double slope = 0;  // sum of gradient times change of the weight, which is rounded to float32
  Values loss;
  for (const double sign : {1.0, -1.0}) {
    std::string file = original;
    for (const auto& [name, entry] : header.items()) {
      const size_t begin = 8 + length + entry["data_offsets"][0].get<size_t>();
      const Values& gradient = start.at("grad." + name);
      for (size_t i = 0; i < gradient.size(); ++i) {
        float w = 0;
        std::memcpy(&w, file.data() + begin + 4 * i, 4);
        const float moved = static_cast<float>(w + sign * 1e-5 * gradient[i]);
        std::memcpy(file.data() + begin + 4 * i, &moved, 4);
        slope += sign * gradient[i] * (static_cast<double>(moved) - static_cast<double>(w));
      }
    }
    write_file(path("model/model.safetensors"), file);
    loss.push_back(run(path("model") + " --steps 1").at("loss")[0]);
  }
  EXPECT_GT(slope, 1e-6);
  EXPECT_NEAR((loss[0] - loss[1]) / slope, 1, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceTrainer,
                         testing::Values("16,2,4,2,24,31", "12,1,3,1,20,17 --tied 1",
                                         "16,2,2,2,24,31 --tied 1 --rope-llama3 8,1,4,16 --lengths 30,2,11"),
                         [](const auto& model) { return "Model" + std::to_string(model.index); });

using ReferenceTrainerRun = ReferenceTrainer;

TEST_F(ReferenceTrainerRun, AWrittenModelIsAFixtureThatTrainsToTheSameBits) {
  const Named first =
      run("--random 7 --model 16,2,4,2,24,31 --tied 1 --rope-llama3 8,1,4,8 --write-model " + path("model"));
  const Named expected = read_safetensors(path("model/expected.safetensors"));
  EXPECT_EQ(expected.at("train.loss").size(), 5u);
  EXPECT_EQ(expected.at("valid_tokens"), Values{8 + 3 + 0 + 12});
  const Named second = run(path("model"));
  EXPECT_EQ(first, second);
  for (const auto& [name, values] : expected) EXPECT_EQ(second.at(name), values) << name;
}

TEST_F(ReferenceTrainerRun, TrainingLowersTheLossAndSeedsDiffer) {
  const Named a = run("--random 1 --model 16,2,4,2,24,31 --steps 8 --lr 1e-2");
  EXPECT_LT(a.at("train.final_loss")[0], 0.9 * a.at("train.loss")[0]);
  const Named b = run("--random 2 --model 16,2,4,2,24,31 --steps 8 --lr 1e-2");
  EXPECT_NE(a.at("train.loss"), b.at("train.loss"));
}

TEST_F(ReferenceTrainerRun, ATokenOfOneDocumentChangesNoLogitOfAnother) {
  const std::string model = "--random 4 --model 16,2,4,2,24,31 --steps 1 --documents " + path("documents");
  write_file(path("documents"), "1 2 3 4\n5 6 7\n8\n");
  const Values before = run(model).at("logits");
  write_file(path("documents"), "1 2 3 4\n5 9 7\n8\n");
  const Values after = run(model).at("logits");
  ASSERT_EQ(before.size(), 8u * 31u);
  for (size_t token = 0; token < 8; ++token) {
    const bool same =
        std::equal(before.begin() + token * 31, before.begin() + (token + 1) * 31, after.begin() + token * 31);
    EXPECT_EQ(same, token != 5 && token != 6) << "token " << token;
  }
}

TEST_F(ReferenceTrainerRun, BatchesFollowTheirBlankLinesAndThenStartAgain) {
  const std::string model = "--random 4 --model 16,2,4,2,24,31 --lr 0 --steps 3 --documents " + path("documents");
  write_file(path("documents"), "\n1 2 3 4\n5 6 7\n\n\n8 9 10\n\n");
  const Named both = run(model);
  write_file(path("documents"), "8 9 10\n");
  const Named second = run(model);
  EXPECT_EQ(both.at("doc_loss_sum").size(), 2u);
  EXPECT_NE(both.at("train.loss")[0], both.at("train.loss")[1]);
  EXPECT_EQ(both.at("train.loss")[0], both.at("train.loss")[2]);
  EXPECT_EQ(both.at("train.loss")[1], second.at("train.loss")[0]);
  EXPECT_EQ(both.at("train.final_loss")[0], second.at("train.final_loss")[0]);
}

TEST_F(ReferenceTrainerRun, ABatchWithoutLabelsHasNoLossAndNoGradient) {
  write_file(path("documents"), "3\n7\n");
  const Named result = run("--random 4 --model 16,2,4,2,24,31 --steps 1 --documents " + path("documents"));
  EXPECT_EQ(result.at("loss"), Values{0});
  EXPECT_EQ(result.at("grad_norm"), Values{0});
  EXPECT_EQ(result.at("logits").size(), 2u * 31u);
}

TEST_F(ReferenceTrainerRun, EachStepHasItsLearningRateAndTheLastOneHolds) {
  const std::string model = "--random 4 --model 16,2,4,2,24,31 --steps 3 --lr ";
  const Named varying = run(model + "1e-3,2e-3");
  EXPECT_EQ(varying.at("train.loss")[1], run(model + "1e-3").at("train.loss")[1]);
  EXPECT_NE(varying.at("train.loss")[2], run(model + "1e-3").at("train.loss")[2]);
  EXPECT_EQ(varying.at("train.final_loss"), run(model + "1e-3,2e-3,2e-3").at("train.final_loss"));
}

TEST_F(ReferenceTrainerRun, BadInputIsRefusedWithItsPlace) {
  expect_error("", "usage: reference");
  expect_error("--stepz 3", "unknown argument --stepz");
  expect_error("--random", "--random: needs a value");
  expect_error("--steps 3", "give either a folder or --random");
  expect_error("--random 1 --model 1,2", "--model: needs hidden,layers,heads,kv_heads,ffn,vocab");
  expect_error("--random 1 --model 16,2,4,3,24,31", "query heads must be a multiple of key/value heads");
  expect_error("--random 1 --model 12,2,4,4,24,31", "the head size must be even");
  expect_error("--random 1 --model 16,2,4,2,24,31 --steps 0", "--steps: at least 1");
  expect_error("--random 1 --model 16,2,4,2,24,31 --lr fast", "--lr: \"fast\" is not a number");
  expect_error("--random 1 --model 16,2,4,2,24,31 --lengths 3,0", "a document is empty");
  expect_error(path("nowhere"), "cannot read " + path("nowhere/config.json"));
  write_file(path("documents"), "1 2\n3 31\n");
  expect_error("--random 1 --model 16,2,4,2,24,31 --documents " + path("documents"),
               "token id 31 is outside the vocabulary of 31");
  write_file(path("documents"), "1 2\n3 x\n");
  expect_error("--random 1 --model 16,2,4,2,24,31 --documents " + path("documents"),
               path("documents") + ":2: \"x\" is not a token id");
}

TEST_F(ReferenceTrainerRun, BadFilesAreRefusedWithTheirName) {
  run("--random 1 --model 16,2,4,2,24,31 --write-model " + path("model"));
  const std::string weights = read_file(path("model/model.safetensors")), config = read_file(path("model/config.json"));
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  write_file(path("model/model.safetensors"), weights.substr(0, weights.size() - 4));
  expect_error(path("model"), "is cut off or has a wrong size");
  write_file(path("model/model.safetensors"), weights.substr(0, 5));
  expect_error(path("model"), "too short for a safetensors file");
  write_file(path("model/model.safetensors"), replaced(weights, "lm_head", "lm_tail"));
  expect_error(path("model"), "no tensor lm_head.weight");
  write_file(path("model/model.safetensors"), weights);
  write_file(path("model/config.json"), replaced(config, "\"vocab_size\": 31", "\"vocab_size\": 32"));
  expect_error(path("model"), "has another shape than config.json says");
  write_file(path("model/config.json"), replaced(config, "\"llama\"", "\"gpt2\""));
  expect_error(path("model"), "only model_type \"llama\" is known here");
  write_file(path("model/config.json"), config.substr(0, 50));
  expect_error(path("model"), "not valid JSON");
}

}  // namespace
