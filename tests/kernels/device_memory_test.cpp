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
