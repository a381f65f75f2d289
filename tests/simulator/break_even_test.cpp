#include "simulator/break_even.hpp"

#include <gtest/gtest.h>

namespace switchyard::simulator {
namespace {

using cluster::Link;
using codecs::Codec;

// A link of 1 GB/s between hosts, and one that takes no time worth mentioning inside.
cluster::Hardware hardware(cluster::CodecRates rates) {
  cluster::Hardware h;
  h.hosts = 2;
  h.device.codecs["bf16"] = rates;
  h.intra_host.bandwidth = {1e15};
  h.inter_host.emplace().bandwidth = {1e9};
  return h;
}

// Half of n bytes take 0.5 n ns; encoding and decoding take 0.2 n ns, and 2 m for each message: from n = 2 m / 0.3 ns
// on.
TEST(BreakEven, is_where_the_saved_bytes_take_the_link_longer_than_the_codec) {
  const cluster::CodecRates rates{{1e10}, {1e10}, {1e-6}};
  const i64 exact = 6667;  // bytes
  const std::optional<i64> found = break_even(Codec::bf16, DType::f32, hardware(rates), Link::inter_host);
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, 8192);
  EXPECT_GE(*found, exact);
  EXPECT_LT(*found / 2, exact);
}

TEST(BreakEven, without_a_time_of_each_message_all_gain_or_none) {
  EXPECT_EQ(break_even(Codec::bf16, DType::f32, hardware({{1e10}, {1e10}}), Link::inter_host), 256);
  EXPECT_EQ(break_even(Codec::bf16, DType::f32, hardware({{1e9}, {1e9}}), Link::inter_host), std::nullopt);
  EXPECT_EQ(break_even(Codec::bf16, DType::f32, hardware({{1e10}, {1e10}}), Link::intra_host), std::nullopt);
}

TEST(BreakEven, what_is_not_made_shorter_never_gains) {
  EXPECT_EQ(break_even(Codec::bf16, DType::bf16, hardware({{1e12}, {1e12}}), Link::inter_host), std::nullopt);
  EXPECT_EQ(break_even(Codec::none, DType::f32, hardware({{1e12}, {1e12}}), Link::inter_host), std::nullopt);
  EXPECT_EQ(break_even(Codec::lossless, DType::f32, hardware({{1e12}, {1e12}}), Link::inter_host), std::nullopt);
}

}  // namespace
}  // namespace switchyard::simulator
