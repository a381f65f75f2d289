// Settings of the optimizer for one step.
#pragma once

#include "config/job.hpp"
#include "runtime/home.hpp"

namespace switchyard::train {

/// AdamW's settings for update number `update`, the first is 1, with learning rate `lr`. norm: of all gradients. They
/// are scaled by min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does; clip_norm 0: not at all.
runtime::UpdateSettings update_settings(const config::OptimizerSettings& optimizer, double lr, i64 update, double norm);

}  // namespace switchyard::train
