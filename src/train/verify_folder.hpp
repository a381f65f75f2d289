// The folder of `switchyard verify`: a batch and the results that another implementation computed for it.
// tests/fixtures/README.md has the format.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "files/safetensors.hpp"
#include "ir/graph.hpp"
#include "runtime/feeds.hpp"

namespace switchyard::train {

/// Number of AdamW steps in the expected results.
inline constexpr int kVerifiedSteps = 5;

class VerifyFolder {
 public:
  /// Reads the batch, and checks every tensor of input.safetensors and expected.safetensors: its name, type, shape and
  /// values. graph: of the folder's model.
  /// errors  UserError with file and tensor, what was found and what is needed
  VerifyFolder(const std::string& folder, const config::ModelConfig& model, const ir::Graph& graph);

  /// Values of a tensor of expected.safetensors.
  std::vector<double> expected(const std::string& name) const;
  bool has(const std::string& name) const { return expected_.contains(name); }
  const std::vector<i64>& shape(const std::string& name) const { return expected_.info(name).shape; }

  runtime::Documents documents;
  std::vector<i64> lengths, starts;  // lengths and starts of documents, in tokens

 private:
  void read_documents(const config::ModelConfig& model);
  void check_labels() const;
  void check_expected(const config::ModelConfig& model, const ir::Graph& graph) const;

  files::TensorFile input_, expected_;
  i64 labels_ = 0;
};

}  // namespace switchyard::train
