#include "train/rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/errors.hpp"
#include "base/units.hpp"
#include "comm/collectives.hpp"
#include "compiler/documents_read.hpp"
#include "ir/autodiff.hpp"
#include "kernels/threads.hpp"
#include "train/channels.hpp"

namespace switchyard::train {
namespace {

runtime::ExecutorOptions executor_options(const config::ModelConfig& model, const RankSettings& settings) {
  runtime::ExecutorOptions options;
  options.threads = settings.threads;
  options.device = settings.device;
  options.seed = settings.seed;
  options.rope_theta = model.rope_theta;
  options.rope_scaling = model.rope_scaling;
  options.memory = settings.memory;
  return options;
}

void require_equal(const std::vector<std::uint64_t>& numbers, const std::string& what, std::string_view remedy) {
  std::vector<int> others;
  for (size_t rank = 1; rank < numbers.size(); ++rank)
    if (numbers[rank] != numbers[0]) others.push_back(static_cast<int>(rank));
  if (!others.empty()) cluster_error("ranks {} have another {} than rank 0. {}", others, what, remedy);
}

// The message of a rank to the others about its program.
struct Proposal {
  std::uint64_t fingerprint = 0;
  compiler::MemoryPeak peak;  // at the worst pace
};

// Advice for less memory in a run under this strategy; null: for less than a rank holds in any case.
std::string ways_to_save(const config::Strategy* strategy, bool trains) {
  if (strategy == nullptr) return trains ? " or use more ranks" : " or divide the weights over more ranks";
  std::string text;
  // Without a size of their own micro-batches are as small as the longest document lets them be.
  if (strategy->micro_batch_tokens > 0 || strategy->micro_batch_sequences > 0)
    text += " set a smaller micro_batch_tokens,";
  if (trains && strategy->recompute != config::Recompute::full) text += " set recompute = \"full\",";
  return text + " or give the strategy's bucket more ranks per replica";
}

[[noreturn]] void over_budget(const batch::StepPlan& plan, const compiler::Plans& plans, const ir::Program& program,
                              int rank, const compiler::MemoryPeak& peak, const RankSettings& settings) {
  const int phase = peak.task < 0 ? -1 : program.tasks[static_cast<size_t>(peak.task)].phase;
  const config::Strategy* strategy =
      phase < 0 ? nullptr
                : &plans.strategies()[static_cast<size_t>(plan.phases[static_cast<size_t>(phase)].strategy)].strategy;
  const std::string budget = format_bytes(Bytes{settings.memory_budget});
  const bool trains = ir::is_differentiated(plans.graph());
  user_error("{}: rank {} needs {}{}, {} more than the memory budget. Most of it: {}. In all {}. Raise {},{}.",
             trains ? fmt::format("step {}", plan.step + 1) : settings.forward, rank, format_bytes(Bytes{peak.total}),
             strategy == nullptr ? "" : fmt::format(" under strategy \"{}\"", strategy->name),
             format_bytes(Bytes{peak.total - settings.memory_budget}), compiler::name_of(peak.largest()),
             compiler::to_string(peak),
             settings.emulated.empty()
                 ? fmt::format("run.memory_budget = \"{}\"", budget)
                 : fmt::format("the memory of run.emulate = \"{}\" ({} a device)", settings.emulated, budget),
             ways_to_save(strategy, trains));
}

// Home must fit before the store is made.
RankSettings with_room_for_home(RankSettings settings, const compiler::Plans& plans, int rank) {
  const ir::Program nothing{{}, std::vector<std::vector<int>>(static_cast<size_t>(plans.cluster().ranks()))};
  const compiler::MemoryPeak home = compiler::predict_memory(nothing, {}, plans, compiler::Holdings(plans, rank));
  if (settings.memory_budget > 0 && home.total > settings.memory_budget)
    over_budget({}, plans, nothing, rank, home, settings);
  return settings;
}

}  // namespace

RankSettings rank_settings_of(const config::Job& job, const std::optional<cluster::Hardware>& emulated) {
  RankSettings settings;
  settings.threads = job.run.emulate.empty() ? job.run.threads : 1;
  settings.memory_budget = job.run.memory_budget.count;
  if (emulated && settings.memory_budget == emulated->device.usable().count) settings.emulated = job.run.emulate;
  settings.prefetch = job.run.prefetch;
  settings.seed = static_cast<std::uint64_t>(job.seed);
  return settings;
}

i64 memory_of(const config::Job& job) {
  return job.run.memory_budget.count > 0 ? job.run.memory_budget.count : kernels::machine_memory();
}

void require_room(const ir::Program& program, const batch::StepPlan& plan, const compiler::Plans& plans,
                  const RankSettings& settings) {
  const std::vector<compiler::MemoryPeak> peaks =
      compiler::predict_all(program, plan, plans, compiler::ExecutionOrder::worst);
  const auto highest = std::ranges::max_element(peaks, {}, &compiler::MemoryPeak::total);
  if (highest->total > settings.memory_budget)
    over_budget(plan, plans, program, static_cast<int>(highest - peaks.begin()), *highest, settings);
}

Rank::Rank(const compiler::Plans& plans, const config::ModelConfig& model, comm::Fabric& fabric, RankSettings settings)
    : plans_(plans),
      fabric_(fabric),
      settings_(with_room_for_home(std::move(settings), plans, fabric.rank())),
      store_(plans, fabric.rank(), settings_.device),
      executor_(plans, store_, fabric, executor_options(model, settings_)) {
  kernels::set_up_compute_thread(settings_.threads);
}

template <class T>
std::vector<T> Rank::everyones(const std::string& what, const T& mine) {
  return comm::all_gather_values(fabric_, comm::everyone(fabric_, kAgreementChannel), "agreement on the " + what,
                                 ++agreements_, mine);
}

void Rank::agree_on(std::uint64_t number, const std::string& what, std::string_view remedy) {
  require_equal(everyones(what, number), what, remedy);
}

Rank::Peaks Rank::peaks_of(const ir::Program& program, const batch::StepPlan& plan,
                           const compiler::Plans& plans) const {
  const auto peak = [&](compiler::ExecutionOrder order) {
    return compiler::predict_memory(program, plan, plans, store_.holdings, order);
  };
  return {peak(compiler::ExecutionOrder::expected), peak(compiler::ExecutionOrder::worst)};
}

void Rank::assemble_ahead(const batch::StepPlan& plan) {
  step_ahead_ = plan.step;
  ahead_ = std::async(std::launch::async, [this, plan] {
    Draft draft{.program = compiler::assemble_first(plan, plans_, settings_.prefetch), .peaks = {}};
    draft.peaks = peaks_of(draft.program, plan, plans_);
    return draft;
  });
}

void Rank::assemble(const batch::StepPlan& plan, const compiler::Plans& plans) {
  // Not earlier: what is measured before the first step takes memory, too. Ranks that share a device agree on the
  // program below, so that all of their budgets count before any of them computes.
  if (!budget_) budget_.emplace(settings_.device, settings_.memory_budget);
  assembled_ = &plans;
  std::optional<ir::Program> first;
  std::optional<Peaks> known;
  if (ahead_.valid() && step_ahead_ == plan.step && &plans == &plans_) {
    Draft draft = ahead_.get();
    first = std::move(draft.program);
    known = draft.peaks;
  }
  int highest = 0;
  compiler::MemoryPeak peak;
  bool fits = true;
  program_ = compiler::assemble_within(
      plan, plans, settings_.prefetch,
      [&](const ir::Program& program) {
        const Peaks peaks = known ? *std::exchange(known, std::nullopt) : peaks_of(program, plan, plans);
        predicted_ = peaks.predicted;
        bound_ = peaks.bound;
        const auto all = everyones("program", Proposal{program.fingerprint(), bound_});
        std::vector<std::uint64_t> fingerprints;
        for (const Proposal& proposal : all) fingerprints.push_back(proposal.fingerprint);
        require_equal(fingerprints, "program", kSameStart);
        const auto top = std::max_element(all.begin(), all.end(),
                                          [](const auto& a, const auto& b) { return a.peak.total < b.peak.total; });
        highest = static_cast<int>(top - all.begin());
        peak = top->peak;
        fits = settings_.memory_budget == 0 || peak.total <= settings_.memory_budget;
        return fits;
      },
      std::move(first));
  if (!fits) over_budget(plan, plans, program_, highest, peak, settings_);
}

runtime::StepResult Rank::step(const batch::StepPlan& plan, const runtime::Documents& documents,
                               const std::function<runtime::UpdateSettings(double)>& update,
                               const runtime::Probe& probe) {
  assemble(plan);
  return run(plan, documents, update, probe);
}

std::vector<bool> Rank::documents_read(const batch::StepPlan& plan, size_t documents) const {
  return compiler::documents_read(program_, plan, *assembled_, fabric_.rank(), documents);
}

runtime::StepResult Rank::run(const batch::StepPlan& plan, const runtime::Documents& documents,
                              const std::function<runtime::UpdateSettings(double)>& update, const runtime::Probe& probe,
                              const runtime::Labels& labels) {
  return executor_.run(program_, {.plan = &plan,
                                  .documents = &documents,
                                  .update = update,
                                  .probe = probe,
                                  .labels = &labels,
                                  .plans = assembled_});
}

std::vector<runtime::Logits> Rank::evaluate(const batch::StepPlan& plan, const runtime::Documents& documents) {
  assemble(plan);
  run(plan, documents, {});
  return executor_.take_logits();
}

}  // namespace switchyard::train
