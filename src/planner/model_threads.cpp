#include "planner/model_threads.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/clock.hpp"

namespace switchyard::planner {

ModelThreads::ModelThreads(std::vector<const CostModel*> models, size_t threads)
    : models_(std::move(models)), order_(models_.size()), seconds_(models_.size(), 0), next_(models_.size()) {
  std::iota(order_.begin(), order_.end(), size_t{0});
  for (size_t thread = 1; thread < std::min(threads, models_.size()); ++thread)
    threads_.emplace_back([this] { work(); });
}

ModelThreads::~ModelThreads() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ModelThreads::run(const Task& task) {
  std::unique_lock lock(mutex_);
  std::ranges::stable_sort(order_, std::greater<>(), [&](size_t number) { return seconds_[number]; });
  task_ = &task;
  next_ = 0;
  left_ = models_.size();
  begun_.notify_all();
  call(lock);
  done_.wait(lock, [&] { return left_ == 0; });
  if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
}

void ModelThreads::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    begun_.wait(lock, [&] { return ended_ || next_ < models_.size(); });
    if (ended_) return;
    call(lock);
  }
}

void ModelThreads::call(std::unique_lock<std::mutex>& lock) {
  while (next_ < models_.size()) {
    const size_t number = order_[next_++];
    lock.unlock();
    const Clock::time_point begin = Clock::now();
    std::exception_ptr failed;
    try {
      (*task_)(number);
    } catch (...) {
      failed = std::current_exception();
    }
    seconds_[number] = seconds_since(begin);
    lock.lock();
    if (failed && !failed_) failed_ = failed;
    if (--left_ == 0) done_.notify_one();
  }
}

}  // namespace switchyard::planner
