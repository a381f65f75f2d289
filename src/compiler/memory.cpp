#include "compiler/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/allocation.hpp"
#include "base/units.hpp"
#include "compiler/equivalence_classes.hpp"
#include "compiler/local_stage.hpp"
#include "compiler/memory_replay.hpp"
#include "compiler/step_assembler.hpp"
#include "compiler/worst_order.hpp"
#include "ir/autodiff.hpp"

namespace switchyard::compiler {
namespace {

// A rank's tasks one after the other.
std::vector<Moment> in_turn(const ir::Program& program, int rank) {
  std::vector<Moment> order;
  for (const int id : program.of_rank[static_cast<size_t>(rank)]) order.push_back({.task = id});
  return order;
}

// The highest peaks of the worst orders.
ReplayedMemory worst_peak(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                          const Holdings& holdings, const Arrivals& arrivals, LocalStages& stages) {
  ReplayedMemory worst{.by_phase = std::vector<i64>(plan.phases.size())};
  const int phases = static_cast<int>(plan.phases.size());
  for (int phase = std::min(1, phases - 1); phase < phases; ++phase) {
    const ReplayedMemory at = replay_memory(program, plan, plans, holdings,
                                            worst_order(program, arrivals, holdings.rank(), phase), true, stages);
    if (at.peak.total > worst.peak.total) worst.peak = at.peak;
    std::ranges::transform(worst.by_phase, at.by_phase, worst.by_phase.begin(),
                           [](i64 a, i64 b) { return std::max(a, b); });
  }
  return worst;
}

std::optional<Arrivals> arrivals_at(const ir::Program& program, ExecutionOrder order) {
  if (order == ExecutionOrder::worst) return Arrivals(program);
  return {};
}

MemoryPeak peak_at(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                   const Holdings& holdings, const std::optional<Arrivals>& arrivals, LocalStages& stages) {
  return arrivals
             ? worst_peak(program, plan, plans, holdings, *arrivals, stages).peak
             : replay_memory(program, plan, plans, holdings, in_turn(program, holdings.rank()), false, stages).peak;
}

}  // namespace

const char* name_of(MemoryClass what) {
  constexpr std::array<const char*, kMemoryClasses> kNames = {"master weights", "moments",      "home gradients",
                                                              "error feedback", "compute copy", "working parameters",
                                                              "gradients",      "activations",  "workspace"};
  return kNames[static_cast<size_t>(what)];
}

MemoryClass MemoryPeak::largest() const {
  return static_cast<MemoryClass>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

RotaryTables rotary_tables(const ir::Graph& graph, i64 longest_document) {
  for (const ir::Call& call : graph.calls())
    if (const i64 head_dim = call.op->rotary_head_dim(); head_dim > 0) {
      const bool by_document = call.op->rotates_by_document();
      return {by_document ? 0 : longest_document, head_dim, by_document};
    }
  return {};
}

MemoryPeak predict_memory(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                          const Holdings& holdings, ExecutionOrder order) {
  LocalStages stages;
  return peak_at(program, plan, plans, holdings, arrivals_at(program, order), stages);
}

std::vector<MemoryPeak> memory_by_task(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                                       const Holdings& holdings) {
  LocalStages stages;
  return replay_by_task(program, plan, plans, holdings, in_turn(program, holdings.rank()), stages);
}

std::vector<MemoryPeak> predict_all(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                                    ExecutionOrder order) {
  const BoxesByRank boxes = boxes_by_rank(plans);
  const std::optional<Arrivals> arrivals = arrivals_at(program, order);
  LocalStages stages;
  std::vector<MemoryPeak> peaks;
  for (const int first : EquivalenceClasses(program, plan, plans, boxes, order == ExecutionOrder::worst).first_like()) {
    const int rank = static_cast<int>(peaks.size());
    peaks.push_back(first < rank ? peaks[static_cast<size_t>(first)]
                                 : peak_at(program, plan, plans, Holdings(plans, boxes, rank), arrivals, stages));
  }
  return peaks;
}

struct BudgetCheck::Common {
  BoxesByRank boxes;
  LocalStages stages{};
  std::map<int, Holdings> holdings{};
};

BudgetCheck::BudgetCheck(const batch::StepPlan& plan, const Plans& plans, i64 budget)
    : plan_(plan), plans_(plans), budget_(budget), common_(std::make_unique<Common>(Common{boxes_by_rank(plans)})) {}

BudgetCheck::~BudgetCheck() = default;

bool BudgetCheck::may_fit(const ir::Program& program) {
  return peak_of(program, Arrivals(program), suspect_).total <= budget_;
}

std::optional<MemoryPeak> BudgetCheck::peak_within(const ir::Program& program) {
  const Arrivals arrivals(program);
  MemoryPeak highest = peak_of(program, arrivals, suspect_);
  if (highest.total > budget_) return std::nullopt;
  const std::vector<int> first_like = EquivalenceClasses(program, plan_, plans_, common_->boxes, true).first_like();
  for (int rank = 0; rank < static_cast<int>(first_like.size()); ++rank) {
    if (rank == suspect_ || first_like[static_cast<size_t>(rank)] != rank) continue;
    const MemoryPeak peak = peak_of(program, arrivals, rank);
    if (peak.total > budget_) {
      suspect_ = rank;
      return std::nullopt;
    }
    if (peak.total > highest.total) highest = peak;
  }
  return highest;
}

MemoryPeak BudgetCheck::peak_of(const ir::Program& program, const Arrivals& arrivals, int rank) {
  const Holdings& holdings = common_->holdings.try_emplace(rank, plans_, common_->boxes, rank).first->second;
  ReplayedMemory worst = worst_peak(program, plan_, plans_, holdings, arrivals, common_->stages);
  phase_peaks_ = std::move(worst.by_phase);
  return worst.peak;
}

// In the worst order a rank has all parameters that the next phase prefetches while a phase computes, so each that is
// not prefetched makes the phase's peak so much lower. Without prefetch other things change, too.
int BudgetCheck::fewer_units(int units) const {
  const Holdings& holdings = common_->holdings.at(suspect_);
  const i64 element = size_of(plans_.graph().precision().compute);
  const auto bytes = [&](size_t phase, int unit) {
    i64 sum = 0;
    for (const WorkingGroup& group :
         holdings.working(plan_.phases[phase].strategy, plan_.phases[phase - 1].strategy, unit))
      if (group.source == WorkingGroup::Source::own) sum += allocated(group.elements * element);
    return sum;
  };
  std::vector<i64> peaks = phase_peaks_;
  for (units = std::min(units, static_cast<int>(plans_.units().size())); units > 1;) {
    const int all = std::exchange(units, units / 2);
    for (size_t phase = 1; phase < peaks.size(); ++phase)
      for (int unit = units; unit < all; ++unit) peaks[phase - 1] -= bytes(phase, unit);
    if (std::ranges::max(peaks) <= budget_) return units;
  }
  return 0;
}

std::pair<int, MemoryPeak> rank_with_highest_peak(const ir::Program& program, const batch::StepPlan& plan,
                                                  const Plans& plans) {
  const std::vector<MemoryPeak> peaks = predict_all(program, plan, plans, ExecutionOrder::worst);
  const auto highest = std::ranges::max_element(peaks, {}, &MemoryPeak::total);
  return {static_cast<int>(highest - peaks.begin()), *highest};
}

std::vector<i64> checkpoint_copies(const Plans& plans) {
  constexpr i64 kParts = 3;  // master, m, v
  std::vector<i64> bytes(static_cast<size_t>(plans.cluster().ranks()));
  for (const layout::ShardMap& owners : plans.owners())
    for (const layout::Shard& shard : owners.shards)
      bytes[static_cast<size_t>(shard.rank)] +=
          kParts * allocated(shard.box.elements() * size_of(plans.graph().precision().state));
  for (size_t rank = 0; rank < bytes.size(); ++rank)
    for (const Residual& residual : plans.residuals()[rank])
      bytes[rank] += allocated(residual.box.elements() * size_of(plans.graph().precision().state));
  return bytes;
}

ir::Program assemble_within(const batch::StepPlan& plan, const Plans& plans, bool prefetch,
                            const std::function<bool(const ir::Program&)>& fits, std::optional<ir::Program> first) {
  int units = prefetch ? static_cast<int>(plans.units().size()) : 0;
  if (first) {
    if (fits(*first) || units == 0) return *std::move(first);
    units /= 2;
  }
  StepAssembler assembler(plan, plans);
  const bool train = ir::is_differentiated(plans.graph());
  for (;; units /= 2) {
    ir::Program program = assembler.program({.prefetch_units = units, .train = train});
    if (fits(program) || units == 0) return program;
  }
}

ir::Program assemble_first(const batch::StepPlan& plan, const Plans& plans, bool prefetch) {
  return assemble_within(plan, plans, prefetch, [](const ir::Program&) { return true; });
}

std::string to_string(const MemoryPeak& peak) {
  std::vector<size_t> order(kMemoryClasses);
  for (size_t c = 0; c < order.size(); ++c) order[c] = c;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return peak.bytes[a] > peak.bytes[b]; });
  std::string text = format_bytes(Bytes{peak.total}) + ":";
  for (const size_t c : order)
    if (peak.bytes[c] > 0)
      text += fmt::format("{} {} {}", text.back() == ':' ? "" : ",", name_of(static_cast<MemoryClass>(c)),
                          format_bytes(Bytes{peak.bytes[c]}));
  return text;
}

}  // namespace switchyard::compiler
