#include "codecs/rule.hpp"

#include <gtest/gtest.h>

namespace switchyard::codecs {
namespace {

TEST(Rule, small_messages_travel_as_they_are) {
  const Rule rule{.codec = Codec::int8, .smallest = 4096};
  EXPECT_EQ(rule.codec_for(DType::f32, 1023, true), Codec::none);
  EXPECT_EQ(rule.codec_for(DType::f32, 1024, true), Codec::int8);
  EXPECT_EQ(rule.codec_for(DType::bf16, 1024, true), Codec::none);
  EXPECT_EQ(rule.codec_for(DType::bf16, 2048, true), Codec::int8);
}

TEST(Rule, messages_inside_a_host_may_be_left_out) {
  const Rule rule{.codec = Codec::int8, .between_hosts = true};
  EXPECT_EQ(rule.codec_for(DType::f32, 1000, false), Codec::none);
  EXPECT_EQ(rule.codec_for(DType::f32, 1000, true), Codec::int8);
  EXPECT_EQ(Rule{.codec = Codec::int8}.codec_for(DType::f32, 1000, false), Codec::int8);
}

TEST(Rule, what_would_not_become_shorter_is_not_encoded) {
  const Rule bf16{.codec = Codec::bf16}, zfp16{.codec = Codec::zfp16}, lossless{.codec = Codec::lossless};
  EXPECT_EQ(bf16.codec_for(DType::bf16, 1000, true), Codec::none);
  EXPECT_EQ(bf16.codec_for(DType::f32, 1000, true), Codec::bf16);
  EXPECT_EQ(zfp16.codec_for(DType::bf16, 1000, true), Codec::none);
  EXPECT_EQ(Rule{.codec = Codec::zfp8}.codec_for(DType::f32, 1, true), Codec::none);
  EXPECT_EQ(lossless.codec_for(DType::bf16, 1000, true), Codec::lossless);
  EXPECT_EQ(lossless.codec_for(DType::f32, 0, true), Codec::none);
}

}  // namespace
}  // namespace switchyard::codecs
