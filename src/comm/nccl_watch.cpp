#include "comm/nccl_watch.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "comm/protocol.hpp"

namespace switchyard::comm {
namespace {

constexpr std::chrono::milliseconds kInterval{20};
constexpr std::chrono::seconds kPatience{5};  // with communicators that end after all is done
constexpr std::chrono::seconds kMoment{1};    // for the host to notice which rank is gone

}  // namespace

std::string name_of_queue(const Channel& whose) {
  return whose.ranks.empty() ? fmt::format("channel {}", whose.id)
                             : fmt::format("channel {} of ranks {}", whose.id, fmt::join(whose.ranks, ", "));
}

NcclWatch::NcclWatch(Fabric& host, const BlockDevice& device, std::chrono::milliseconds timeout)
    : host_(host), device_(device), timeout_(timeout), label_(rank_label(host.rank(), host.cluster())) {
  thread_ = std::thread([this] { watch(); });
}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (auto& [whose, queue] : queues_) queue.under_way.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void NcclWatch::add(const Channel& whose, std::shared_ptr<NcclCommunicator> communicator) {
  const std::lock_guard lock(mutex_);
  queues_[whose].communicator = std::move(communicator);
}

std::shared_ptr<NcclCommunicator> NcclWatch::of(const Channel& whose) const {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(whose);
  return found == queues_.end() ? nullptr : found->second.communicator;
}

void NcclWatch::add(const Channel& whose, Exchange exchange) {
  const std::lock_guard lock(mutex_);
  queues_.at(whose).under_way.push_back({std::move(exchange), {}});
}

void NcclWatch::given(const Channel& whose, BlockDevice::Mark done) {
  const std::lock_guard lock(mutex_);
  queues_.at(whose).under_way.back().exchange.done = std::move(done);
}

void NcclWatch::stop_if_failed(const std::string& name) const {
  if (const auto reason = host_.failure()) throw ClusterError(stopped(label_, name, *reason));
}

void NcclWatch::wait_for_reason(const NcclError& error) const {
  if (!error.remote()) return;
  const auto deadline = std::chrono::steady_clock::now() + kMoment;
  while (!host_.failure() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(kInterval);
}

void NcclWatch::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (!host_.failure()) finish();
  abort_all();
}

// Ends when the job has failed, or when all is done and nothing more comes.
void NcclWatch::watch() {
  device_.adopt_thread();
  for (;;) {
    if (const auto found = fault()) {
      if (found->error) wait_for_reason(*found->error);
      host_.abort(found->text);
    }
    if (host_.failure()) return abort_all();
    std::unique_lock lock(mutex_);
    if (closing_ && idle()) return;
    changed_.wait_for(lock, kInterval);
  }
}

std::optional<NcclWatch::Fault> NcclWatch::fault() {
  const i64 heard = host_.work_heard();
  const bool any_works = std::exchange(work_heard_, heard) != heard;
  const std::lock_guard lock(mutex_);
  for (auto& [whose, queue] : queues_)
    if (auto found = fault_of(whose, queue, any_works)) return found;
  return std::nullopt;
}

std::optional<NcclWatch::Fault> NcclWatch::fault_of(const Channel& whose, Queue& queue, bool any_works) {
  std::deque<UnderWay>& under_way = queue.under_way;
  try {
    const auto first_is_given = [&] { return !under_way.empty() && under_way.front().exchange.done; };
    while (first_is_given() && device_.reached(under_way.front().exchange.done)) under_way.pop_front();
    queue.communicator->ready_if_free();
    if (!first_is_given()) return std::nullopt;
    UnderWay& first = under_way.front();
    // A stream may have much to do before: silence counts from when the messages begin.
    if (!first.silence && device_.reached(first.exchange.begun)) first.silence.emplace(timeout_);
    // What a peer has to compute first is no silence.
    if (first.silence && any_works) first.silence->restart();
    if (!first.silence || !first.silence->over()) return std::nullopt;
    return Fault{.text = not_exchanged(label_, first.exchange.name, first.exchange.peers, timeout_)};
  } catch (const std::exception& error) {  // an error of NCCL, or of the device
    const Exchange whole{.name = name_of_queue(whose), .peers = {}, .begun = {}, .done = {}};
    const Exchange& first = under_way.empty() ? whole : under_way.front().exchange;
    Fault fault{.text = device_failed(label_, first.name, first.peers, error.what())};
    if (const auto* of_library = dynamic_cast<const NcclError*>(&error)) fault.error = *of_library;
    return fault;
  }
}

bool NcclWatch::idle() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const auto& entry) { return entry.second.under_way.empty(); });
}

// Errors at the end change no result: what fails here is aborted.
void NcclWatch::finish() {
  const auto deadline = std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(timeout_, kPatience);
  try {
    for (auto& [whose, queue] : queues_) queue.communicator->finalize();
    for (auto& [whose, queue] : queues_) {
      while (!queue.communicator->ready()) {
        if (std::chrono::steady_clock::now() > deadline) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      queue.communicator->close();
    }
  } catch (const NcclError&) {
  }
}

void NcclWatch::abort_all() {
  std::vector<std::shared_ptr<NcclCommunicator>> communicators;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [whose, queue] : queues_) communicators.push_back(queue.communicator);
  }
  // All at once: one gives back memory when it ends, for which CUDA waits until the device does nothing, and what the
  // others have there ends only when they are informed, too. Source: github.com/NVIDIA/nccl/issues/1013
  std::vector<std::thread> aborts;
  for (const auto& communicator : communicators)
    aborts.emplace_back([this, communicator] {
      device_.adopt_thread();
      communicator->abort();
    });
  for (std::thread& abort : aborts) abort.join();
}

}  // namespace switchyard::comm
