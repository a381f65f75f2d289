#include "base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace switchyard {
namespace {

constexpr size_t kMostThreads = 8;

}  // namespace

void parallel_for(size_t count, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failed;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        next = count;
        const std::lock_guard lock(mutex);
        if (!failed) failed = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  const size_t threads = std::min({count, kMostThreads, static_cast<size_t>(std::thread::hardware_concurrency())});
  try {
    while (others.size() + 1 < threads) others.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads are to be had
  }
  work();
  for (std::thread& thread : others) thread.join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace switchyard
