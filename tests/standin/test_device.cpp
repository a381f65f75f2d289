#include "test_device.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "device.hpp"

namespace switchyard::standin {
namespace {

class FaultListener final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { start_over(); }
  void OnTestEnd(const ::testing::TestInfo&) override { EXPECT_EQ(take_fault(), ""); }
};

at::Device chosen() {
  const char* name = std::getenv("SWITCHYARD_TEST_DEVICE");
  if (!name || std::string(name) == "cpu") return at::kCPU;
  if (std::string(name) == "cuda") return at::Device(at::kCUDA, 0);
  return device();
}

// Before the first test.
const bool listens = [] {
  if (chosen().type() == c10::DeviceType::PrivateUse1)
    ::testing::UnitTest::GetInstance()->listeners().Append(new FaultListener);
  return true;
}();

}  // namespace

at::Device test_device() {
  static const at::Device device = chosen();
  static_cast<void>(listens);
  return device;
}

}  // namespace switchyard::standin
