#include "train/rank.hpp"

#include <cstring>
#include <numeric>

#include "base/errors.hpp"
#include "comm/collectives.hpp"

namespace switchyard::train {
namespace {

constexpr int kAgreementChannel = 1;

runtime::ExecutorOptions executor_options(const config::ModelConfig& model, const RankSettings& settings) {
  runtime::ExecutorOptions options;
  options.threads = settings.threads;
  options.device = settings.device;
  options.rope_theta = model.rope_theta;
  const config::RopeScaling& s = model.rope_scaling;
  options.rope_scaling = {s.factor, s.low_freq_factor, s.high_freq_factor, s.original_context};
  options.begin_stream = settings.begin_stream;
  return options;
}

}  // namespace

void agree_on(comm::Fabric& fabric, std::uint64_t number, const std::string& what, i64 row) {
  std::vector<int> everyone(static_cast<size_t>(fabric.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto bytes = std::as_bytes(std::span(&number, 1));
  const auto all = comm::all_gather_blobs(fabric, {kAgreementChannel, everyone}, "agreement on the " + what, row, bytes);
  std::vector<int> others;
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0]) others.push_back(static_cast<int>(rank));
  if (!others.empty())
    cluster_error("ranks {} have another {} than rank 0. Start all ranks with the same job file and program.", others, what);
}

Rank::Rank(const compiler::Plans& plans, const config::ModelConfig& model, comm::Fabric& fabric, RankSettings settings)
    : plans_(plans),
      fabric_(fabric),
      settings_(std::move(settings)),
      store_(plans, fabric.rank(), settings_.device),
      executor_(plans, store_, fabric, executor_options(model, settings_)) {}

void Rank::agree(const ir::Program& program) { agree_on(fabric_, program.fingerprint(), "program", ++agreements_); }

runtime::StepResult Rank::step(const batch::StepPlan& plan, const runtime::Documents& documents,
                               const std::function<runtime::UpdateSettings(double)>& update) {
  program_ = compiler::assemble(plan, plans_, {.prefetch = settings_.prefetch, .train = true});
  agree(program_);
  return executor_.run(program_, {&plan, &documents, update});
}

std::vector<runtime::Logits> Rank::evaluate(const batch::StepPlan& plan, const runtime::Documents& documents) {
  program_ = compiler::assemble(plan, plans_, {.prefetch = settings_.prefetch, .train = false});
  agree(program_);
  executor_.run(program_, {&plan, &documents, {}});
  return executor_.take_logits();
}

}  // namespace switchyard::train
