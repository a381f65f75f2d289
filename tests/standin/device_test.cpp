#include "device.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <thread>

#include "comm/standin_nccl/stream.hpp"

namespace switchyard::standin {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::TensorOptions here() { return at::TensorOptions().device(device()).dtype(at::kFloat); }
at::TensorOptions pinned() { return at::TensorOptions().dtype(at::kFloat).pinned_memory(true); }

c10::Stream new_stream() { return c10::impl::VirtualGuardImpl(device().type()).getNewStream(device()); }
c10::Stream current() { return c10::impl::VirtualGuardImpl(device().type()).getStream(device()); }

class StandIn : public ::testing::Test {
 protected:
  void SetUp() override { start_over(); }
  void TearDown() override { EXPECT_EQ(take_fault(), ""); }
};

TEST_F(StandIn, OperatorsGiveWhatTheCpuGives) {
  const at::Tensor a = at::arange(12, at::kFloat).view({3, 4}), b = at::arange(8, at::kFloat).view({4, 2});
  const at::Tensor x = a.to(device()), y = b.to(device());
  EXPECT_TRUE(at::mm(x, y).cpu().equal(at::mm(a, b)));
  EXPECT_TRUE(at::cat({x, x.add(1)}, 1).cpu().equal(at::cat({a, a.add(1)}, 1)));
  EXPECT_TRUE(x.narrow(1, 1, 2).t().softmax(0).cpu().equal(a.narrow(1, 1, 2).t().softmax(0)));
  EXPECT_EQ(x.sum().item<float>(), 66);
  EXPECT_TRUE(x.to(at::kBFloat16).mul_(2).cpu().equal(a.to(at::kBFloat16).mul_(2)));
  EXPECT_TRUE(x.masked_fill(x.gt(5), 0).cpu().equal(a.masked_fill(a.gt(5), 0)));
}

TEST_F(StandIn, TheHostMayNotTouchItsMemory) {
  const at::Tensor x = at::ones({4}, here());
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile const float*>(x.const_data_ptr())), "");
}

TEST_F(StandIn, ReadingAndWaitingAreCounted) {
  const at::Tensor x = at::ones({4}, here());
  const auto before = host_synchronizations();
  const at::Tensor y = x.add(x).mul_(3);
  EXPECT_EQ(host_synchronizations(), before);
  EXPECT_EQ(y.sum().item<float>(), 24);
  EXPECT_EQ(host_synchronizations(), before + 1);
  EXPECT_EQ(y.cpu().size(0), 4);
  EXPECT_EQ(host_synchronizations(), before + 2);
}

TEST_F(StandIn, OperatorsAndCopiesAreCounted) {
  const at::Tensor x = at::ones({4}, here());
  const auto before = operators();
  x.narrow(0, 1, 2).add_(1).view({2, 1}).copy_(x.narrow(0, 0, 2).view({2, 1}));
  EXPECT_EQ(operators(), before + 2) << "views are none";
}

TEST_F(StandIn, AMissingWaitBetweenStreamsIsRefused) {
  const at::Tensor x = at::ones({8}, here());
  at::Tensor y = at::zeros({4}, here());
  const c10::StreamGuard other(new_stream());
  EXPECT_THAT(
      [&] { y.add_(x.narrow(0, 0, 4)); },
      ThrowsMessage<std::logic_error>(HasSubstr("reads what aten::zero_ on stream 0 may not have written yet")));
  c10::impl::VirtualGuardImpl(device().type()).synchronizeDevice(0);
}

TEST_F(StandIn, AnEventOrdersWhatWasIssuedBeforeItWasRecordedAndNothingElse) {
  at::Tensor x = at::ones({8}, here());
  c10::Event event(device().type());
  event.record(current());
  const c10::Stream other = new_stream();
  {
    const c10::StreamGuard guard(other);
    event.block(other);
    x.narrow(0, 0, 4).add_(1);
  }
  x.narrow(0, 4, 4).add_(1);  // other bytes
  EXPECT_THAT([&] { x.add_(1); }, ThrowsMessage<std::logic_error>(HasSubstr("aten::add on stream 0 reads")));
  c10::Event done(device().type());
  done.record(other);
  done.block(current());
  EXPECT_EQ(x.add_(1).sum().item<float>(), 24);
}

TEST_F(StandIn, OverwritingWhatAnotherStreamReadsIsRefused) {
  at::Tensor x = at::ones({8}, here());
  c10::Event event(device().type());
  event.record(current());
  const c10::Stream other = new_stream();
  std::optional<at::Tensor> sum;
  {
    const c10::StreamGuard guard(other);
    event.block(other);
    sum = x.sum();
  }
  EXPECT_THAT([&] { x.zero_(); },
              ThrowsMessage<std::logic_error>(HasSubstr("aten::zero_ on stream 0 writes what aten::sum")));
  c10::impl::VirtualGuardImpl(device().type()).synchronizeStream(other);
  x.zero_();
}

TEST_F(StandIn, MemoryThatAnotherStreamStillUsesIsNotFreedUnlessThatIsRecorded) {
  const c10::impl::VirtualGuardImpl guard(device().type());
  for (const bool recorded : {true, false}) {
    at::Tensor x = at::ones({1000}, here());
    c10::Event event(device().type());
    event.record(current());
    const c10::Stream other = new_stream();
    const c10::StreamGuard on_other(other);
    event.block(other);
    x.add_(1);
    if (recorded) guard.recordDataPtrOnStream(x.storage().data_ptr(), other);
    const void* was = x.const_data_ptr();
    x = at::Tensor();
    const c10::StreamGuard on_first(guard.getDefaultStream(device()));
    const at::Tensor next = at::empty({1000}, here());
    EXPECT_EQ(next.const_data_ptr() == was, !recorded);
    guard.synchronizeDevice(0);
    const std::string fault = take_fault();
    EXPECT_EQ(fault.empty(), recorded);
    if (!recorded) {
      EXPECT_THAT(fault, HasSubstr("memory of stream 0 is freed, which aten::add on stream"));
    }
  }
}

TEST_F(StandIn, CopiesToPinnedMemoryArriveWhenTheHostWaits) {
  const at::Tensor x = at::ones({4}, here());
  at::Tensor y = at::zeros({4}, pinned());
  ASSERT_TRUE(y.is_pinned());
  const auto before = host_synchronizations();
  y.copy_(x, /*non_blocking=*/true);
  EXPECT_TRUE(std::isnan(y.data_ptr<float>()[0]));
  EXPECT_EQ(host_synchronizations(), before);
  c10::impl::VirtualGuardImpl(device().type()).synchronizeStream(current());
  EXPECT_EQ(y.data_ptr<float>()[0], 1);
}

TEST_F(StandIn, PinnedMemoryMustNotChangeWhileTheDeviceReadsIt) {
  at::Tensor x = at::zeros({4}, here()), y = at::ones({4}, pinned());
  x.copy_(y, /*non_blocking=*/true);
  y.fill_(2);
  c10::impl::VirtualGuardImpl(device().type()).synchronizeStream(current());
  EXPECT_THAT(take_fault(), HasSubstr("pinned memory changed"));
}

TEST_F(StandIn, CountsItsMemory) {
  reset_peak();
  const auto before = live_bytes();
  {
    const at::Tensor x = at::empty({64}, here()), y = at::empty({64}, here());
    EXPECT_EQ(live_bytes(), before + 512);
  }
  EXPECT_EQ(live_bytes(), before);
  EXPECT_EQ(peak_bytes(), before + 512);
}

comm::StandinStream& message_stream() {
  return *static_cast<comm::StandinStream*>(
      c10::impl::VirtualGuardImpl(device().type()).getStreamNativeHandle(current()));
}
// A message of all bytes of `t`, as the stand-in for NCCL handles it.
void message(const at::Tensor& t, bool write) {
  comm::StandinStream& stream = message_stream();
  stream.run([&stream, write, t] {
    std::byte* bytes = stream.use(static_cast<std::byte*>(t.data_ptr()), static_cast<std::int64_t>(t.nbytes()), write);
    if (write) std::memset(bytes, 0, t.nbytes());
  });
  while (!stream.is_free()) std::this_thread::yield();
}

TEST_F(StandIn, MessagesAreWorkOfTheirStream) {
  const at::Tensor x = at::ones({4}, here());
  message(x, true);
  EXPECT_EQ(x.sum().item<float>(), 0);
  const c10::StreamGuard other(new_stream());
  message(x, false);
  EXPECT_EQ(take_fault(), "") << "the host has waited for the sum, which is later";
  c10::impl::VirtualGuardImpl(device().type()).synchronizeDevice(0);
}

TEST_F(StandIn, AMessageThatMayComeBesideOtherWorkIsAFault) {
  const at::Tensor x = at::ones({4}, here());
  const c10::StreamGuard other(new_stream());
  message(x, true);
  EXPECT_THAT(take_fault(), HasSubstr("receive"));
}

TEST_F(StandIn, AnEventIsKnownWhenTheHostHasWaitedOrAsksAgain) {
  c10::Event first(device().type(), c10::EventFlag::BACKEND_DEFAULT),
      last(device().type(), c10::EventFlag::BACKEND_DEFAULT);
  first.record(current());
  const at::Tensor x = at::ones({4}, here());
  last.record(current());
  EXPECT_FALSE(last.query());
  const auto before = host_synchronizations();
  EXPECT_TRUE(last.query());
  EXPECT_TRUE(first.query()) << "what comes before it";
  EXPECT_GE(first.elapsedTime(last), 0);
  EXPECT_EQ(host_synchronizations(), before);
}

TEST_F(StandIn, MemoryBeyondItsLimitIsRefused) {
  limit_memory(1 << 20);
  EXPECT_NO_THROW(at::ones({1 << 10}, here()));
  EXPECT_THROW(at::ones({1 << 20}, here()), c10::OutOfMemoryError);
  start_over();
  EXPECT_NO_THROW(at::ones({1 << 20}, here()));
}

}  // namespace
}  // namespace switchyard::standin
