#include "comm/joint_work.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/collectives.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;

enum class State : int { working, done, failed };

bool any(const std::vector<State>& states, State state) {
  return std::find(states.begin(), states.end(), state) != states.end();
}

}  // namespace

std::chrono::milliseconds sign_interval(std::chrono::milliseconds timeout) {
  return std::clamp<std::chrono::milliseconds>(timeout / 4, 1ms, 1s);
}

JointWork::JointWork(Fabric& fabric, Channel channel, std::chrono::milliseconds interval)
    : fabric_(fabric), channel_(std::move(channel)), interval_(interval) {}

void JointWork::run(const std::string& name, const std::function<void(const Check&)>& work) {
  const auto exchange = [&](State mine) { return all_gather_values(fabric_, channel_, name, ++row_, mine); };
  std::mutex mutex;
  std::condition_variable ended;
  State mine = State::working;
  std::exception_ptr lost, failure;
  bool failed_elsewhere = false;
  // A round ends when the last member joins it, so members that are done don't speed up the rounds of those that work.
  std::thread signs([&] {
    try {
      for (std::vector<State> all{State::working}; any(all, State::working);) {
        State now;
        {
          std::unique_lock lock(mutex);
          ended.wait_for(lock, interval_, [&] { return mine != State::working; });
          now = mine;
        }
        all = exchange(now);
        failed_elsewhere = any(all, State::failed);
      }
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex);
      lost = std::current_exception();
    }
  });
  try {
    work([&] {
      const std::lock_guard lock(mutex);
      if (lost) std::rethrow_exception(lost);
    });
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex);
    mine = failure ? State::failed : State::done;
  }
  ended.notify_all();
  signs.join();
  if (lost) std::rethrow_exception(lost);  // what fails then, such as files that another member removes, may follow
  if (failure) std::rethrow_exception(failure);
  if (failed_elsewhere) exchange(State::done);  // the failed member does not take part, so this throws its reason
}

}  // namespace switchyard::comm
