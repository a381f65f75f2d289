// `switchyard verify`: a folder with a tiny model and exact expected results (logits, loss, gradients, five AdamW
// steps), run under any strategies and compared.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "comm/launch.hpp"

namespace switchyard::train {

/// strategies: "dp,tp,pp" each; with two or more, documents are divided among them by length, and every step switches.
/// ranks 0: as many as the largest strategy needs.
struct VerifySettings {
  std::string folder;
  std::vector<std::string> strategies;
  int ranks = 0;
  Precision precision{DType::f64, DType::f64};
};

/// logits: largest difference over the largest expected magnitude. loss: relative. gradient: largest 2-norm of a
/// parameter's difference over the global norm. adamw_loss: largest relative difference of the losses before each step
/// and after the last. adamw_parameter: of final sums (per element) and sums of squares (relative).
struct VerifyResult {
  bool ok = false;
  double logits_max_error = 0, loss_error = 0, gradient_max_error = 0, adamw_loss_max_error = 0,
         adamw_parameter_max_error = 0;
  int ranks = 0;
  bool first_rank = true;  // this process holds rank 0 and the figures
};

VerifyResult verify(const VerifySettings& settings, const comm::Launch& launch);

}  // namespace switchyard::train
