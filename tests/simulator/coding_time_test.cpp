#include "simulator/coding_time.hpp"

#include <gtest/gtest.h>

namespace switchyard::simulator {
namespace {

using codecs::Codec;

TEST(CodingTime, is_that_of_the_rank_that_has_most_to_do) {
  cluster::Device device;
  device.codecs["int8"] = {{1e6}, {2e6}};
  CodingTime time(device);
  EXPECT_EQ(time.seconds(), 0);
  time.add(Codec::int8, DType::f32, 1000, 0, 1);
  EXPECT_DOUBLE_EQ(time.seconds(), 4e-3);
  time.add(Codec::int8, DType::f32, 1000, 2, 1);
  time.add(Codec::int8, DType::f32, 1000, 3, 1);
  EXPECT_DOUBLE_EQ(time.seconds(), 6e-3);
  time.add(Codec::none, DType::f32, 1 << 20, 0, 1);
  EXPECT_DOUBLE_EQ(time.seconds(), 6e-3);
}

TEST(CodingTime, a_message_takes_time_however_short_it_is) {
  cluster::Device device;
  device.codecs["int8"] = {{1e6}, {2e6}, {1e-3}};
  CodingTime time(device);
  time.add(Codec::int8, DType::f32, 1000, 0, 1);
  EXPECT_DOUBLE_EQ(time.seconds(), 5e-3);
  EXPECT_DOUBLE_EQ(time.in_turn(), 5e-3 + 3e-3);
}

TEST(CodingTime, who_keeps_what_was_lost_decodes_too) {
  cluster::Device device;
  device.codecs["top-1-of-32"] = {{1e6}, {2e6}};
  CodingTime time(device);
  time.add(Codec::top_32, DType::f32, 1000, 0, 1, true);
  EXPECT_DOUBLE_EQ(time.seconds(), 4e-3 + 2e-3);
  EXPECT_DOUBLE_EQ(time.in_turn(), 6e-3 + 2e-3);
  device.codecs.clear();
  device.rates[DType::f32].memory = {1e6};
  CodingTime by_memory(device);
  by_memory.add(Codec::bf16, DType::f32, 1000, 0, 1, true);
  EXPECT_DOUBLE_EQ(by_memory.seconds(), 12e-3);
}

TEST(CodingTime, without_rates_is_that_of_memory) {
  cluster::Device device;
  device.rates[DType::f32].memory = {1e6};
  CodingTime time(device);
  time.add(Codec::bf16, DType::f32, 1000, 0, 1);
  EXPECT_DOUBLE_EQ(time.seconds(), 6e-3);
}

}  // namespace
}  // namespace switchyard::simulator
