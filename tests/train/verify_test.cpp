#include "train/verify.hpp"

#include <gtest/gtest.h>

#include "../files/scratch.hpp"
#include "base/dtype.hpp"
#include "base/errors.hpp"

namespace switchyard::train {
namespace {

const std::string kFolder = SWITCHYARD_FIXTURES "/";

struct Model {
  const char* name;
  int layers;
  std::vector<int> tp;       // degrees that its heads allow
  std::vector<int> refused;  // the others up to 8 that the number of ranks allows
};
const std::vector<Model>& fixture_list() {
  static const std::vector<Model> kModels = {
      {"llama-gqa", 4, {1, 2, 3, 4, 8}, {5, 6, 7}},  {"llama-tied", 3, {1, 2, 3, 4, 5, 6}, {7, 8}},
      {"llama3-rope", 2, {1, 2, 4}, {3, 5, 7, 8}},   {"llama-dynamic", 2, {1, 2, 3, 6}, {4, 5, 7, 8}},
      {"llama-linear", 2, {1, 2, 4}, {3, 5, 7, 8}},  {"qwen2", 2, {1, 2, 4, 6}, {3, 5, 7, 8}},
      {"qwen3-yarn", 2, {1, 2, 3, 6}, {4, 5, 7, 8}}, {"gpt2", 3, {1, 2, 3, 4, 5}, {6, 7, 8}},
      {"olmo2", 3, {1, 2, 3, 6}, {4, 5, 7, 8}}};
  return kModels;
}

struct Case {
  std::string model;
  std::vector<std::string> strategies;
  Precision precision{DType::f64, DType::f64};
};

std::string label(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.model + "_" + std::string(name_of(info.param.precision));
  for (const std::string& spec : info.param.strategies) name += "_" + spec;
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') out += c;
  return out;
}

// Every (dp, tp, pp) that the model allows with a product of up to 8 ranks.
std::vector<Case> single_strategies() {
  std::vector<Case> cases;
  for (const Model& model : fixture_list())
    for (const int tp : model.tp)
      for (int pp = 1; pp <= model.layers; ++pp)
        for (int dp = 1; dp * tp * pp <= 8; ++dp)
          if (const int n = dp * tp * pp; n <= 6 || n == 8)
            cases.push_back({model.name, {fmt::format("{},{},{}", dp, tp, pp)}});
  return cases;
}

// Strategies that divide the batch among them, with switches inside every step.
std::vector<Case> several_strategies() {
  std::vector<Case> cases;
  for (const char* model : {"llama-gqa", "llama-tied", "llama3-rope", "qwen2"}) {
    cases.push_back({model, {"1,2,2", "4,1,1"}});
    cases.push_back({model, {"4,1,1", "1,2,2"}});
    cases.push_back({model, {"2,2,1", "1,1,2"}});
    cases.push_back({model, {"1,2,2", "2,2,1", "4,1,1"}});
  }
  cases.push_back({"llama-gqa", {"1,4,2", "2,2,2", "8,1,1"}});
  cases.push_back({"llama-gqa", {"tp=2,ulysses=4", "8,1,1"}});
  cases.push_back({"qwen2", {"pp=2,ulysses=2", "tp=2,ulysses=2"}});
  cases.push_back({"qwen3-yarn", {"tp=3,pp=2", "pp=2,ulysses=3"}});
  cases.push_back({"olmo2", {"tp=6,inner=2", "pp=3,ring=2", "6,1,1"}});
  cases.push_back({"olmo2", {"ulysses=3", "1,3,1"}});
  cases.push_back({"llama-gqa", {"ring=4,ring_degree=uniform"}});
  cases.push_back({"llama-dynamic", {"ring=4,ring_degree=uniform"}});
  cases.push_back({"llama-dynamic", {"ring=3,exchange=ring", "1,3,1"}});
  cases.push_back({"llama-dynamic", {"pp=2,ulysses=2", "ring=2,ulysses=2", "4,1,1"}});
  cases.push_back({"llama-gqa", {"tp=2,ring=2", "ring=4"}});
  cases.push_back({"llama-gqa", {"ring=4,ring_degree=uniform,exchange=ring"}});
  cases.push_back({"qwen2", {"pp=2,ring=2", "ring=2,ulysses=2"}});
  cases.push_back({"gpt2", {"dp=2,ring=2", "1,1,3"}});
  cases.push_back({"gpt2", {"1,5,1", "2,1,2"}});
  cases.push_back({"gpt2", {"1,1,3", "3,1,1"}});
  cases.push_back({"gpt2", {"1,1,3", "1,1,2", "2,1,1"}});
  return cases;
}

std::vector<Case> in_fp32() {
  const Precision fp32{DType::f32, DType::f32};
  std::vector<Case> cases;
  for (const Model& model : fixture_list()) cases.push_back({model.name, {"1,1,1"}, fp32});
  cases.push_back({"llama-gqa", {"1,2,2", "4,1,1"}, fp32});
  cases.push_back({"gpt2", {"1,1,3", "3,1,1"}, fp32});
  return cases;
}

class Verify : public testing::TestWithParam<Case> {};

TEST_P(Verify, FixtureIsReproduced) {
  const VerifyResult result = verify({kFolder + GetParam().model, GetParam().strategies, 0, GetParam().precision}, {});
  EXPECT_TRUE(result.ok) << "logits " << result.logits_max_error << " loss " << result.loss_error << " gradient "
                         << result.gradient_max_error << " AdamW loss " << result.adamw_loss_max_error
                         << " AdamW parameter " << result.adamw_parameter_max_error;
  if (GetParam().precision.compute == DType::f32) {
    EXPECT_GT(result.logits_max_error, 1e-10);  // it really was fp32
  } else {
    EXPECT_LT(result.logits_max_error, 1e-12);
    EXPECT_LT(result.gradient_max_error, 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(One, Verify, testing::ValuesIn(single_strategies()), label);
INSTANTIATE_TEST_SUITE_P(Several, Verify, testing::ValuesIn(several_strategies()), label);
INSTANTIATE_TEST_SUITE_P(Fp32, Verify, testing::ValuesIn(in_fp32()), label);

TEST(VerifyRefusals, AStrategyThatTheHeadsDoNotAllowIsRefusedWithTheReason) {
  for (const Model& model : fixture_list())
    for (const int tp : model.refused) {
      const std::string text = message_of<UserError>([&] {
        verify({kFolder + model.name, {fmt::format("1,{},1", tp)}}, {});
      });
      EXPECT_NE(text.find(fmt::format("outer={}", tp)), std::string::npos) << model.name << ": " << text;
      EXPECT_NE(text.find("heads"), std::string::npos) << model.name << ": " << text;
    }
}

TEST(VerifyRefusals, MoreStrategiesThanLengthsAreRefused) {
  const std::string text = message_of<UserError>([] {
    verify({kFolder + "llama-gqa", std::vector<std::string>(64, "1,1,1")}, {});
  });
  EXPECT_EQ(text.substr(0, 31), "64 strategies are too many for ");
}

TEST(VerifyRefusals, AFolderWithoutFixtureIsRefused) {
  const Scratch empty;
  const std::string text = message_of<UserError>([&] { verify({empty.path().string(), {"1,1,1"}}, {}); });
  EXPECT_NE(text.find("config.json"), std::string::npos) << text;
}

}  // namespace
}  // namespace switchyard::train
