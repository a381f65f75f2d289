#include "comm/device_work.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/forwarding_fabric.hpp"

namespace switchyard::comm {
namespace {

constexpr i64 kSignsOfAMark = 16;  // a mark takes the host as long as a small operator
constexpr std::chrono::milliseconds kInterval{20};

class DeviceWork final : public ForwardingFabric {
 public:
  DeviceWork(Fabric& inner, const BlockDevice& device) : ForwardingFabric(inner), device_(device) {
    thread_ = std::thread([this] { watch(); });
  }
  ~DeviceWork() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void works() override {
    inner().works();
    if (signs_.fetch_add(1, std::memory_order_relaxed) % kSignsOfAMark != 0) return;
    BlockDevice::Mark mark = device_.mark();
    const std::lock_guard lock(mutex_);
    if (!lost_) marks_.push_back(std::move(mark));
  }

 private:
  void watch() {
    device_.adopt_thread();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kInterval, [this] { return closing_; })) {
      try {
        if (pass_reached()) inner().works();
      } catch (const std::exception&) {  // an error of the device: its own work, or its messages, will report it
        lost_ = true;
        marks_.clear();
        return;
      }
    }
  }

  // Whether the device has come further.
  bool pass_reached() {
    bool any = false;
    for (; !marks_.empty() && device_.reached(marks_.front()); any = true) marks_.pop_front();
    return any;
  }

  const BlockDevice& device_;
  std::atomic<i64> signs_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<BlockDevice::Mark> marks_;  // that the device has not reached
  bool closing_ = false, lost_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Fabric> with_device_work(Fabric& inner, const BlockDevice& device) {
  return std::make_unique<DeviceWork>(inner, device);
}

}  // namespace switchyard::comm
