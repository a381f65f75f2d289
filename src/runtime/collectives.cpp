#include "runtime/collectives.hpp"

#include <future>

#include "base/errors.hpp"

namespace switchyard::runtime {

struct Collectives::Flight {
  explicit Flight(const KernelCall& call) : reshard(call) {}
  void run() {
    times.begin = std::chrono::steady_clock::now();
    reshard.run();
    times.end = std::chrono::steady_clock::now();
  }

  Reshard reshard;
  Times times{};
  std::promise<void> done;
  std::future<void> ended;  // not valid: it ran on the spot
};

std::optional<Collectives::Times> Collectives::launch(size_t instr, const KernelCall& call, bool awaited) {
  const auto flight = std::make_shared<Flight>(call);
  if (!stream_ || (awaited && flights_.empty())) {
    flight->run();
    flights_.emplace_back(instr, flight);
    flight->times.waiting = flight->times.begin;
    return flight->times;
  }
  flight->ended = flight->done.get_future();
  flights_.emplace_back(instr, flight);
  stream_->enqueue([running = flight]() mutable {
    std::exception_ptr error;
    try {
      running->run();
    } catch (...) {
      error = std::current_exception();
    }
    std::promise<void> done = std::move(running->done);
    running.reset();  // whoever waits is the last to let go
    error ? done.set_exception(error) : done.set_value();
  });
  return {};
}

std::optional<Collectives::Times> Collectives::wait(size_t instr) {
  check(!flights_.empty() && flights_.front().first == instr, "collective {} isn't the next one to end", instr);
  const std::shared_ptr<Flight> flight = std::move(flights_.front().second);
  flights_.pop_front();
  if (!flight->ended.valid()) return {};
  flight->times.waiting = std::chrono::steady_clock::now();
  flight->ended.get();
  return flight->times;
}

}  // namespace switchyard::runtime
