#include "base/parallel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace switchyard {
namespace {

TEST(Parallel, every_call_is_made_once) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{1000}}) {
    std::vector<int> calls(count);  // each element is written by one call alone
    parallel_for(count, [&](size_t i) { ++calls[i]; });
    EXPECT_EQ(calls, std::vector<int>(count, 1));
  }
}

TEST(Parallel, what_a_call_throws_is_thrown_to_the_caller) {
  std::atomic<int> calls = 0;
  const auto body = [&](size_t i) {
    ++calls;
    if (i == 5) throw std::runtime_error("the sixth");
  };
  try {
    parallel_for(1'000'000, body);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the sixth");
  }
  EXPECT_LT(calls, 1'000'000);
}

}  // namespace
}  // namespace switchyard
