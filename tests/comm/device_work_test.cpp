#include "comm/device_work.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "fake_device.hpp"
#include "rank_threads.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;

// Until it is true; a test that hangs is ended.
template <class Condition>
void wait_until(const Condition& condition) {
  while (!condition()) std::this_thread::sleep_for(1ms);
}

TEST(DeviceWork, TheDeviceGivesASignWhenItGetsToWorkThatTheHostGaveLongBefore) {
  const auto fabrics = thread_fabrics(2, two_hosts(2), {});
  Fabric& other = *fabrics[1];
  FakeDevice device;
  device.set_reached(false);
  const auto fabric = with_device_work(*fabrics[0], device);
  for (int sign = 0; sign < 40; ++sign) fabric->works();
  EXPECT_EQ(other.work_heard(), 40);
  EXPECT_EQ(fabric->work_heard(), 40);
  for (int reached = 1; reached <= 3; ++reached) {
    ASSERT_GE(device.made_marks().size(), 3u) << "for 40 signs";
    device.reach(device.made_marks()[static_cast<size_t>(reached - 1)]);
    wait_until([&] { return other.work_heard() == 40 + reached; });
  }
  EXPECT_TRUE(device.only_adopted_asked());
}

TEST(DeviceWork, ADeviceThatDoesNotComeFurtherGivesNone) {
  const auto fabrics = thread_fabrics(1, two_hosts(1), {});
  FakeDevice device;
  device.set_reached(false);
  const auto fabric = with_device_work(*fabrics[0], device);
  fabric->works();
  wait_until([&] { return device.questions() >= 5; });
  EXPECT_EQ(fabric->work_heard(), 1);
}

TEST(DeviceWork, ADeviceThatFailsIsAskedNoMore) {
  const auto fabrics = thread_fabrics(1, two_hosts(1), {});
  FakeDevice device;
  device.set_reached(false);
  const auto fabric = with_device_work(*fabrics[0], device);
  device.break_down();
  for (int sign = 0; sign < 40; ++sign) fabric->works();
  wait_until([&] { return device.questions() >= 1; });
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(device.questions(), 1);
  EXPECT_EQ(fabric->failure(), std::nullopt);
}

}  // namespace
}  // namespace switchyard::comm
