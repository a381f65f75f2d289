// Threads that compute bounds side by side.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "planner/cost_model.hpp"

namespace switchyard::planner {

/// Equal cost models for a few threads. A model is on one thread at a time, as it keeps what it has computed, without
/// locks.
class ModelThreads {
 public:
  /// threads: with the calling one; as many as there are models do something.
  explicit ModelThreads(std::vector<const CostModel*> models, size_t threads = 1);
  ~ModelThreads();
  ModelThreads(const ModelThreads&) = delete;
  ModelThreads& operator=(const ModelThreads&) = delete;

  size_t count() const { return models_.size(); }
  const CostModel& model(size_t number) const { return *models_[number]; }
  /// Calls task(number) for each model, on whichever thread is free, and waits for all. What a task throws is thrown
  /// here.
  using Task = std::function<void(size_t)>;
  void run(const Task& task);

 private:
  void work();
  /// Calls the tasks that are left.
  void call(std::unique_lock<std::mutex>& lock);

  std::vector<const CostModel*> models_;
  std::vector<size_t> order_;    // tasks that took longest the last time come first
  std::vector<double> seconds_;  // how long a model's last task took
  std::mutex mutex_;
  std::condition_variable begun_, done_;
  const Task* task_ = nullptr;
  size_t next_ = 0, left_ = 0;  // tasks: the next one (in order_), and those that have not ended
  bool ended_ = false;
  std::exception_ptr failed_;
  std::vector<std::thread> threads_;
};

}  // namespace switchyard::planner
