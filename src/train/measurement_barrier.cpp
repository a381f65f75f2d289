#include "train/measurement_barrier.hpp"

#include <algorithm>
#include <cstring>

#include "base/errors.hpp"
#include "base/median.hpp"
#include "comm/collectives.hpp"
#include "train/channels.hpp"
#include "train/timed_calls.hpp"

namespace switchyard::train {
namespace {

constexpr int kFewest = 5, kMost = 200;
constexpr double kLong = 0.05;  // seconds of repetitions, in all

// Applies `choose` to each element's values over all ranks.
template <class Choose>
std::vector<double> chosen(const std::vector<std::vector<double>>& all, const Choose& choose) {
  std::vector<double> numbers = all.front();
  for (const std::vector<double>& one : all) std::ranges::transform(numbers, one, numbers.begin(), choose);
  return numbers;
}

}  // namespace

double seconds_of(const std::function<void()>& work, SecondsClock clock) {
  const double start = clock();
  work();
  return clock() - start;
}

MeasurementBarrier::MeasurementBarrier(comm::Fabric& fabric)
    : fabric_(fabric), everyone_(comm::everyone(fabric, kMeasurementChannel)) {}

std::vector<std::vector<double>> MeasurementBarrier::everyones(const std::vector<double>& mine) {
  std::vector<std::vector<double>> all;
  for (const auto& blob :
       comm::all_gather_blobs(fabric_, everyone_, "profile", ++exchanges_, std::as_bytes(std::span(mine)))) {
    std::vector<double>& one = all.emplace_back(mine.size());
    check(blob.size() == one.size() * sizeof(double), "ranks sent {} and {} bytes", blob.size(),
          one.size() * sizeof(double));
    std::memcpy(one.data(), blob.data(), blob.size());
  }
  return all;
}

std::vector<double> MeasurementBarrier::mean(const std::vector<double>& mine) {
  std::vector<double> sum(mine.size(), 0);
  const auto all = everyones(mine);
  for (const std::vector<double>& one : all)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += one[i] / static_cast<double>(all.size());
  return sum;
}

std::vector<double> MeasurementBarrier::longest(const std::vector<double>& mine) {
  return chosen(everyones(mine), [](double a, double b) { return std::max(a, b); });
}

std::vector<double> MeasurementBarrier::least(const std::vector<double>& mine) {
  return chosen(everyones(mine), [](double a, double b) { return std::min(a, b); });
}

double MeasurementBarrier::longest_of(const std::function<double()>& timed) {
  return longest({median(repeated(timed))})[0];
}

double MeasurementBarrier::least_of(const std::function<void()>& work, SecondsClock clock) {
  return least({shortest(repeated([&] { return seconds_of(work, clock); }))})[0];
}

double MeasurementBarrier::alone(int number, const std::function<double()>& measured) {
  const std::vector<int>& host = fabric_.cluster().host;
  const int me = fabric_.rank(), mine = host[static_cast<size_t>(me)];
  const auto devices = std::ranges::count(host, mine), place = std::count(host.begin(), host.begin() + me, mine);
  mean({0});
  return longest({place == number % devices ? measured() : 0})[0];
}

// All ranks do the same number of repetitions.
std::vector<double> MeasurementBarrier::repeated(const std::function<double()>& timed) {
  timed();
  const double once = mean({timed()})[0];
  std::vector<double> seconds(
      static_cast<size_t>(std::clamp(static_cast<int>(kLong / std::max(once, 1e-9)), kFewest, kMost)));
  std::ranges::generate(seconds, timed);
  return seconds;
}

}  // namespace switchyard::train
