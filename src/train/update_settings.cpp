#include "train/update_settings.hpp"

#include <algorithm>

namespace switchyard::train {

runtime::UpdateSettings update_settings(const config::OptimizerSettings& optimizer, double lr, i64 update,
                                        double norm) {
  constexpr double kEpsilon = 1e-6;
  return {.adamw = {.lr = lr,
                    .beta1 = optimizer.beta1,
                    .beta2 = optimizer.beta2,
                    .eps = optimizer.eps,
                    .weight_decay = optimizer.weight_decay,
                    .step = update},
          .clip = optimizer.clip_norm > 0 ? std::min(1.0, optimizer.clip_norm / (norm + kEpsilon)) : 1};
}

}  // namespace switchyard::train
