// Threads that compute bounds side by side.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "planner/cost_model.hpp"

namespace switchyard::planner {

/// A cost model for the calling thread and equal ones for threads of their own: models keep what they have computed,
/// without locks.
class ModelThreads {
 public:
  explicit ModelThreads(const CostModel& model, std::span<const CostModel* const> others = {});
  ~ModelThreads();
  ModelThreads(const ModelThreads&) = delete;
  ModelThreads& operator=(const ModelThreads&) = delete;

  size_t count() const { return models_.size(); }
  /// The model of a thread; 0: the calling one.
  const CostModel& model(size_t thread) const { return *models_[thread]; }
  /// Calls task(thread) on each thread and waits for all. What a task throws is thrown here.
  using Task = std::function<void(size_t)>;
  void run(const Task& task);

 private:
  void work(size_t thread);
  void call(size_t thread, const Task& task);

  std::vector<const CostModel*> models_;
  std::mutex mutex_;
  std::condition_variable begun_, done_;
  const Task* task_ = nullptr;
  std::uint64_t rounds_ = 0;
  size_t running_ = 0;  // threads
  bool ended_ = false;
  std::exception_ptr failed_;
  std::vector<std::thread> threads_;
};

}  // namespace switchyard::planner
