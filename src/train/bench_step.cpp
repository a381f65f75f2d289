#include "train/bench_step.hpp"

#include <algorithm>
#include <charconv>
#include <mutex>
#include <numeric>
#include <string_view>
#include <system_error>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/median.hpp"
#include "batch/planner.hpp"
#include "compiler/bucket_spec.hpp"
#include "compiler/job_plans.hpp"
#include "kernels/device_memory.hpp"
#include "kernels/matmul_rate.hpp"
#include "runtime/device_order.hpp"
#include "runtime/tensors.hpp"
#include "train/bench_rank.hpp"
#include "train/host_share.hpp"
#include "train/rank.hpp"
#include "train/ranks.hpp"
#include "train/update_settings.hpp"
#include "train/weights.hpp"

namespace switchyard::train {
namespace {

constexpr i64 kMostDocuments = 1 << 20, kMostTokens = 1 << 24;  // in a step, in a document
constexpr i64 kMostTokensOfAStep = 1 << 28;

// The same few tokens again and again, so that the loss falls and shows that the model trains.
runtime::Documents documents_of(const std::vector<i64>& lengths, i64 vocabulary) {
  runtime::Documents documents(lengths.size());
  for (size_t d = 0; d < documents.size(); ++d)
    for (i64 t = 0; t < lengths[d]; ++t)
      documents[d].push_back(static_cast<std::int32_t>((static_cast<i64>(d) * 7919 + t * 104729) % vocabulary));
  return documents;
}

std::vector<i64> lengths_of_step(const BenchStepSettings& s) {
  return s.lengths.empty() ? std::vector<i64>(static_cast<size_t>(s.batch), s.seq) : s.lengths;
}

// Documents of equal length: as many as fill the pipelines once.
i64 micro_batch_of(const BenchStepSettings& s, i64 longest, i64 pipelines, i64 stages) {
  if (s.micro_batch > 0) return s.micro_batch;
  return s.lengths.empty() ? longest * std::max<i64>(1, s.batch / pipelines / stages) : longest;
}

[[noreturn]] void wrong_lengths(const std::string& text) {
  user_error(
      "bench step: --lengths {} can't be read. Give lengths of documents in tokens, with their number if there are "
      "several, such as 4096,512x8; up to {} documents of up to {} tokens.",
      text, kMostDocuments, kMostTokens);
}

[[noreturn]] void too_many_tokens() {
  user_error("bench step: more than {} tokens a step. Give fewer or shorter documents.", kMostTokensOfAStep);
}

// One of the numbers in a list of lengths.
i64 number_in(std::string_view digits, i64 most, const std::string& text) {
  i64 number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 1 || number > most) wrong_lengths(text);
  return number;
}

}  // namespace

std::vector<i64> lengths_of(const std::string& text) {
  std::vector<i64> lengths;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const size_t times = item.find('x');
    const i64 count = times == item.npos ? 1 : number_in(item.substr(times + 1), kMostDocuments, text);
    if (std::ssize(lengths) + count > kMostDocuments) wrong_lengths(text);
    lengths.insert(lengths.end(), static_cast<size_t>(count), number_in(item.substr(0, times), kMostTokens, text));
    if (comma == rest.npos) return lengths;
    rest.remove_prefix(comma + 1);
  }
}

BenchStepResult bench_step(const BenchStepSettings& s) {
  config::validate(s.model);
  if (s.steps < 1 || s.seq < 1 || s.batch < 1) user_error("bench step: --steps, --seq and --batch must be 1 or more.");
  if (s.lengths.empty() && s.batch > kMostTokensOfAStep / s.seq) too_many_tokens();
  const std::vector<i64> lengths = lengths_of_step(s);
  const i64 longest = std::ranges::max(lengths), tokens = std::accumulate(lengths.begin(), lengths.end(), i64{0});
  if (tokens > kMostTokensOfAStep) too_many_tokens();
  if (s.micro_batch != 0 && s.micro_batch < longest)
    user_error("bench step: --micro-batch {} is shorter than a document of {} tokens.", s.micro_batch, longest);
  check_threads(s.ranks, 0);
  check_threads(1, s.threads);
  require_device(s.device);
  kernels::install_rank_allocator();
  BenchStepResult result;
  result.parameters = config::parameter_count(s.model);
  const batch::WorkModel work = compiler::work_model(s.model);
  double matmul_rate = 0;
  std::mutex mutex;
  on_ranks(s.ranks, {}, cluster::uniform(1, s.ranks), {}, [&](comm::Fabric& fabric) {
    kernels::RankMemory memory(kernels::machine_memory());
    const kernels::MemoryScope scope(&memory);
    const compiler::Plans plans = bench_plans(s.model, s.precision, {s.strategy}, fabric.cluster(), s.device);
    const compiler::CompiledStrategy& strategy = plans.strategies()[0];
    batch::BucketSpec bucket = compiler::bucket_spec(plans, 0, longest);
    bucket.micro_batch_tokens =
        micro_batch_of(s, longest, bucket.replicas, std::ssize(strategy.strategy.groups[0].stages));
    const batch::StepPlan plan = batch::plan_batch(0, lengths, {&bucket, 1}, {work.linear, work.quadratic});
    RankSettings settings;
    settings.threads = std::max(1, s.threads / s.ranks);
    settings.memory = &memory;
    settings = with_host_share(settings, fabric, s.device, true);
    Rank rank(plans, s.model, fabric, settings);
    rank.store().home.initialize(random_weights(plans.graph(), 1));
    const double rate =
        kernels::matmul_rate(runtime::scalar_type(plans.graph().precision().compute), settings.device, Seconds{0.02})
            .count;
    const runtime::Documents documents = documents_of(lengths, s.model.vocab_size);
    if (!settings.device.is_cpu()) kernels::reset_device_peak(settings.device);
    for (int step = 0; step < s.steps; ++step) {
      const auto start = Clock::now();
      const runtime::StepResult done =
          rank.step(plan, documents, [&](double norm) { return update_settings({}, 1e-3, step + 1, norm); });
      runtime::wait_for_device(settings.device);
      if (fabric.rank() != 0) continue;
      result.losses.push_back(done.loss);
      result.seconds.push_back(seconds_since(start));
    }
    const std::lock_guard lock(mutex);
    result.peak_bytes = std::max(result.peak_bytes, kernels::rank_peak(memory, settings.device));
    matmul_rate += rate;
  });
  result.step_seconds = median({result.seconds.begin() + (s.steps > 1 ? 1 : 0), result.seconds.end()});
  result.tokens_per_second = static_cast<double>(tokens) / result.step_seconds;
  result.matmul_share = compiler::step_flops(work, lengths) / (result.step_seconds * matmul_rate);
  return result;
}

}  // namespace switchyard::train
