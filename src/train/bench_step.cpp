#include "train/bench_step.hpp"

#include <algorithm>
#include <mutex>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "batch/planner.hpp"
#include "comm/measure.hpp"
#include "compiler/bucket_spec.hpp"
#include "train/bench_rank.hpp"
#include "train/rank.hpp"
#include "train/ranks.hpp"
#include "train/update_settings.hpp"
#include "train/weights.hpp"

namespace switchyard::train {
namespace {

// The same few tokens again and again, so that the loss falls and shows that the model trains.
runtime::Documents documents_of(const BenchStepSettings& s) {
  runtime::Documents documents(static_cast<size_t>(s.batch));
  for (size_t d = 0; d < documents.size(); ++d)
    for (i64 t = 0; t < s.seq; ++t)
      documents[d].push_back(static_cast<std::int32_t>((static_cast<i64>(d) * 7919 + t * 104729) % s.model.vocab_size));
  return documents;
}

}  // namespace

BenchStepResult bench_step(const BenchStepSettings& s) {
  config::validate(s.model);
  if (s.steps < 1 || s.seq < 1 || s.batch < 1) user_error("bench step: --steps, --seq and --batch must be 1 or more.");
  check_threads(s.ranks, 0);
  check_threads(1, s.threads);
  kernels::install_rank_allocator();
  BenchStepResult result;
  result.parameters = config::parameter_count(s.model);
  std::mutex mutex;
  on_ranks(s.ranks, {}, cluster::uniform(1, s.ranks), {}, [&](comm::Fabric& fabric) {
    kernels::RankMemory memory(kernels::machine_memory());
    const kernels::MemoryScope scope(&memory);
    const compiler::Plans plans = bench_plans(s.model, s.precision, {s.strategy}, fabric.cluster());
    const compiler::CompiledStrategy& strategy = plans.strategies()[0];
    batch::BucketSpec bucket = compiler::bucket_spec(plans, 0, s.seq);
    bucket.micro_batch_tokens =
        s.seq *
        std::max<i64>(1, s.batch / bucket.replicas / static_cast<i64>(strategy.strategy.groups[0].stages.size()));
    const std::vector<i64> lengths(static_cast<size_t>(s.batch), s.seq);
    const batch::StepPlan plan = batch::plan_batch(0, lengths, {&bucket, 1}, {1, 0});
    RankSettings settings;
    settings.threads = std::max(1, s.threads / s.ranks);
    settings.memory = &memory;
    Rank rank(plans, s.model, fabric, settings);
    rank.store().home.initialize(random_weights(plans.graph(), 1));
    const runtime::Documents documents = documents_of(s);
    for (int step = 0; step < s.steps; ++step) {
      const auto start = Clock::now();
      const runtime::StepResult done =
          rank.step(plan, documents, [&](double norm) { return update_settings({}, 1e-3, step + 1, norm); });
      if (fabric.rank() != 0) continue;
      result.losses.push_back(done.loss);
      result.seconds.push_back(seconds_since(start));
    }
    const std::lock_guard lock(mutex);
    result.peak_bytes = std::max(result.peak_bytes, memory.peak());
  });
  result.step_seconds = comm::median({result.seconds.begin() + (s.steps > 1 ? 1 : 0), result.seconds.end()});
  result.tokens_per_second = static_cast<double>(s.batch * s.seq) / result.step_seconds;
  return result;
}

}  // namespace switchyard::train
