#include "runtime/stream.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace switchyard::runtime {
namespace {

TEST(Stream, RunsWorkInTheOrderGivenAfterItsBeginning) {
  std::vector<int> order;
  Stream stream([&] { order.push_back(-1); });
  for (int i = 0; i < 100; ++i) stream.enqueue([&order, i] { order.push_back(i); });
  stream.drain();
  ASSERT_EQ(order.size(), 101u);
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i - 1);
}

TEST(Stream, DrainWaitsForTheLastWork) {
  std::atomic<bool> done = false;
  Stream stream([] {});
  stream.enqueue([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    done = true;
  });
  stream.drain();
  EXPECT_TRUE(done);
}

TEST(Stream, ItsEndWaitsForGivenWork) {
  std::atomic<int> done = 0;
  {
    Stream stream([] {});
    for (int i = 0; i < 10; ++i) stream.enqueue([&] { ++done; });
  }
  EXPECT_EQ(done, 10);
}

TEST(Signals, OrderTwoStreams) {
  Signals signals(1);
  std::vector<int> order;
  Stream first([] {}), second([] {});
  second.enqueue([&] {
    signals.wait(0);
    order.push_back(2);
  });
  first.enqueue([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    order.push_back(1);
    signals.set(0);
  });
  first.drain();
  second.drain();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(Signals, AFailureCancelsThoseWhoWaitAndTheFirstErrorIsReported) {
  Signals signals(2);
  std::atomic<bool> cancelled = false;
  Stream waiter([] {});
  waiter.enqueue([&] {
    try {
      signals.wait(1);
    } catch (const Cancelled&) {
      cancelled = true;
    }
  });
  signals.fail(std::make_exception_ptr(std::runtime_error("first")));
  signals.fail(std::make_exception_ptr(std::runtime_error("second")));
  waiter.drain();
  EXPECT_TRUE(cancelled);
  signals.set(0);
  EXPECT_THROW(signals.wait(0), Cancelled);
  try {
    signals.rethrow();
    ADD_FAILURE() << "nothing thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
}

TEST(Signals, ACauseTakesThePlaceOfWhatFollowsFromIt) {
  Signals signals(1);
  signals.fail(std::make_exception_ptr(std::runtime_error("stopped by the cause")));
  signals.fail(std::make_exception_ptr(std::runtime_error("the cause")), true);
  signals.fail(std::make_exception_ptr(std::runtime_error("stopped as well")));
  try {
    signals.rethrow();
    ADD_FAILURE() << "nothing thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the cause");
  }
}

TEST(Signals, WithoutFailureNothingIsRethrown) {
  Signals signals(1);
  signals.set(0);
  signals.wait(0);
  EXPECT_NO_THROW(signals.rethrow());
}

}  // namespace
}  // namespace switchyard::runtime
