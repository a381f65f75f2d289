#include "report/memory_curves.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace switchyard::report {
namespace {

constexpr size_t kMostPoints = 400;

i64 total(const std::array<i64, compiler::kMemoryClasses>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), i64{0});
}

i64 peak(const MemoryCurve& curve) {
  i64 highest = 0;
  for (const auto& bytes : curve.bytes) highest = std::max(highest, total(bytes));
  return highest;
}

}  // namespace

MemoryCurve curve_of(int rank, const std::vector<compiler::MemoryPeak>& tasks, const TaskStart& start) {
  MemoryCurve curve{.ranks = {rank}, .seconds = {}, .bytes = {}};
  double now = 0;
  for (const compiler::MemoryPeak& moment : tasks) {
    if (moment.task >= 0) now = std::max(now, start(rank, moment.task));
    if (!curve.seconds.empty() && curve.seconds.back() == now) {
      if (moment.total >= total(curve.bytes.back())) curve.bytes.back() = moment.bytes;
      continue;
    }
    curve.seconds.push_back(now);
    curve.bytes.push_back(moment.bytes);
  }
  return curve;
}

void thin(MemoryCurve& curve, size_t most) {
  const size_t count = curve.seconds.size();
  if (count <= most) return;
  MemoryCurve thinned{.ranks = curve.ranks, .seconds = {}, .bytes = {}};
  for (size_t bin = 0; bin < most; ++bin) {
    const auto from = curve.bytes.begin() + static_cast<std::ptrdiff_t>(bin * count / most);
    const auto to = curve.bytes.begin() + static_cast<std::ptrdiff_t>((bin + 1) * count / most);
    const auto highest = std::max_element(from, to, [](const auto& a, const auto& b) { return total(a) < total(b); });
    thinned.seconds.push_back(curve.seconds[bin * count / most]);
    thinned.bytes.push_back(*highest);
  }
  curve = std::move(thinned);
}

Memory memory_of(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans,
                 const TaskStart& start, size_t most) {
  Memory memory;
  std::map<std::pair<std::vector<double>, std::vector<std::array<i64, compiler::kMemoryClasses>>>, size_t> found;
  for (int rank = 0; rank < plans.cluster().ranks(); ++rank) {
    MemoryCurve curve =
        curve_of(rank, compiler::memory_by_task(program, plan, plans, compiler::Holdings(plans, rank)), start);
    memory.predicted_peak.push_back(peak(curve));
    thin(curve, kMostPoints);
    const auto [it, fresh] = found.try_emplace({curve.seconds, curve.bytes}, memory.curves.size());
    if (fresh)
      memory.curves.push_back(std::move(curve));
    else
      memory.curves[it->second].ranks.push_back(rank);
  }
  std::stable_sort(memory.curves.begin(), memory.curves.end(),
                   [](const MemoryCurve& a, const MemoryCurve& b) { return peak(a) > peak(b); });
  if (memory.curves.size() > most) memory.curves.resize(most);
  return memory;
}

}  // namespace switchyard::report
