#include "train/profile_compute.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <ranges>

#include "base/median.hpp"
#include "batch/planner.hpp"
#include "compiler/job_plans.hpp"
#include "kernels/matmul_rate.hpp"
#include "kernels/optimizer.hpp"
#include "runtime/device_order.hpp"
#include "runtime/tensors.hpp"
#include "train/bench_rank.hpp"
#include "train/rank.hpp"
#include "train/timed_calls.hpp"
#include "train/update_settings.hpp"
#include "train/weights.hpp"

namespace switchyard::train {
namespace {

// Rounds over all models, one step of each shape per round: shared machines are slow for seconds at a time. No round
// begins that would end later than in `seconds`, but for the first ones.
struct Effort {
  int most = 5, fewest = 1;
  double seconds = 75;
};
constexpr Effort kUsual, kQuick{.fewest = 2, .seconds = 10};
constexpr i64 kDocument = 256;  // tokens
constexpr i64 kFewRows = 1024;
constexpr i64 kHeadDim = 64, kNarrowHead = 16, kWideHead = 128;

// A step with micro-batches of `documents` documents of `length` tokens, on each rank.
struct Shape {
  i64 documents = 1, length = 0;
  bool operator==(const Shape&) const = default;
};
struct Subject {
  config::ModelConfig model;
  std::vector<Shape> shapes;
};

// Enough layers that caches don't hold their weights until the next micro-batch.
i64 layers_of(i64 hidden) { return std::clamp<i64>(1024 / hidden, 1, 4); }

// share: the share of the heads that a tensor-parallel rank has; ffn is the size on that rank.
config::ModelConfig llama(i64 hidden, i64 ffn, i64 vocab, i64 share = 1, i64 head_dim = kHeadDim) {
  config::ModelConfig m;
  m.hidden_size = hidden;
  m.layers = layers_of(hidden);
  m.head_dim = head_dim;
  m.heads = hidden / m.head_dim / share;
  m.kv_heads = std::max<i64>(1, m.heads / 2);
  m.ffn_size = ffn;
  m.vocab_size = vocab;
  return m;
}

config::ModelConfig gpt2(i64 hidden, i64 vocab, config::AttentionKind attention) {
  config::ModelConfig m = config::family_defaults(config::Family::gpt2);
  m.hidden_size = hidden;
  m.layers = 1;
  m.head_dim = kHeadDim;
  m.heads = m.kv_heads = hidden / m.head_dim;
  m.ffn_size = 4 * hidden;
  m.vocab_size = vocab;
  m.max_positions = 4 * kFewRows;
  m.attention = attention;
  if (attention == config::AttentionKind::unfused) m.dropout = 0.1;
  return m;
}

// Steps of so many tokens, of documents of kDocument tokens, and one of a document of `whole` tokens.
std::vector<Shape> steps_of(const std::vector<i64>& sizes, i64 whole = 0) {
  std::vector<Shape> shapes;
  for (const i64 tokens : sizes) shapes.push_back({std::max<i64>(1, tokens / kDocument), std::min(tokens, kDocument)});
  if (whole > 0) shapes.push_back({1, whole});
  return shapes;
}

// Hidden sizes a factor of about 1.4 apart, tokens a factor of 4; the products of a layer have different aspect ratios
// anyway. Attention is also measured with a whole packed sequence as one document, and with heads of another size: of
// head_dim features, or, where these are as wide as the others, many narrow ones.
std::vector<Subject> subjects_of_cpus(i64 head_dim) {
  const i64 other = head_dim == kHeadDim ? kNarrowHead : head_dim;
  const i64 hidden = std::max<i64>(2, 256 / other / 2 * 2) * other;  // an even number of heads
  return {{llama(64, 192, 512), steps_of({64, 256, 1024, 4096}, 4096)},
          {llama(hidden, 384, 512, 1, other), steps_of({256, 2048}, 2048)},
          {llama(128, 384, 2048), steps_of({64, 256, 1024, 4096}, 4096)},
          {llama(256, 704, 1024), steps_of({64, 256, 1024, 3072}, 2048)},
          {llama(384, 512, 8192), steps_of({64, 256, 1024})},
          {llama(512, 1408, 4096), steps_of({64, 256, 1024}, 2048)},
          {llama(768, 2048, 2048), steps_of({256, 1024})},
          {llama(1024, 2816, 2048), steps_of({64, 256, 512})},
          {llama(256, 384, 512, 2), steps_of({256, 1024})},
          {llama(512, 704, 2048, 2), steps_of({256, 1024})},
          {gpt2(256, 1024, config::AttentionKind::fused), steps_of({256, 2048}, 2048)},
          {gpt2(512, 1024, config::AttentionKind::unfused), steps_of({256, 1024}, 1024)}};
}

// A GPU takes as long for small work as for none, so that nothing follows from it for the sizes that are trained there.
std::vector<Subject> subjects_of_gpus(i64 head_dim) {
  const i64 wide = head_dim == kHeadDim ? kWideHead : head_dim;
  const i64 heads = std::max<i64>(2, 1024 / wide / 2 * 2);  // heads of the narrowest model
  return {{llama(heads * wide, 2816, 32768, 1, wide), steps_of({1024, 4096, 16384}, 16384)},
          {llama(2 * heads * wide, 5504, 8192, 1, wide), steps_of({1024, 4096, 16384}, 8192)},
          {llama(4 * heads * wide, 11008, 32768, 1, wide), steps_of({1024, 4096, 8192}, 4096)},
          {llama(8 * heads * wide, 4096, 1024, 4, wide), steps_of({4096})},
          {llama(512, 1408, 4096), steps_of({1024, 4096}, 4096)},
          {gpt2(1024, 4096, config::AttentionKind::fused), steps_of({1024, 4096, 16384}, 4096)},
          {gpt2(1024, 1024, config::AttentionKind::unfused), steps_of({1024}, 1024)}};
}

// The first models, with steps of few tokens.
std::vector<Subject> quick_subjects(std::vector<Subject> all, i64 few) {
  all.resize(3);
  for (Subject& subject : all) {
    std::vector<Shape> shapes;
    for (const Shape& shape : subject.shapes) {
      const Shape cut{std::min(shape.documents, few / kDocument), std::min(shape.length, few)};
      if (!std::ranges::count(shapes, cut)) shapes.push_back(cut);
    }
    subject.shapes = std::move(shapes);
  }
  return all;
}

std::vector<Subject> subjects(bool on_cpu, i64 head_dim, bool quick) {
  const std::vector<Subject> all = on_cpu ? subjects_of_cpus(head_dim) : subjects_of_gpus(head_dim);
  return quick ? quick_subjects(all, on_cpu ? kFewRows : 4 * kFewRows) : all;
}

std::vector<i64> elements_of_movers(bool on_cpu) {
  if (on_cpu) return {i64{1} << 12, i64{1} << 15, i64{1} << 18, i64{1} << 21, i64{1} << 23};
  return {i64{1} << 15, i64{1} << 18, i64{1} << 21, i64{1} << 24, i64{1} << 27};
}

// Work that keeps a device busy for some milliseconds, at the clock rate that it has in long steps, while the host
// issues operators. Nothing on a CPU.
class HeadStart {
 public:
  explicit HeadStart(const at::Device& device) {
    if (device.is_cpu()) return;
    const i64 size = device.is_cuda() ? 4096 : 16;
    factor_ = at::rand({size, size}, at::TensorOptions().dtype(at::kBFloat16).device(device));
    product_ = at::empty_like(factor_);
    runtime::wait_for_device(device);  // other streams read it
  }
  void give() {
    for (int i = 0; factor_.defined() && i < kProducts; ++i) at::mm_out(product_, factor_, factor_);
  }

 private:
  static constexpr int kProducts = 20;
  at::Tensor factor_, product_;
};

// A model and its steps. Memory of ranks is kept for the next round.
class ProfiledModel {
 public:
  ProfiledModel(const Subject& subject, comm::Fabric& fabric, Precision precision, const RankSettings& settings,
                HeadStart& head_start)
      : fabric_(fabric),
        plans_(bench_plans(subject.model, std::string(name_of(precision)), {fmt::format("{},1,1", fabric.size())},
                           fabric.cluster())),
        rank_(plans_, subject.model, fabric, settings),
        head_start_(head_start) {
    rank_.store().home.initialize(random_weights(plans_.graph(), 1));
    for (const Shape& shape : subject.shapes) steps_.push_back(step_of(shape, subject.model));
  }

  /// Runs a step of each shape, timed by `clock`. The first time is a warm-up.
  void run(SecondsClock clock) {
    for (Step& step : steps_) {
      size_t index = 0;
      const bool first = step.calls.empty();
      std::vector<double> issues;
      runtime::Probe probe{.clock = clock, .head_start = [&] { head_start_.give(); }};
      probe.timed = [&](const runtime::TimedCall& timed) {
        issues.push_back(timed.issue.count);
        if (&timed.micro_batch != &step.plan.phases[0].replica[static_cast<size_t>(fabric_.rank())].back()) return;
        if (first) step.calls.push_back(described(timed));
        Call& call = step.calls[index++];
        if (!first) call.rounds.push_back(timed.time.count);
      };
      rank_.step(
          step.plan, step.documents, [&](double) { return update_settings({.clip_norm = 0}, 1e-4, ++updates_, 0); },
          probe);
      if (!first) issues_.push_back(median(issues));  // some make the host wait
    }
  }

  /// Time in which the host issued an operator in each step.
  const std::vector<double>& issues() const { return issues_; }

  /// The calls of each step.
  CallsOfSteps calls() const {
    CallsOfSteps all;
    for (const Step& step : steps_) all.push_back(step.calls);
    return all;
  }

 private:
  struct Step {
    batch::StepPlan plan;
    runtime::Documents documents;
    std::vector<Call> calls;
  };

  // Short steps have two micro-batches, of which the second finds existing accumulators; in long ones the difference is
  // negligible.
  Step step_of(const Shape& shape, const config::ModelConfig& model) const {
    const i64 row = shape.length * shape.documents, micro_batches = row <= kFewRows ? 2 : 1;
    const std::vector<i64> lengths(static_cast<size_t>(micro_batches * shape.documents * fabric_.size()), shape.length);
    batch::BucketSpec bucket;
    bucket.max_length = shape.length;
    bucket.replicas = fabric_.size();
    bucket.micro_batch_tokens = row;
    Step step{batch::plan_batch(0, lengths, {&bucket, 1}, compiler::work_model(model)), {}, {}};
    for (const i64 length : lengths) {
      const i64 d = static_cast<i64>(step.documents.size());
      auto& tokens = step.documents.emplace_back(static_cast<size_t>(length));
      for (i64 i = 0; i < length; ++i)  // the rows of equal tokens would be added to one another
        tokens[static_cast<size_t>(i)] = static_cast<std::int32_t>((7919 * i + 31 * d) % model.vocab_size);
    }
    return step;
  }

  static Call described(const runtime::TimedCall& timed) {
    const ir::LocalWork local = ir::local_work(timed.stage, timed.instr, timed.position);
    Call call{.name = timed.instr.op->name(),
              .rows = static_cast<double>(batch::tokens(timed.micro_batch)) * local.share,
              .columns = local.columns,
              .work = local.work_per_row(),
              .seconds = timed.time.count};
    if (!local.by_documents()) return call;
    call.head_dim = local.cost.narrowest;
    if (local.cost.flops_per_pair > 0)
      call.attention_pairs = batch::attention_pairs(timed.micro_batch);
    else
      call.squared_lengths = static_cast<double>(batch::squared_lengths(timed.micro_batch));
    return call;
  }

  comm::Fabric& fabric_;
  const compiler::Plans plans_;
  Rank rank_;
  HeadStart& head_start_;
  std::vector<Step> steps_;
  std::vector<double> issues_;
  i64 updates_ = 0;
};

cluster::EfficiencyCurve mean_kept_speed(const CallsOfSteps& steps, MeasurementBarrier& barrier) {
  std::vector<CallsOfLength> by_length = calls_by_length(steps);
  std::vector<double> taken;
  for (const CallsOfLength& calls : by_length) taken.push_back(calls.taken);
  taken = barrier.mean(taken);
  for (size_t length = 0; length < taken.size(); ++length) by_length[length].taken = taken[length];
  return kept_speed(by_length);
}

// Sets each call's seconds to its minimum over all rounds and ranks, divided by the mean share of speed that calls of
// its length keep, which is returned: how much longer a single call takes is chance.
cluster::EfficiencyCurve settle(CallsOfSteps& steps, MeasurementBarrier& barrier) {
  const std::vector<double> least = barrier.least(least_of(steps));
  auto next = least.begin();
  for (Call& call : std::views::join(steps)) call.seconds = *next++;
  cluster::EfficiencyCurve kept = mean_kept_speed(steps, barrier);
  for (Call& call : std::views::join(steps)) call.seconds /= kept.at(call.seconds);
  return kept;
}

// Work of a step besides operators, by elements.
class Movers {
 public:
  Movers(MeasurementBarrier& barrier, DType type, const at::Device& device)
      : barrier_(barrier), device_(device), size_(static_cast<double>(size_of(type))) {
    for (const i64 elements : elements_of_movers(device.is_cpu())) {
      const auto made = [&] {
        return at::rand({elements}, at::TensorOptions().dtype(runtime::scalar_type(type)).device(device));
      };
      at::Tensor a = made(), b = made(), c = made(), none;
      const at::Tensor grad = made();
      add("adamw", elements, 8, [=]() mutable { kernels::adamw(a, b, c, none, grad, {}, 1); });
      at::Tensor total = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(device));
      add("sum_of_squares", elements, 1, [=]() mutable { kernels::add_sum_of_squares(total, grad); });
      add("zero", elements, 1, [=] { a.zero_(); });
      add("copy", elements, 2, [=] { a.copy_(grad); });
      add("add", elements, 3, [=] { a.add_(grad); });
    }
  }

  void run(SecondsClock clock) {
    for (Mover& mover : movers_) {
      const auto done = [&] {
        mover.work();
        runtime::wait_for_stream(device_);
      };
      mover.least = std::min(mover.least, barrier_.least_of(done, clock));
    }
  }
  void add_to(std::map<std::string, cluster::OperatorTable>& tables, const cluster::EfficiencyCurve& kept) const {
    for (const Mover& mover : movers_)
      tables[mover.name].calls.push_back(
          {.rows = mover.elements, .columns = 1, .work = mover.bytes, .seconds = mover.least / kept.at(mover.least)});
  }

 private:
  struct Mover {
    std::string name;
    double elements = 0, bytes = 0;  // bytes: read and written per element
    std::function<void()> work;
    double least = std::numeric_limits<double>::infinity();
  };
  void add(const char* name, i64 elements, int times, std::function<void()> work) {
    movers_.push_back(
        {.name = name, .elements = static_cast<double>(elements), .bytes = times * size_, .work = std::move(work)});
  }

  MeasurementBarrier& barrier_;
  const at::Device device_;
  const double size_;
  std::vector<Mover> movers_;
};

}  // namespace

OperatorProfile profile_operators(MeasurementBarrier& barrier, Precision precision, const RankSettings& settings,
                                  SecondsClock clock, i64 head_dim, bool quick,
                                  const std::function<void(double share)>& on_progress) {
  OperatorProfile profile;
  const std::vector<Subject> all = subjects(settings.device.is_cpu(), head_dim, quick);
  HeadStart head_start(settings.device);
  std::vector<std::unique_ptr<ProfiledModel>> models;
  for (const Subject& subject : all)
    models.push_back(std::make_unique<ProfiledModel>(subject, barrier.fabric(), precision, settings, head_start));
  Movers movers(barrier, precision.state, settings.device);
  const auto products = [&] {
    return kernels::matmul_rate(runtime::scalar_type(precision.compute), settings.device, Seconds{0.05}, clock).count;
  };
  std::vector<double> rates, of_rounds, alone;
  const auto start = Clock::now();
  const auto passed = [&] { return barrier.mean({seconds_since(start)})[0]; };
  const Effort effort = quick ? kQuick : kUsual;
  for (int round = 0; round <= effort.most; ++round) {  // the first one warms up
    if (round > effort.fewest && passed() > effort.seconds * round / (round + 1)) break;
    for (size_t m = 0; m < models.size(); ++m) {
      models[m]->run(clock);
      rates.push_back(products());
      alone.push_back(barrier.alone(static_cast<int>(m), products));
      const double done = round + static_cast<double>(m + 1) / static_cast<double>(all.size());
      on_progress(std::min(1.0, std::max(done / (effort.most + 1), seconds_since(start) / effort.seconds)));
    }
    if (round > 0) movers.run(clock);
    of_rounds.push_back(median(std::vector(rates.end() - std::ssize(models), rates.end())));
  }
  on_progress(1);  // also where the time for further rounds is up
  CallsOfSteps steps;
  std::vector<double> issues;
  for (const auto& model : models) {
    for (std::vector<Call>& calls : model->calls()) steps.push_back(std::move(calls));
    issues.insert(issues.end(), model->issues().begin(), model->issues().end());
  }
  profile.host_launch = {barrier.mean({median(issues)})[0]};
  const cluster::EfficiencyCurve kept = settle(steps, barrier);
  profile.matmul = {barrier.mean({median(rates)})[0]};
  of_rounds = barrier.mean(of_rounds);
  profile.speed_change = std::ranges::max(of_rounds) / std::ranges::min(of_rounds) - 1;
  profile.alone_speedup = std::max(1.0, median(alone) / profile.matmul.count);
  profile.tables = tables_of(steps);
  movers.add_to(profile.tables, kept);
  return profile;
}

}  // namespace switchyard::train
