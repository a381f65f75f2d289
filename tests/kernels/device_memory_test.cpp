#include "kernels/device_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../standin/device.hpp"
#include "base/errors.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

TEST(DeviceMemory, ThePeakIsTheMostSinceItWasReset) {
  const at::Device device = standin::device();
  const auto made = [&] { return at::empty({64}, at::TensorOptions().dtype(at::kDouble).device(device)); };
  reset_device_peak(device);
  const i64 before = device_peak(device);
  { const at::Tensor a = made(), b = made(); }
  EXPECT_EQ(device_peak(device), before + 1024);
  reset_device_peak(device);
  const at::Tensor c = made();
  EXPECT_EQ(device_peak(device), before + 512);
}

TEST(DeviceMemory, IsTheDevicesAndFreeIsWhatNobodyHas) {
  const at::Device device = standin::device();
  const DeviceMemory before = device_memory(device);
  const at::Tensor taken = at::empty({1 << 20}, at::TensorOptions().dtype(at::kByte).device(device));
  const DeviceMemory after = device_memory(device);
  EXPECT_EQ(after.all, before.all);
  EXPECT_EQ(after.free, before.free - (1 << 20));
  EXPECT_EQ(after.tensors, before.tensors + (1 << 20));
  EXPECT_LE(before.free, before.all);
  EXPECT_EQ(device_name(device), "standin") << "its type, as no driver knows it";
  EXPECT_EQ(device_identity(device), "");
}

TEST(DeviceMemory, BudgetsOfRanksThatShareADeviceAddUp) {
  const at::Device device = standin::device();
  const auto made = [&](i64 bytes) { return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device)); };
  const auto fits = [&](i64 bytes) {
    try {
      made(bytes);
      return true;
    } catch (const c10::OutOfMemoryError&) {
      return false;
    }
  };
  reset_device_peak(device);
  const i64 live = device_peak(device), budget = live + (1 << 20);
  EXPECT_TRUE(fits(1 << 24)) << "without a budget";
  {
    const DeviceBudget one(device, budget);
    EXPECT_TRUE(fits(1 << 20));
    EXPECT_FALSE(fits(with_fragments(budget) - live + 4096));
    {
      const DeviceBudget two(device, 1 << 20);
      EXPECT_TRUE(fits(1 << 21));
      EXPECT_FALSE(fits(with_fragments(budget + (1 << 20)) - live + 4096));
      const DeviceBudget unlimited(device, 0);
      EXPECT_TRUE(fits(1 << 24));
    }
    EXPECT_TRUE(fits(1 << 20));
    EXPECT_FALSE(fits(1 << 21));
    const DeviceBudget elsewhere(at::kCPU, 1);
    EXPECT_TRUE(fits(1 << 20));
  }
  EXPECT_TRUE(fits(1 << 24));
}

TEST(DeviceMemory, ADeviceWithoutStatisticsIsNamed) {
  try {
    device_peak(at::Device(at::kCPU));
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("devices of type CPU keep no statistics of memory"));
  }
}

}  // namespace
}  // namespace switchyard::kernels
