#include "config/rope_scaling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "../message_of.hpp"
#include "base/errors.hpp"

namespace switchyard::config {
namespace {

using testing::HasSubstr;

std::string error_after(const RopeScaling& scaling) {
  return message_of([&] { validate(scaling); });
}

TEST(Rotation, frequencies_fall_geometrically) {
  const Rotation plain = rotation(8, 10000, {});
  EXPECT_EQ(plain.scale, 1);
  ASSERT_EQ(plain.frequencies.size(), 4u);
  const double expected[] = {1, 0.1, 0.01, 0.001};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(plain.frequencies[i], expected[i], 1e-15);
}

TEST(Rotation, linear_scaling_divides_all_frequencies) {
  const Rotation plain = rotation(12, 500, {});
  const Rotation scaled = rotation(12, 500, {.factor = 4, .type = RopeScalingType::linear});
  EXPECT_EQ(scaled.scale, 1);
  for (size_t i = 0; i < 6; ++i) EXPECT_DOUBLE_EQ(scaled.frequencies[i], plain.frequencies[i] / 4);
}

// Wavelengths below 8192/4 tokens are kept, those above 8192/1 are multiplied by 8, those between are interpolated.
TEST(Rotation, llama3_keeps_high_frequencies_divides_low_ones_and_interpolates_between) {
  const Rotation plain = rotation(128, 500000, {}), scaled = rotation(128, 500000, {8, 1, 4, 8192});
  EXPECT_EQ(scaled.scale, 1);
  int kept = 0, stretched = 0, blended = 0;
  for (size_t i = 0; i < plain.frequencies.size(); ++i) {
    const double wavelength = 2 * M_PI / plain.frequencies[i];
    if (wavelength < 2048) {
      ++kept;
      EXPECT_DOUBLE_EQ(scaled.frequencies[i], plain.frequencies[i]);
    } else if (wavelength > 8192) {
      ++stretched;
      EXPECT_DOUBLE_EQ(scaled.frequencies[i], plain.frequencies[i] / 8);
    } else {
      ++blended;
      const double smooth = (8192 / wavelength - 1) / (4 - 1);
      EXPECT_NEAR(scaled.frequencies[i], (1 - smooth) * plain.frequencies[i] / 8 + smooth * plain.frequencies[i],
                  1e-15);
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(stretched, 0);
  EXPECT_GT(blended, 0);
}

// Pairs 20 (32.4 turns within 4096 tokens) and 46 (0.97 turns) bound the ramp; arXiv 2309.00071 §3.2 to 3.4.
TEST(Rotation, yarn_interpolates_by_the_number_of_the_pair_and_scales_all_features) {
  const RopeScaling yarn{.factor = 16, .original_context = 4096, .type = RopeScalingType::yarn};
  const Rotation plain = rotation(128, 10000, {}), scaled = rotation(128, 10000, yarn);
  EXPECT_DOUBLE_EQ(scaled.scale, 0.1 * std::log(16) + 1);
  const auto ratio = [&](size_t pair) { return scaled.frequencies[pair] / plain.frequencies[pair]; };
  EXPECT_DOUBLE_EQ(ratio(0), 1);
  EXPECT_DOUBLE_EQ(ratio(20), 1);
  EXPECT_NEAR(ratio(33), 0.5 + 0.5 / 16, 1e-12);
  EXPECT_DOUBLE_EQ(ratio(46), 1. / 16);
  EXPECT_DOUBLE_EQ(ratio(63), 1. / 16);
  RopeScaling given = yarn;
  given.attention_factor = 1.125;
  EXPECT_EQ(rotation(128, 10000, given).scale, 1.125);
}

// theta' = theta * (factor * L / original - (factor - 1))^(D / (D - 2)), and frequencies theta'^(-2i / D).
TEST(Rotation, dynamic_raises_theta_for_documents_above_the_original_context_only) {
  const RopeScaling dynamic{.factor = 3, .original_context = 100, .type = RopeScalingType::dynamic};
  const std::vector<double> plain = rotation(8, 10000, {}).frequencies;
  for (const i64 document : {0, 1, 99, 100}) EXPECT_EQ(rotation(8, 10000, dynamic, document).frequencies, plain);
  const Rotation longer = rotation(8, 10000, dynamic, 150);
  EXPECT_EQ(longer.scale, 1);
  for (size_t i = 0; i < 4; ++i)  // 3 * 1.5 - 2 = 2.5
    EXPECT_NEAR(longer.frequencies[i], plain[i] * std::pow(2.5, -static_cast<double>(i) / 3), 1e-15);
  EXPECT_LT(rotation(8, 10000, dynamic, 101).frequencies[3], plain[3]);
  EXPECT_EQ(rotation(8, 10000, {.factor = 3, .type = RopeScalingType::linear}, 150).frequencies[0], plain[0] / 3);
}

TEST(RopeScaling, of_type_dynamic_depends_on_documents_unless_it_is_off) {
  EXPECT_TRUE(by_document({.factor = 1, .type = RopeScalingType::dynamic}));
  EXPECT_FALSE(by_document({.factor = 0, .type = RopeScalingType::dynamic}));
  EXPECT_FALSE(by_document({.factor = 2, .type = RopeScalingType::yarn}));
}

TEST(RopeScaling, a_type_does_not_read_the_fields_of_others) {
  const RopeScaling all{3, 2, 5, 77, RopeScalingType::linear, 9, 4, 1.5};
  EXPECT_EQ(relevant(all), (RopeScaling{.factor = 3, .type = RopeScalingType::linear}));
  for (const auto type :
       {RopeScalingType::llama3, RopeScalingType::linear, RopeScalingType::yarn, RopeScalingType::dynamic}) {
    RopeScaling scaling = all;
    scaling.type = type;
    EXPECT_EQ(rotation(16, 100, relevant(scaling), 99).frequencies, rotation(16, 100, scaling, 99).frequencies);
    EXPECT_EQ(rotation(16, 100, relevant(scaling)).scale, rotation(16, 100, scaling).scale);
    scaling.factor = 0;
    EXPECT_EQ(relevant(scaling), RopeScaling{});
  }
}

TEST(RopeScaling, its_fields_are_checked_when_its_type_reads_them) {
  EXPECT_EQ(error_after({8, 1, 4, 64}), "no error");
  EXPECT_EQ(error_after({0, 4, 1, -1}), "no error");
  EXPECT_EQ(error_after({0.5, 1, 4, 64}), "model.rope_scaling.factor = 0.5 must be at least 1, or 0 for no scaling.");
  EXPECT_EQ(error_after({8, 4, 4, 64}),
            "model.rope_scaling: low_freq_factor = 4 must be above 0 and below high_freq_factor = 4.");
  EXPECT_THAT(error_after({8, 1, 4, 0}), HasSubstr("original_context = 0 must be above 0."));
  RopeScaling yarn{8, 4, 4, 64, RopeScalingType::yarn};
  EXPECT_EQ(error_after(yarn), "no error");
  EXPECT_EQ(error_after({.factor = 2, .low_freq_factor = 9, .type = RopeScalingType::dynamic, .beta_slow = 40}),
            "no error");
  EXPECT_EQ(error_after({.factor = 0.5, .type = RopeScalingType::dynamic}),
            "model.rope_scaling.factor = 0.5 must be at least 1, or 0 for no scaling.");
  EXPECT_THAT(error_after({.factor = 2, .original_context = -1, .type = RopeScalingType::dynamic}),
              HasSubstr("original_context = -1 must be above 0."));
  yarn.beta_slow = 40;
  EXPECT_EQ(error_after(yarn), "model.rope_scaling: beta_slow = 40 must be above 0 and below beta_fast = 32.");
  EXPECT_EQ(error_after({.factor = 2, .type = RopeScalingType::yarn, .attention_factor = -1}),
            "model.rope_scaling.attention_factor = -1 must be above 0, or 0 for 0.1 ln(factor) + 1.");
}

TEST(RopeScaling, a_key_that_nothing_reads_is_found) {
  const std::string section = "model.rope_scaling.";
  const std::vector<std::string> own[] = {{"low_freq_factor", "high_freq_factor", "original_context"},
                                          {},
                                          {"beta_fast", "beta_slow", "attention_factor", "original_context"},
                                          {"original_context"}};
  for (const auto type :
       {RopeScalingType::llama3, RopeScalingType::linear, RopeScalingType::yarn, RopeScalingType::dynamic}) {
    const RopeScaling all{3, 2, 5, 77, type, 9, 4, 1.5}, defaults{.factor = 3, .type = type};
    for (const std::string key : {"factor", "type", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow",
                                  "attention_factor", "original_context"}) {
      const std::vector<std::string> given = {"model.heads", section + key};
      const auto& reads = own[static_cast<size_t>(type)];
      const bool read = key == "factor" || key == "type" || std::ranges::count(reads, key) > 0;
      const auto unread = unread_key(all, given);
      EXPECT_EQ(unread ? unread->key : "", read ? "" : section + key);
      EXPECT_FALSE(unread_key(defaults, given)) << "jobs that runs write down have all keys";
      EXPECT_EQ(unread_key(RopeScaling{.type = type}, given).has_value(), key != "factor");
    }
  }
  EXPECT_EQ(unread_key({.factor = 2, .beta_fast = 8}, std::vector{section + "beta_fast"})->fault,
            "model.rope_scaling.beta_fast has no effect with model.rope_scaling.type = \"llama3\", but with \"yarn\". "
            "Change the type, or remove the key.");
}

}  // namespace
}  // namespace switchyard::config
