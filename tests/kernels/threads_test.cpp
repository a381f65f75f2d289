#include "kernels/threads.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <latch>
#include <set>
#include <thread>

namespace switchyard::kernels {
namespace {

// The number of threads that share a loop of the calling thread.
size_t threads_of_a_loop() {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  at::parallel_for(0, 64, 1, [&](std::int64_t, std::int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  return seen.size();
}

TEST(Threads, a_number_of_threads_stays_although_another_thread_sets_its_own_before_the_first_operation) {
  std::latch both_set(2);
  size_t of_three = 0, of_one = 0;
  const auto count = [&](int threads, size_t& loop) {
    set_up_compute_thread(threads);
    both_set.arrive_and_wait();
    at::ones({1 << 16}).add_(1);  // an operation inside the library
    loop = threads_of_a_loop();
  };
  std::thread three([&] { count(3, of_three); });
  std::thread one([&] { count(1, of_one); });
  three.join();
  one.join();
  EXPECT_EQ(of_three, 3u);
  EXPECT_EQ(of_one, 1u);
}

TEST(Threads, a_compute_thread_records_no_views_for_autograd) {
  const at::Tensor whole = at::ones({4});
  bool recorded = true;
  std::thread computing([&] {
    set_up_compute_thread(1);
    recorded = whole.narrow(0, 0, 2).is_view();
  });
  computing.join();
  EXPECT_FALSE(recorded);
  EXPECT_TRUE(whole.narrow(0, 0, 2).is_view());  // other threads are as they were
}

}  // namespace
}  // namespace switchyard::kernels
