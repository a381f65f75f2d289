#include "runtime/tensor_device.hpp"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "../standin/device.hpp"
#include "base/errors.hpp"
#include "runtime/device_order.hpp"
#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

const comm::BlockDevice& device() { return *block_device(standin::device()); }
at::Tensor there(const at::Tensor& values) { return values.to(standin::device()); }

TEST(TensorDevice, CpusHaveNoneAndADeviceAlwaysTheSame) {
  EXPECT_EQ(block_device(at::kCPU), nullptr);
  EXPECT_EQ(block_device(standin::device()), &device());
  EXPECT_EQ(block_of(there(wave({3}))).device, &device());
  EXPECT_EQ(block_of(wave({3})).device, nullptr);
}

TEST(TensorDevice, CopiesBetweenRowsOfDifferentLengths) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kByte}) {
    const at::Tensor from = wave({4, 6}).mul(100).to(type), to = at::zeros({9, 3}, type);
    const at::Tensor source = there(from), target = there(to);
    device().copy(block_of(target.narrow(0, 1, 6).narrow(1, 0, 2)), block_of(source.narrow(1, 2, 3)));
    to.narrow(0, 1, 6).narrow(1, 0, 2).copy_(from.narrow(1, 2, 3).reshape({6, 2}));
    EXPECT_TRUE(target.cpu().equal(to)) << toString(type);
  }
}

TEST(TensorDevice, AddsElementsAndFillsBytes) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor a = wave({4, 6}).to(type), b = wave({3, 8}, 1).to(type), sum = there(a);
    device().add(block_of(sum), block_of(there(b)), dtype_of(a));
    EXPECT_TRUE(sum.cpu().equal(a.add(b.view({4, 6})))) << toString(type);
    device().fill(block_of(sum.narrow(1, 0, 2)), 0);
    EXPECT_EQ(sum.narrow(1, 0, 2).abs().max().item<double>(), 0);
    EXPECT_TRUE(sum.narrow(1, 2, 4).cpu().equal(a.add(b.view({4, 6})).narrow(1, 2, 4)));
  }
}

TEST(TensorDevice, BlocksOfOtherSizesAreRefused) {
  const at::Tensor a = there(wave({4})), b = there(wave({5}));
  EXPECT_THROW(device().copy(block_of(a), block_of(b)), InternalError);
  EXPECT_THROW(device().add(block_of(a), block_of(b), DType::f64), InternalError);
}

TEST(TensorDevice, AMarkOrdersStreamsAndIsReachedOnceTheHostHasWaited) {
  const at::Tensor x = there(wave({8}));
  const at::Tensor y = x.add(1);
  const auto mark = device().mark();
  EXPECT_FALSE(device().reached(mark));
  std::thread([&] {
    use_own_stream(standin::device());
    device().wait_for(mark);
    const auto memory = device().allocate(64);
    comm::Block block = comm::contiguous(memory.get(), 64);
    block.device = &device();
    device().copy(block, block_of(y));
    EXPECT_NE(device().native_stream(), nullptr);
    wait_for_stream(standin::device());
  }).join();
  EXPECT_TRUE(device().reached(mark));
}

// Ranks that are threads may have a device each: the sender's own stream waits until its block was read.
TEST(TensorDevice, AStreamOfADeviceWaitsForTheMarkOfAnotherDevice) {
  const at::Device device = standin::device();
  const comm::BlockDevice& first = *block_device(device);
  const comm::BlockDevice& second = *block_device(at::Device(device.type(), 1));
  const comm::BlockDevice::Mark mark = first.mark();
  second.wait_for(mark);
  EXPECT_EQ(standin::waiting_device(), 1);
  first.wait_for(mark);
  EXPECT_EQ(standin::waiting_device(), 0);
}

}  // namespace
}  // namespace switchyard::runtime
