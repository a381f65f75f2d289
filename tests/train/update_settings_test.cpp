#include "train/update_settings.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace switchyard::train {
namespace {

TEST(UpdateSettings, has_the_jobs_settings_and_the_number_of_the_update) {
  const config::OptimizerSettings optimizer{.beta1 = 0.8, .beta2 = 0.7, .eps = 0.6, .weight_decay = 0.5};
  const kernels::AdamW adamw = update_settings(optimizer, 0.25, 7, 1).adamw;
  EXPECT_EQ(adamw.lr, 0.25);
  EXPECT_EQ(adamw.beta1, 0.8);
  EXPECT_EQ(adamw.beta2, 0.7);
  EXPECT_EQ(adamw.eps, 0.6);
  EXPECT_EQ(adamw.weight_decay, 0.5);
  EXPECT_EQ(adamw.step, 7);
}

TEST(UpdateSettings, scales_gradients_down_to_the_clipping_norm_and_never_up) {
  const auto clip = [](double limit, double norm) { return update_settings({.clip_norm = limit}, 1, 1, norm).clip; };
  EXPECT_EQ(clip(1, 0.5), 1);
  EXPECT_EQ(clip(1, 4), 1 / (4 + 1e-6));
  EXPECT_EQ(clip(3, 4), 3 / (4 + 1e-6));
  EXPECT_EQ(clip(1, 0), 1);
  EXPECT_EQ(clip(0, 1e9), 1) << "0: no clipping";
  EXPECT_EQ(clip(1, std::numeric_limits<double>::infinity()), 0);
}

}  // namespace
}  // namespace switchyard::train
