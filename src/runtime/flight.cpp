#include "runtime/flight.hpp"

#include <future>
#include <utility>

namespace switchyard::runtime {

struct Flight::State {
  State(std::function<void()> what, const at::Device& where) : work(std::move(what)), device(where) {}
  void run() {
    times.begin = Instant::here(device);
    work();
    times.end = Instant::here(device);
  }

  std::function<void()> work;
  at::Device device;
  Mark started, finished;
  Times times{};
  std::promise<void> done;
  std::future<void> ended;
};

Flight::Flight(std::function<void()> work, const at::Device& device)
    : state_(std::make_shared<State>(std::move(work), device)) {}

const Flight::Times& Flight::run() {
  state_->run();
  state_->times.waiting = state_->times.begin;
  return state_->times;
}

void Flight::start(Stream& stream) {
  started_ = true;
  state_->ended = state_->done.get_future();
  state_->started = Mark::here(state_->device);
  stream.enqueue([running = state_]() mutable {
    std::exception_ptr error;
    try {
      running->started.wait();
      running->run();
      running->finished = Mark::here(running->device);
    } catch (...) {
      error = std::current_exception();
    }
    std::promise<void> done = std::move(running->done);
    running.reset();  // whoever waits is the last to let go
    error ? done.set_exception(error) : done.set_value();
  });
}

const Flight::Times& Flight::wait() {
  if (!started_) return state_->times;
  state_->times.waiting = Instant::here(state_->device);
  state_->ended.get();
  state_->finished.wait();
  return state_->times;
}

}  // namespace switchyard::runtime
