#include "train/profile_meeting.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "comm/collectives.hpp"
#include "base/errors.hpp"

namespace switchyard::train {
namespace {

constexpr int kChannel = 5;
constexpr int kFewest = 5, kMost = 200;
constexpr double kLong = 0.05;  // seconds of repetitions

}  // namespace

Meeting::Meeting(comm::Fabric& fabric) : fabric_(fabric), everyone_{kChannel, std::vector<int>(static_cast<size_t>(fabric.size()))} {
  std::iota(everyone_.ranks.begin(), everyone_.ranks.end(), 0);
}

std::vector<std::vector<double>> Meeting::everyones(const std::vector<double>& mine) {
  std::vector<std::vector<double>> all;
  for (const auto& blob : comm::all_gather_blobs(fabric_, everyone_, "profile", ++meetings_, std::as_bytes(std::span(mine)))) {
    std::vector<double>& one = all.emplace_back(mine.size());
    check(blob.size() == one.size() * sizeof(double), "ranks tell of {} and {} bytes", blob.size(), one.size() * sizeof(double));
    std::memcpy(one.data(), blob.data(), blob.size());
  }
  return all;
}

std::vector<double> Meeting::mean(const std::vector<double>& mine) {
  std::vector<double> sum(mine.size(), 0);
  const auto all = everyones(mine);
  for (const std::vector<double>& one : all)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += one[i] / static_cast<double>(all.size());
  return sum;
}

std::vector<double> Meeting::longest(const std::vector<double>& mine) {
  std::vector<double> most(mine.size(), 0);
  for (const std::vector<double>& one : everyones(mine))
    for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], one[i]);
  return most;
}

double Meeting::longest_of(const std::function<void()>& work) { return longest({usual(work)})[0]; }

// Of as many repetitions on all ranks the lower quartile: others use the machine, too.
double Meeting::usual(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto timed = [&] {
    const auto start = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  work();
  const double once = mean({timed()})[0];
  const int count = std::clamp(static_cast<int>(kLong / std::max(once, 1e-9)), kFewest, kMost);
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) seconds.push_back(timed());
  std::ranges::nth_element(seconds, seconds.begin() + count / 4);
  return seconds[static_cast<size_t>(count / 4)];
}

}  // namespace switchyard::train
