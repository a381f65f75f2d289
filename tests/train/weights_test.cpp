#include "train/weights.hpp"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>

#include "../files/scratch.hpp"
#include "base/errors.hpp"
#include "files/hf_config.hpp"
#include "files/tensor_writer.hpp"
#include "models/build.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::train {
namespace {

const std::string kFolder = SWITCHYARD_FIXTURES "/";

ir::Graph graph_of(const config::ModelConfig& model) {
  return models::build(model, {DType::f64, DType::f64}, models::Output::loss);
}
ir::Graph graph_of(const std::string& fixture) { return graph_of(files::read_hf_config(kFolder + fixture)); }

int find(const ir::Graph& graph, const std::string& name) {
  for (size_t p = 0; p < graph.params().size(); ++p)
    if (graph.param(static_cast<int>(p)).name.find(name) != std::string::npos) return static_cast<int>(p);
  ADD_FAILURE() << "no parameter " << name;
  return 0;
}

at::Tensor box_values(const runtime::Home::Initial& initial, int param, const layout::Box& box,
                      DType type = DType::f64) {
  std::vector<i64> size;
  for (int d = 0; d < box.dims; ++d) size.push_back(box.size(d));
  at::Tensor values = runtime::empty(size, type, at::kCPU);
  initial(param, box, values);
  return values;
}

TEST(RandomWeights, ABoxHasTheValuesOfTheWholeTensorThere) {
  const ir::Graph graph = graph_of("llama-gqa");
  const auto initial = random_weights(graph, 5);
  for (const char* name : {"embed_tokens", "down_proj"}) {
    const int p = find(graph, name);
    const layout::Box whole = layout::whole(graph.param(p).shape.size);
    layout::Box part = whole;
    part.lo = {3, 5};
    part.hi = {8, 12};
    EXPECT_TRUE(box_values(initial, p, part).equal(runtime::view_of(box_values(initial, p, whole), whole, part)));
  }
}

TEST(RandomWeights, HaveTheStatedSpreadAndDependOnSeedAndName) {
  const ir::Graph graph = graph_of("llama-gqa");
  const int p = find(graph, "layers.0.mlp.down_proj"), other = find(graph, "layers.1.mlp.down_proj");
  const layout::Box whole = layout::whole(graph.param(p).shape.size);
  const at::Tensor values = box_values(random_weights(graph, 5), p, whole);
  const double n = static_cast<double>(values.numel()), std = graph.param(p).init.std;
  EXPECT_NEAR(values.std().item<double>(), std, 4 * std / std::sqrt(2 * n));
  EXPECT_NEAR(values.mean().item<double>(), 0, 4 * std / std::sqrt(n));
  EXPECT_TRUE(values.equal(box_values(random_weights(graph, 5), p, whole)));
  EXPECT_FALSE(values.equal(box_values(random_weights(graph, 6), p, whole)));
  EXPECT_FALSE(values.equal(box_values(random_weights(graph, 5), other, whole)));
  EXPECT_TRUE(box_values(random_weights(graph, 5), p, whole, DType::f32).equal(values.to(at::kFloat)));
}

TEST(RandomWeights, NormsBeginAtTheirConstant) {
  const ir::Graph graph = graph_of("gpt2");
  const int weight = find(graph, "ln_1.weight"), bias = find(graph, "ln_1.bias");
  const auto initial = random_weights(graph, 5);
  EXPECT_EQ(
      box_values(initial, weight, layout::whole(graph.param(weight).shape.size)).sub(1).abs().max().item<double>(), 0);
  EXPECT_EQ(box_values(initial, bias, layout::whole(graph.param(bias).shape.size)).abs().max().item<double>(), 0);
}

TEST(FileWeights, Conv1DIsTransposedAndPackedPartsAreCutOut) {
  const ir::Graph graph = graph_of("gpt2");
  const auto folder = files::TensorFolder::open(kFolder + "gpt2");
  const std::string packed = "transformer.h.0.attn.c_attn.weight";
  const i64 H = folder.info(folder.contains(packed) ? packed : packed.substr(12)).shape[0];
  std::vector<at::Tensor> parts;
  for (size_t p = 0; p < graph.params().size(); ++p)
    if (const ir::Param& param = graph.param(static_cast<int>(p)); param.file.name == packed) {
      EXPECT_TRUE(param.file.transposed);
      parts.push_back(from_file_tensor(param, folder));
      EXPECT_EQ(parts.back().size(0), H);
      EXPECT_EQ(parts.back().size(1), H);
    }
  ASSERT_EQ(parts.size(), 3u);
  // The file holds (in, out): element (o, i) of part k is at row i, column k * H + o.
  const auto bytes = folder.data(folder.contains(packed) ? packed : packed.substr(12));
  const i64 item = static_cast<i64>(bytes.size()) / (3 * H * H);
  for (i64 k = 0; k < 3; ++k) {
    const auto* stored = bytes.data() + (2 * 3 * H + k * H + 7) * item;
    const double expected =
        item == 8 ? *reinterpret_cast<const double*>(stored) : *reinterpret_cast<const float*>(stored);
    EXPECT_EQ(parts[static_cast<size_t>(k)].select(0, 7).select(0, 2).item<double>(), expected);
  }
}

TEST(FileWeights, ABoxIsThatPartOfTheFilesTensor) {
  const ir::Graph graph = graph_of("llama-gqa");
  const auto initial = weights_from(graph, kFolder + "llama-gqa");
  const auto folder = files::TensorFolder::open(kFolder + "llama-gqa");
  const int p = find(graph, "layers.1.self_attn.k_proj");
  layout::Box part = layout::whole(graph.param(p).shape.size);
  part.lo[0] = 4;
  const at::Tensor expected = from_file_tensor(graph.param(p), folder).narrow(0, 4, part.size(0)).to(at::kDouble);
  EXPECT_TRUE(box_values(initial, p, part).equal(expected));
  EXPECT_GT(expected.abs().max().item<double>(), 0);
}

TEST(FileWeights, AnotherShapeThanTheConfigurationsIsRefusedBeforeAnythingIsLoaded) {
  config::ModelConfig model = files::read_hf_config(kFolder + "llama-gqa");
  model.ffn_size += 8;
  const ir::Graph graph = graph_of(model);
  const std::string text = message_of<UserError>([&] { weights_from(graph, kFolder + "llama-gqa"); });
  EXPECT_EQ(text.find(kFolder + "llama-gqa: tensor \"model.layers.0.mlp."), 0u) << text;
  EXPECT_NE(text.find(fmt::format("asks for [{}, {}] here. Use the config.json that belongs to these weights.",
                                  model.ffn_size, model.hidden_size)),
            std::string::npos)
      << text;
}

TEST(FileWeights, AMissingTensorIsNamed) {
  config::ModelConfig model = files::read_hf_config(kFolder + "llama-gqa");
  model.layers += 1;
  const ir::Graph graph = graph_of(model);
  const std::string text = message_of<UserError>([&] { weights_from(graph, kFolder + "llama-gqa"); });
  EXPECT_NE(text.find("model.layers.4."), std::string::npos) << text;
}

/// Tensors of a file, by their names.
using Tensors = std::map<std::string, at::Tensor>;

class OddFolder : public testing::Test {
 protected:
  // The weights of a fixture, in a folder of their own with these changes.
  std::string message(const std::string& fixture, const Tensors& changes,
                      const std::optional<config::ModelConfig>& model = std::nullopt) {
    const auto from = files::TensorFolder::open(kFolder + fixture);
    Tensors tensors = changes;
    for (const std::string& name : from.names())
      if (!tensors.contains(name)) tensors[name] = of_file(from, name);
    std::erase_if(tensors, [](const auto& tensor) { return !tensor.second.defined(); });
    std::vector<files::TensorEntry> entries;
    for (const auto& [name, tensor] : tensors) entries.push_back({name, DType::f64, tensor.sizes().vec()});
    const std::filesystem::path folder = scratch_ / std::to_string(++written_);
    files::TensorFolderWriter writer = files::TensorFolderWriter::create(folder, entries);
    for (const auto& [name, tensor] : tensors)
      writer.write(name, 0, {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()});
    writer.finish();
    const ir::Graph graph = model ? graph_of(*model) : graph_of(fixture);
    const std::string text = message_of<UserError>([&] { weights_from(graph, folder.string()); });
    return text.starts_with(folder.string()) ? text.substr(folder.string().size()) : text;
  }
  static at::Tensor of_file(const files::TensorFolder& from, const std::string& name) {
    const auto type = from.info(name).dtype == files::FileDType::f64 ? at::kDouble : at::kFloat;
    return at::from_blob(const_cast<std::byte*>(from.data(name).data()), from.info(name).shape, type).to(at::kDouble);
  }
  static constexpr const char* kFine = "no error";
  const Scratch scratch_;
  int written_ = 0;
};

TEST_F(OddFolder, ATensorWithoutAPlaceInTheModelIsRefused) {
  const at::Tensor bias = at::ones({64}, at::kDouble);
  EXPECT_EQ(
      message("llama-gqa", {{"model.layers.0.self_attn.q_proj.bias", bias}}),
      ": config.json describes a model without tensor \"model.layers.0.self_attn.q_proj.bias\". Use the config.json "
      "that belongs to these weights.");
  EXPECT_EQ(
      message("llama-gqa", {{"lm_head.bias", bias}, {"model.layers.4.input_layernorm.weight", bias}}),
      ": config.json describes a model without tensor \"lm_head.bias\" and 1 further ones that are there. Use the "
      "config.json that belongs to these weights.");
}

TEST_F(OddFolder, ConstantsOfOlderFilesAndWhatIsBesideTheTransformerArePassedOver) {
  const at::Tensor some = at::ones({4}, at::kDouble);
  EXPECT_EQ(
      message("llama-gqa", {{"model.layers.0.self_attn.rotary_emb.inv_freq", some}, {"v_head.summary.bias", some}}),
      kFine);
  EXPECT_EQ(message("gpt2", {{"transformer.h.0.attn.bias", some}, {"h.0.attn.masked_bias", some}}), kFine);
}

TEST_F(OddFolder, AHeadThatDiffersFromTheEmbeddingThatItIsTiedToIsRefused) {
  const auto from = files::TensorFolder::open(kFolder + "llama-tied");
  const at::Tensor table = of_file(from, "model.embed_tokens.weight");
  EXPECT_EQ(message("llama-tied", {{"lm_head.weight", table}}), kFine);
  at::Tensor other = table.clone();
  other.select(0, 7).select(0, 5).add_(1e-3);
  for (const at::Tensor& head : {other, table.narrow(0, 1, 64).contiguous()})
    EXPECT_EQ(message("llama-tied", {{"lm_head.weight", head}}),
              ": config.json ties the head to the embedding (tie_word_embeddings), but \"lm_head.weight\" differs from "
              "\"model.embed_tokens.weight\". Set it to false there to train both, or remove the tensor.");
  config::ModelConfig untied = files::read_hf_config(kFolder + "llama-tied");
  untied.tied_embeddings = false;
  EXPECT_EQ(message("llama-tied", {{"lm_head.weight", other}}, untied), kFine);
}

}  // namespace
}  // namespace switchyard::train
