#include "runtime/stream.hpp"

namespace switchyard::runtime {

void Signals::set(size_t flag) {
  Mark mark = Mark::here(device_);
  const std::lock_guard lock(mutex_);
  if (!marks_.empty()) marks_[flag] = std::move(mark);
  set_[flag] = true;
  changed_.notify_all();
}

void Signals::wait(size_t flag) {
  Mark mark;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return set_[flag] || error_; });
    if (error_) throw Cancelled();
    if (!marks_.empty()) mark = marks_[flag];
  }
  mark.wait();
}

void Signals::fail(std::exception_ptr error, bool cause) {
  const std::lock_guard lock(mutex_);
  if (!error_ || cause) error_ = std::move(error);
  changed_.notify_all();
}

bool Signals::failed() {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void Signals::rethrow() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

Stream::Stream(std::function<void()> begin) : thread_([this, begin = std::move(begin)] { loop(begin); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Stream::enqueue(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

void Stream::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work_.empty() && !busy_; });
}

void Stream::loop(const std::function<void()>& begin) {
  begin();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !work_.empty(); });
    if (work_.empty()) return;
    std::function<void()> next = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    lock.unlock();
    next();
    next = nullptr;
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace switchyard::runtime
