#include "planner/model_threads.hpp"

#include <utility>

namespace switchyard::planner {

ModelThreads::ModelThreads(const CostModel& model, std::span<const CostModel* const> others) : models_{&model} {
  models_.insert(models_.end(), others.begin(), others.end());
  for (size_t thread = 1; thread < models_.size(); ++thread) threads_.emplace_back([this, thread] { work(thread); });
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
  {
    const std::lock_guard lock(mutex_);
    task_ = &task;
    running_ = threads_.size();
    ++rounds_;
  }
  begun_.notify_all();
  call(0, task);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return running_ == 0; });
  if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
}

void ModelThreads::work(size_t thread) {
  std::unique_lock lock(mutex_);
  for (std::uint64_t round = 0;;) {
    begun_.wait(lock, [&] { return ended_ || rounds_ > round; });
    if (ended_) return;
    round = rounds_;
    const Task& task = *task_;
    lock.unlock();
    call(thread, task);
    lock.lock();
    if (--running_ == 0) done_.notify_one();
  }
}

void ModelThreads::call(size_t thread, const Task& task) {
  try {
    task(thread);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failed_) failed_ = std::current_exception();
  }
}

}  // namespace switchyard::planner
