#include "train/profile_links.hpp"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <span>
#include <thread>

#include "base/median.hpp"
#include "kernels/threads.hpp"
#include "runtime/device_order.hpp"
#include "runtime/tensors.hpp"
#include "runtime/transfer.hpp"
#include "train/channels.hpp"

namespace switchyard::train {
namespace {

using cluster::Link;

constexpr i64 kLeast = 64;  // bytes: a message that is all latency
constexpr i64 kSizes[] = {1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24};
constexpr std::chrono::microseconds kLate{300};
constexpr double kMostLatency = 0.9;                            // share of any message's time
constexpr double kTooLong = 0.4;                                // seconds of a message
constexpr i64 kBeyondCaches = i64{1} << 26, kMostBuffers = 64;  // bytes; in a step, sent data is rarely in the cache

class LinkProfiler {
 public:
  LinkProfiler(MeasurementBarrier& barrier, comm::Fabric& fabric, const RankSettings& settings)
      : barrier_(barrier), fabric_(fabric), settings_(settings) {}

  // Empty if no two ranks have such a link. Between hosts, one pair for each two hosts shows the rate of a port, and
  // all pairs together whether they share it.
  std::optional<cluster::LinkClass> measure(Link link, int devices_per_host) {
    const std::optional<int> peer = peer_over(link);
    const double paired = barrier_.mean({peer ? 1.0 : 0.0})[0];
    if (paired == 0) return std::nullopt;
    const bool may_share = link == Link::inter_host && devices_per_host > 1;
    const std::optional<int> alone = may_share && fabric_.rank() % devices_per_host != 0 ? std::nullopt : peer;
    latency_ = exchange_and_answer(alone, kLeast, false) / 2;
    std::vector<std::pair<double, double>> times;  // bytes, seconds
    for (const i64 bytes : kSizes) {
      times.emplace_back(bytes, exchange_time(alone, bytes, false));
      if (times.back().second > kTooLong / 4) break;
    }
    const auto [bytes, seconds] = times.back();
    const i64 largest = static_cast<i64>(bytes);
    cluster::LinkClass found = link_of(latency_, std::move(times));
    found.sum_share = std::min(1.0, seconds / exchange_time(alone, largest, true));
    if (may_share && exchange_time(peer, largest, false) > kDivided * seconds) found.shared_by = devices_per_host;
    found.overlap_slowdown = slowdown(peer, largest, paired);
    return found;
  }

 private:
  static constexpr double kDivided = 1.5;

  // The neighbouring rank on the same host, or the rank in the same place of the neighbouring host: both ends agree on
  // the pairs.
  std::optional<int> peer_over(Link link) const {
    const std::vector<int>& host = fabric_.cluster().host;
    const int me = fabric_.rank(), my_host = host[static_cast<size_t>(me)];
    std::vector<int> mine, beside;
    for (int rank = 0; rank < fabric_.size(); ++rank) {
      if (host[static_cast<size_t>(rank)] == my_host) mine.push_back(rank);
      if (host[static_cast<size_t>(rank)] == (my_host ^ 1)) beside.push_back(rank);
    }
    const size_t place = static_cast<size_t>(std::ranges::find(mine, me) - mine.begin());
    const std::vector<int>& others = link == Link::intra_host ? mine : beside;
    const size_t there = link == Link::intra_host ? place ^ 1 : place;
    return there < others.size() && others[there] != me ? std::optional(others[there]) : std::nullopt;
  }

  void exchange(std::optional<int> peer, const at::Tensor& from, const at::Tensor& to, bool sum) {
    if (!peer) return;
    runtime::Transfer transfer;
    transfer.send(*peer, from);
    transfer.receive(*peer, to, sum);
    const comm::Channel channel{kLinkChannel, {std::min(fabric_.rank(), *peer), std::max(fabric_.rank(), *peer)}};
    transfer.run(fabric_, channel, "profile", ++row_);
    runtime::wait_for_stream(settings_.device);
  }

  // Buffers used in turn, so that caches don't hold them.
  struct Buffers {
    Buffers(i64 bytes, const at::Device& device) {
      const i64 count = std::clamp<i64>(kBeyondCaches / (2 * bytes), 1, kMostBuffers);
      for (i64 i = 0; i < 2 * count; ++i) tensors.push_back(runtime::zeros({bytes / 4}, DType::f32, device));
    }
    const at::Tensor& next() { return tensors[at++ % tensors.size()]; }
    std::vector<at::Tensor> tensors;
    size_t at = 0;
  };

  // Seconds of an exchange on ranks that have a peer; the others wait. One of the two comes late, in turn, as in steps,
  // where ranks never arrive together, and measures the time until both have everything: sent data may be in network
  // buffers long after the call has returned, and received data may have arrived before. So a smallest message follows,
  // which the peer answers when it is done.
  double exchange_time(std::optional<int> peer, i64 bytes, bool sum) {
    return std::max(exchange_and_answer(peer, bytes, sum) - latency_, latency_);
  }

  double exchange_and_answer(std::optional<int> peer, i64 bytes, bool sum) {
    Buffers buffers(bytes, settings_.device), answers(kLeast, settings_.device);
    const auto exchanged = [&] {
      for (Buffers* which : {&buffers, &answers}) {
        const at::Tensor& from = which->next();
        exchange(peer, from, which->next(), sum && which == &buffers);
      }
    };
    const bool late_first = peer && fabric_.rank() < *peer;
    return barrier_.longest_of([&] {
      if (!late_first) exchanged();
      if (peer) come_late();
      const double seconds = seconds_of(exchanged);
      if (late_first) exchanged();
      return seconds;
    });
  }

  static void come_late() {
    const auto until = std::chrono::steady_clock::now() + kLate;
    while (std::chrono::steady_clock::now() < until) continue;
  }

  // The factor k in max(a, b) + (k - 1) min(a, b): how many times longer matrix products take while exchanges run.
  // Products are timed alternately alone and with exchanges, so that disturbances affect both. The mean is over ranks
  // that have a peer.
  double slowdown(std::optional<int> peer, i64 bytes, double paired) {
    Buffers buffers(bytes, settings_.device);
    constexpr i64 kSize = 256;
    const auto options = at::TensorOptions().dtype(at::kFloat).device(settings_.device);
    const at::Tensor a = at::ones({kSize, kSize}, options);
    at::Tensor product = at::mm(a, a);
    const auto multiply = [&](int times) {
      for (int i = 0; i < times; ++i) at::mm_out(product, a, a);
      runtime::wait_for_stream(settings_.device);
    };
    const auto transfer = [&](int times) {
      for (int i = 0; i < times; ++i) {
        const at::Tensor& from = buffers.next();
        exchange(peer, from, buffers.next(), false);
      }
    };
    const auto longest_of = [&](const auto& work) { return barrier_.longest_of([&] { return seconds_of(work); }); };
    const double once = longest_of([&] { multiply(8); }) / 8, message = longest_of([&] { transfer(1); });
    const int messages = std::clamp(static_cast<int>(kTogether / message), 1, 1000),
              products = std::max(1, static_cast<int>(messages * message / once));
    std::vector<double> longer;
    for (int turn = 0; turn < kTurns; ++turn) {
      barrier_.mean({0});
      const double alone = seconds_of([&] { multiply(products); });
      barrier_.mean({0});
      std::jthread other([&] {
        runtime::use_own_stream(settings_.device);  // beside the products
        transfer(2 * messages);                     // longer than these, which are slower now
      });
      longer.push_back(seconds_of([&] { multiply(products); }) / alone);
    }
    return std::clamp(barrier_.mean({peer ? median(longer) : 0})[0] / paired, 1.0, 2.0);
  }

  static constexpr double kTogether = 0.1;  // seconds
  static constexpr int kTurns = 7;

  MeasurementBarrier& barrier_;
  comm::Fabric& fabric_;
  const RankSettings& settings_;
  i64 row_ = 0;
  double latency_ = 0;  // seconds of the smallest message over the link that is being measured
};

// The rate of message i that larger messages keep. Buffers on the way make messages of their size look fast, but the
// additional bytes of a larger message travel at the link's own rate. Where times are equal, only the larger message
// determines a rate.
double sustained_rate(double latency, const std::vector<std::pair<double, double>>& times, size_t i) {
  const auto [bytes, seconds] = times[i];
  double rate = bytes / (seconds - latency);
  for (const auto& [more_bytes, more_seconds] : std::span(times).subspan(i + 1))
    rate = more_seconds > seconds ? std::min(rate, (more_bytes - bytes) / (more_seconds - seconds)) : 0;
  if (i > 0 && i + 1 == times.size() && seconds > times[i - 1].second)
    rate = std::min(rate, (bytes - times[i - 1].first) / (seconds - times[i - 1].second));
  return rate;
}

}  // namespace

cluster::LinkClass link_of(double latency, std::vector<std::pair<double, double>> times) {
  // A message that took longer than a bigger one was disturbed.
  for (size_t i = times.size() - 1; i-- > 0;) times[i].second = std::min(times[i].second, times[i + 1].second);
  latency = std::min(latency, kMostLatency * times.front().second);
  cluster::LinkClass link{.latency = {latency}};
  for (size_t i = 0; i < times.size(); ++i)
    link.bandwidth.count = std::max(link.bandwidth.count, sustained_rate(latency, times, i));
  for (const auto& [bytes, seconds] : times) link.curve.add(bytes, bytes / (seconds - latency) / link.bandwidth.count);
  return link;
}

void profile_links(MeasurementBarrier& barrier, comm::Fabric& fabric, const RankSettings& settings,
                   cluster::Hardware& hardware) {
  LinkProfiler profiler(barrier, fabric, settings);
  // A single rank has no link to measure; messages to itself cost nothing.
  hardware.intra_host =
      profiler.measure(Link::intra_host, hardware.devices_per_host).value_or(cluster::LinkClass{{0}, {1e12}});
  if (hardware.hosts > 1) hardware.inter_host = profiler.measure(Link::inter_host, hardware.devices_per_host);
  const cluster::LinkClass& usual = hardware.inter_host ? *hardware.inter_host : hardware.intra_host;
  hardware.overlap_slowdown = std::max(1.0, usual.overlap_slowdown);
}

}  // namespace switchyard::train
