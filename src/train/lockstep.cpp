#include "train/lockstep.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>

#include <algorithm>
#include <cmath>

#include "base/median.hpp"
#include "kernels/memory.hpp"
#include "runtime/device_order.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::train {
namespace {

constexpr double kLengths[] = {1e-3, 1e-2, 1e-1, 3e-1};  // seconds
constexpr double kOfLength = 0.1;                        // seconds of the stretches of a length in a round
constexpr double kUnitsTimed = 0.05;                     // seconds
constexpr i64 kSomeUnits = 16;
constexpr int kBarriers = 100;
constexpr int kRounds = 5, kQuickRounds = 2;

// Products that fit into a cache and copies of their results that don't.
class Units {
 public:
  Units(DType type, const at::Device& device) : device_(device) {
    const kernels::MemoryScope outside(nullptr);
    // Several threads share only what is worth it.
    const int64_t size = !device.is_cpu() ? 1024 : at::get_num_threads() == 1 ? 64 : 256;
    factor_ = at::rand({size, size}, at::TensorOptions().dtype(runtime::scalar_type(type)).device(device));
    product_ = at::empty_like(factor_);
    results_ = at::rand({kSomeUnits, size, size}, factor_.options());
  }
  void operator()(i64 units) {
    for (i64 unit = 0; unit < units; ++unit) {
      at::mm_out(product_, factor_, factor_);
      results_.select(0, unit % kSomeUnits).copy_(product_);
    }
    runtime::wait_for_stream(device_);
  }

 private:
  at::Device device_;
  at::Tensor factor_, product_, results_;
};

}  // namespace

cluster::EfficiencyCurve lockstep_curve(const std::vector<Stretches>& by_length) {
  struct Pool {
    double sum = 0;
    int lengths = 0;
    double mean() const { return sum / lengths; }
  };
  std::vector<Pool> pools;
  for (const Stretches& stretches : by_length) {
    pools.push_back({median(stretches.shares), 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back() = {pools.back().sum + last.sum, pools.back().lengths + last.lengths};
    }
  }
  cluster::EfficiencyCurve curve;
  auto stretches = by_length.begin();
  for (const Pool& pool : pools)
    for (int length = 0; length < pool.lengths; ++length) curve.add((stretches++)->seconds, pool.mean());
  return curve;
}

std::vector<Stretches> timed_stretches(MeasurementBarrier& barrier, const Work& work, const std::function<void()>& wait,
                                       int rounds, SecondsClock clock) {
  const auto mean_of = [&](int times, const std::function<void()>& repeated) {
    wait();
    return barrier.mean({seconds_of(
               [&] {
                 for (int i = 0; i < times; ++i) repeated();
               },
               clock)})[0] /
           times;
  };
  std::vector<Stretches> all(std::size(kLengths));
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    i64 some = 0;
    double passed = 0;
    wait();
    for (const double start = clock(); passed < kUnitsTimed; passed = clock() - start, some += kSomeUnits)
      work(kSomeUnits);
    const double unit = barrier.mean({passed / static_cast<double>(some)})[0], waiting = mean_of(kBarriers, wait);
    if (round == 0) continue;
    for (size_t length = 0; length < all.size(); ++length) {
      const i64 units = std::max<i64>(1, std::llround(kLengths[length] / unit));
      const int times = std::max(2, static_cast<int>(kOfLength / kLengths[length]));
      const double apart = mean_of(times, [&] { work(units); }),
                   together = mean_of(times, [&] { work(units), wait(); }) - waiting;
      all[length].seconds += apart / rounds;
      all[length].shares.push_back(together > 0 ? std::min(1.0, apart / together) : 1);
    }
  }
  return all;
}

cluster::EfficiencyCurve profile_lockstep(MeasurementBarrier& barrier, Precision precision,
                                          const RankSettings& settings, bool quick) {
  if (barrier.fabric().size() == 1) return {};
  return lockstep_curve(timed_stretches(
      barrier, Units(precision.compute, settings.device), [&] { barrier.mean({0}); }, quick ? kQuickRounds : kRounds,
      wall_seconds));
}

}  // namespace switchyard::train
