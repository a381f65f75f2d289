#include "runtime/flight.hpp"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>

namespace switchyard::runtime {
namespace {

TEST(Flight, GoesOnBesideWhoStartedItAndIsWaitedFor) {
  Stream stream([] {});
  std::promise<void> gate;
  int value = 0;
  Flight flight([&] {
    gate.get_future().wait();
    value = 7;
  });
  flight.start(stream);
  EXPECT_TRUE(flight.started());
  EXPECT_EQ(value, 0);
  gate.set_value();
  const Flight::Times times = flight.wait();
  EXPECT_EQ(value, 7);
  EXPECT_GE(times.end.seconds_since(times.begin), 0);
}

TEST(Flight, WithoutAStreamRunsAtOnceAndIsWaitedForAllTheTime) {
  int value = 0;
  Flight flight([&] { value = 7; });
  const Flight::Times times = flight.run();
  EXPECT_EQ(value, 7);
  EXPECT_EQ(times.waiting.seconds_since(times.begin), 0);
  EXPECT_FALSE(flight.started());
  EXPECT_EQ(flight.wait().end.seconds_since(times.end), 0);
}

TEST(Flight, ThrowsWhatMadeItFailWhereItIsWaitedFor) {
  Stream stream([] {});
  Flight flight([] { throw std::runtime_error("torn"); });
  flight.start(stream);
  EXPECT_THROW(flight.wait(), std::runtime_error);
  EXPECT_THROW(Flight([] { throw std::runtime_error("torn"); }).run(), std::runtime_error);
}

TEST(Flight, LetsGoOfWhatItHoldsWhereItIsWaitedFor) {
  Stream stream([] {});
  std::weak_ptr<int> held;
  {
    auto thing = std::make_shared<int>(1);
    held = thing;
    Flight flight([thing = std::move(thing)] {});
    flight.start(stream);
    flight.wait();
    EXPECT_FALSE(held.expired());
  }
  EXPECT_TRUE(held.expired());
}

}  // namespace
}  // namespace switchyard::runtime
