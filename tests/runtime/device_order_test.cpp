#include "runtime/device_order.hpp"

#include <ATen/ops/add.h>
#include <gmock/gmock.h>

#include "../standin/device.hpp"
#include "comm/forwarding_fabric.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

// Runs work on a thread with a stream of its own.
void on_own_stream(const std::function<void()>& work) {
  std::thread([&] {
    use_own_stream(standin::device());
    work();
  }).join();
}

TEST(DeviceOrder, AStreamThatWaitsForAMarkSeesWhatCameBefore) {
  const at::Device device = standin::device();
  const at::Tensor x = zeros({8}, DType::f64, device);
  const Mark mark = Mark::here(device);
  on_own_stream([&] {
    EXPECT_THROW(x.add(1), std::logic_error);
    mark.wait();
    EXPECT_EQ(x.add(1).sum().item<double>(), 8);
  });
  wait_for_device(device);
}

TEST(DeviceOrder, AFlagStandsForTheWorkOfWhoSetsIt) {
  const at::Device device = standin::device();
  Signals signals(2, device);
  at::Tensor x;
  on_own_stream([&] {
    x = zeros({8}, DType::f64, device);
    signals.set(1);
  });
  on_own_stream([&] {
    signals.wait(1);
    record_use(x);
    x.add_(1);
    x = at::Tensor();
  });
  wait_for_device(device);
  EXPECT_EQ(standin::take_fault(), "");
}

TEST(DeviceOrder, MarksOfACpuAreReached) {
  EXPECT_TRUE(Mark::here(at::kCPU).reached());
  EXPECT_TRUE(Mark().reached());
}

std::vector<Documents> three_batches() { return {tiny_documents(9, 1), tiny_documents(9, 2), tiny_documents(9, 3)}; }

// How often the host waits for the device in two steps of all ranks, and that these give what a CPU gives.
i64 waits(const std::vector<std::string>& specs, int ranks, const std::vector<i64>& bounds,
          const TinyOptions& given = {}) {
  const compiler::Plans plans = tiny_plans(specs, ranks);
  const std::vector<Documents> batches = three_batches();
  std::vector<i64> found;
  TinyRun last;
  for (const size_t steps : {1, 3}) {
    TinyOptions options = given;
    options.bounds = bounds;
    options.device = standin::device();
    const i64 before = standin::host_synchronizations();
    last = run_tiny(plans, {batches.begin(), batches.begin() + static_cast<i64>(steps)}, options);
    EXPECT_THAT(last.ends, Each(IsEmpty()));
    found.push_back(standin::host_synchronizations() - before);
  }
  TinyOptions options = given;
  options.bounds = bounds;
  options.device = at::kCPU;
  const TinyRun on_cpu = run_tiny(plans, batches, options);
  for (size_t p = 0; p < last.master.size(); ++p) EXPECT_LT(gap(last.master[p], on_cpu.master[p]), 1e-11);
  EXPECT_EQ(standin::take_fault(), "");
  return found[1] - found[0];
}

TEST(DeviceOrder, AStepWaitsForTheDeviceOnceARank) {
  if (standin::test_device().is_cuda()) GTEST_SKIP() << "pinned memory is CUDA's, which the stand-in device waits for";
  EXPECT_EQ(waits({"1,1,1"}, 1, {kLongest}), 2);
  EXPECT_EQ(waits({"1,2,2", "4,1,1"}, 4, {kLongest, 10}), 2 * 4);
  EXPECT_EQ(waits({"dp=2,tp=2,zero=3", "ring=2,ulysses=2"}, 4, {kLongest, 10}), 2 * 4);
}

// Stands for MPI and TCP.
class HostFabric final : public comm::ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;
  bool moves_device_memory() const override { return false; }
  void run(const comm::Channel& channel, const comm::Transaction& transaction) override {
    for (const comm::Op& op : transaction.ops) EXPECT_EQ(op.block.device, nullptr) << transaction.name;
    inner().run(channel, transaction);
  }
};

TEST(DeviceOrder, FabricsOfHostMemoryGetItFromTheDevice) {
  TinyOptions options;
  options.wrap = [](std::unique_ptr<comm::Fabric> inner) { return std::make_unique<HostFabric>(std::move(inner)); };
  EXPECT_GT(waits({"1,2,2", "4,1,1"}, 4, {kLongest, 10}, options), 2 * 4);
  EXPECT_GT(waits({"dp=2,tp=2,inner=2,zero=3"}, 4, {kLongest}, options), 2 * 4);
}

}  // namespace
}  // namespace switchyard::runtime
