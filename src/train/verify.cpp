#include "train/verify.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/errors.hpp"
#include "batch/planner.hpp"
#include "comm/collectives.hpp"
#include "compiler/bucket_spec.hpp"
#include "files/hf_config.hpp"
#include "ir/autodiff.hpp"
#include "models/build.hpp"
#include "runtime/tensors.hpp"
#include "train/channels.hpp"
#include "train/rank.hpp"
#include "train/ranks.hpp"
#include "train/update_settings.hpp"
#include "train/verify_folder.hpp"
#include "train/weights.hpp"

namespace switchyard::train {
namespace {

constexpr int kSteps = kVerifiedSteps;

// Buckets by length: one per strategy, longest first, with about equal numbers of documents.
std::vector<batch::BucketSpec> buckets_for(const VerifyFolder& fixture, const compiler::Plans& plans) {
  std::vector<i64> sorted = fixture.lengths;
  std::sort(sorted.rbegin(), sorted.rend());
  std::vector<batch::BucketSpec> buckets;
  const size_t count = plans.strategies().size();
  for (size_t s = 0; s < count; ++s) {
    const i64 bound = sorted.at(s * sorted.size() / count);
    if (!buckets.empty() && buckets.back().max_length <= bound)
      user_error("{} strategies are too many for {} documents. Give at most one per length.", count, sorted.size());
    buckets.push_back(compiler::bucket_spec(plans, static_cast<int>(s), bound));
  }
  return buckets;
}

void append(std::vector<std::byte>& bytes, const void* data, size_t n) {
  const auto* first = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), first, first + n);
}

template <class T>
T take(std::span<const std::byte>& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return value;
}

void append_tensor(std::vector<std::byte>& bytes, const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU, at::kDouble).contiguous();
  append(bytes, host.data_ptr(), static_cast<size_t>(host.numel()) * sizeof(double));
}

// One part of home (master weights or gradients) as whole tensors, on every rank.
std::vector<at::Tensor> gather_home(Rank& rank, const compiler::Plans& plans, comm::Fabric& fabric, bool gradients,
                                    i64 number) {
  std::vector<std::byte> mine;
  for (const runtime::HomeUnit& unit : rank.store().home.units())
    for (const runtime::HomeShard& shard : unit.shards) {
      append(mine, &shard.param, sizeof shard.param);
      append(mine, &shard.box, sizeof shard.box);
      append_tensor(mine, gradients ? shard.grad : shard.master);
    }
  std::vector<at::Tensor> whole;
  for (const ir::Param& param : plans.graph().params()) whole.push_back(at::zeros(param.shape.size, at::kDouble));
  for (const auto& blob :
       comm::all_gather_blobs(fabric, comm::everyone(fabric, kVerificationChannel), "home tensors", number, mine)) {
    std::span<const std::byte> bytes = blob;
    while (!bytes.empty()) {
      const int param = take<int>(bytes);
      const auto box = take<layout::Box>(bytes);
      const at::Tensor view = runtime::view_of(whole[static_cast<size_t>(param)],
                                               layout::whole(plans.graph().param(param).shape.size), box);
      at::Tensor values = at::zeros(view.sizes(), at::kDouble);
      const size_t n = static_cast<size_t>(box.elements()) * sizeof(double);
      std::memcpy(values.data_ptr(), bytes.data(), n);
      bytes = bytes.subspan(n);
      view.copy_(values);
    }
  }
  return whole;
}

class Comparison {
 public:
  Comparison(const VerifyFolder& fixture, const ir::Graph& graph, VerifyResult& result)
      : fixture_(fixture), graph_(graph), result_(result) {}

  void loss(int step, double loss, double norm) {
    const auto expected_loss = fixture_.expected("train.loss"), expected_norm = fixture_.expected("train.grad_norm");
    const size_t s = static_cast<size_t>(step);
    if (step == 0) result_.loss_error = relative(loss, fixture_.expected("loss")[0]);
    const double expected = step < kSteps ? expected_loss.at(s) : fixture_.expected("train.final_loss")[0];
    result_.adamw_loss_max_error = worst(result_.adamw_loss_max_error, relative(loss, expected));
    if (step < kSteps)
      result_.adamw_loss_max_error = worst(result_.adamw_loss_max_error, relative(norm, expected_norm.at(s)));
  }

  // The difference of each parameter's gradient from its part of the file's tensor, as a share of the global norm.
  void gradients(const std::vector<at::Tensor>& ours) {
    const double norm = fixture_.expected("grad_norm")[0];
    for (size_t p = 0; p < ours.size(); ++p) {
      const ir::Param& param = graph_.param(static_cast<int>(p));
      const std::string name = "grad." + param.file.name;
      const auto values = fixture_.expected(name);
      at::Tensor expected = at::zeros(fixture_.shape(name), at::kDouble);
      std::memcpy(expected.data_ptr(), values.data(), values.size() * sizeof(double));
      if (param.file.transposed) expected = expected.t();
      const at::Tensor difference = ours[p].sub(expected.narrow(0, param.file.first, param.shape.size[0]));
      result_.gradient_max_error = worst(result_.gradient_max_error, difference.norm().item<double>() / norm);
    }
  }

  // Sums over the file's tensors; parts of a packed tensor count together, except the keys' bias, whose gradient is
  // zero but for rounding errors, which Adam turns into steps.
  void parameters(const std::vector<at::Tensor>& ours) {
    std::map<std::string, std::array<double, 3>> sums;  // sum, sum of squares, elements
    for (size_t p = 0; p < ours.size(); ++p) {
      const ir::Param& param = graph_.param(static_cast<int>(p));
      const double sum = ours[p].sum().item<double>(), squares = ours[p].square().sum().item<double>();
      const i64 rows = param.shape.size[0];
      const std::string packed = "train.final_sum_qkv." + param.file.name;
      if (fixture_.has(packed)) {
        const size_t part = static_cast<size_t>(param.file.first / rows);
        if (part == 1) continue;
        compare(sum, fixture_.expected(packed)[part], squares,
                fixture_.expected("train.final_sumsq_qkv." + param.file.name)[part], static_cast<double>(rows));
        continue;
      }
      auto& entry = sums[param.file.name];
      entry[0] += sum;
      entry[1] += squares;
      entry[2] += static_cast<double>(ours[p].numel());
    }
    for (const auto& [name, entry] : sums)
      compare(entry[0], fixture_.expected("train.final_sum." + name)[0], entry[1],
              fixture_.expected("train.final_sumsq." + name)[0], entry[2]);
  }

  void logits(const std::vector<std::vector<std::byte>>& blobs, const batch::StepPlan& plan) {
    const auto expected = fixture_.expected("logits");
    const i64 V = fixture_.shape("logits")[1];
    double largest = 0, difference = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    std::vector<bool> seen(expected.size(), false);
    for (const auto& blob : blobs) {
      std::span<const std::byte> bytes = blob;
      while (!bytes.empty()) {
        const int phase = take<int>(bytes), replica = take<int>(bytes), mb = take<int>(bytes), ring = take<int>(bytes);
        const i64 first_token = take<i64>(bytes), first_column = take<i64>(bytes), tokens = take<i64>(bytes),
                  columns = take<i64>(bytes);
        i64 token = 0;
        for (const batch::Piece& piece : plan.phases.at(static_cast<size_t>(phase))
                                             .replica.at(static_cast<size_t>(replica))
                                             .at(static_cast<size_t>(mb))
                                             .shard.at(static_cast<size_t>(ring))) {
          for (int i = 0; i < piece.count; ++i, ++token) {
            const i64 row = token - first_token;
            if (piece.doc < 0 || row < 0 || row >= tokens) continue;
            for (i64 c = 0; c < columns; ++c) {
              double value;
              std::memcpy(&value, bytes.data() + static_cast<size_t>((row * columns + c)) * sizeof(double),
                          sizeof value);
              const size_t place = static_cast<size_t>(
                  (fixture_.starts[static_cast<size_t>(piece.doc)] + piece.first + i) * V + first_column + c);
              difference = worst(difference, std::abs(value - expected.at(place)));
              seen[place] = true;
            }
          }
        }
        bytes = bytes.subspan(static_cast<size_t>(tokens * columns) * sizeof(double));
      }
    }
    check(std::all_of(seen.begin(), seen.end(), [](bool s) { return s; }), "verify: some logits were not computed");
    result_.logits_max_error = difference / std::max(1.0, largest);
  }

 private:
  static double relative(double a, double b) { return std::abs(a - b) / std::abs(b); }
  // The maximum; NaN counts as infinite.
  static double worst(double a, double b) {
    return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::infinity() : std::max(a, b);
  }
  void compare(double sum, double expected_sum, double squares, double expected_squares, double elements) {
    const double error = worst(std::abs(sum - expected_sum) / elements,
                               expected_squares > 0 ? relative(squares, expected_squares) : std::abs(squares));
    result_.adamw_parameter_max_error = worst(result_.adamw_parameter_max_error, error);
  }

  const VerifyFolder& fixture_;
  const ir::Graph& graph_;
  VerifyResult& result_;
};

std::vector<config::Strategy> strategies_of(const VerifySettings& settings, const config::ModelConfig& model,
                                            int* ranks) {
  const std::vector<std::string> specs =
      settings.strategies.empty() ? std::vector<std::string>{"1,1,1"} : settings.strategies;
  std::vector<config::Strategy> strategies;
  for (const std::string& spec : specs) {
    constexpr int kMany = 1 << 20;
    const config::Strategy strategy =
        config::strategy_from_spec(spec, settings.ranks > 0 ? settings.ranks : kMany, model.layers);
    *ranks = std::max(*ranks, strategy.ranks().back() + 1);
    strategies.push_back(strategy);
  }
  if (settings.ranks > 0) *ranks = settings.ranks;
  for (const config::Strategy& strategy : strategies) config::validate(strategy, model, *ranks);
  return strategies;
}

struct Limits {
  double logits, loss, gradient, adamw_loss, adamw_parameter;
};
Limits limits_of(Precision precision) {
  if (precision.compute == DType::f64)
    return {.logits = 1e-9, .loss = 1e-9, .gradient = 1e-9, .adamw_loss = 1e-9, .adamw_parameter = 1e-9};
  if (precision.compute == DType::f32)
    return {.logits = 1e-4, .loss = 1e-5, .gradient = 1e-4, .adamw_loss = 1e-4, .adamw_parameter = 2e-5};
  return {.logits = 5e-2, .loss = 1e-2, .gradient = 5e-2, .adamw_loss = 2e-2, .adamw_parameter = 1e-2};
}

}  // namespace

VerifyResult verify(const VerifySettings& settings, const comm::Launch& launch) {
  const config::ModelConfig model = files::read_hf_config(settings.folder);
  const VerifyFolder fixture(settings.folder, model, models::build(model, settings.precision, models::Output::loss));
  int ranks = 0;
  const std::vector<config::Strategy> strategies = strategies_of(settings, model, &ranks);
  if (launch.distributed && settings.ranks == 0) ranks = launch.size;
  check_threads(launch.distributed ? 1 : ranks, 0);
  const cluster::Cluster local = cluster::uniform(1, ranks);

  VerifyResult result;
  result.ranks = ranks;
  on_ranks(ranks, launch, local, fabric_options({}), [&](comm::Fabric& fabric) {
    ir::Graph trained = models::build(model, settings.precision, models::Output::loss);
    ir::differentiate(trained);
    const compiler::Plans plans(std::move(trained), strategies, 0, fabric.cluster(), switching::Planner::relay);
    const compiler::Plans forward(models::build(model, settings.precision, models::Output::logits), strategies, 0,
                                  fabric.cluster(), switching::Planner::relay);
    const auto buckets = buckets_for(fixture, plans);
    const batch::StepPlan plan = batch::plan_batch(0, fixture.lengths, buckets, {1, 0.01});
    VerifyResult unused;
    Comparison compare(fixture, plans.graph(), fabric.rank() == 0 ? result : unused);

    {
      Rank rank(forward, model, fabric, {});
      rank.store().home.initialize(weights_from(forward.graph(), settings.folder));
      std::vector<std::byte> mine;
      for (const runtime::Logits& logits : rank.evaluate(plan, fixture.documents)) {
        const i64 tokens = logits.values.size(0), columns = logits.values.size(1);
        for (const int number : {logits.phase, logits.replica, logits.micro_batch, logits.ring_rank})
          append(mine, &number, sizeof number);
        for (const i64 number : {logits.first_token, logits.first_column, tokens, columns})
          append(mine, &number, sizeof number);
        append_tensor(mine, logits.values);
      }
      compare.logits(comm::all_gather_blobs(fabric, comm::everyone(fabric, kVerificationChannel), "logits", 1, mine),
                     plan);
    }

    Rank rank(plans, model, fabric, {});
    rank.store().home.initialize(weights_from(plans.graph(), settings.folder));
    std::vector<std::pair<runtime::HomeShard*, at::Tensor>> first_gradients;
    for (int step = 0; step <= kSteps; ++step) {
      if (step == kSteps) compare.parameters(gather_home(rank, plans, fabric, false, 3));
      const runtime::StepResult done = rank.step(plan, fixture.documents, [&](double norm) {
        if (step == 0)
          for (runtime::HomeUnit& unit : rank.store().home.units())
            for (runtime::HomeShard& shard : unit.shards) first_gradients.emplace_back(&shard, shard.grad.clone());
        return update_settings({}, 1e-3, step + 1, norm);
      });
      compare.loss(step, done.loss, done.norm);
      if (step == 0) {
        for (auto& [shard, gradient] : first_gradients) shard->grad.copy_(gradient);
        compare.gradients(gather_home(rank, plans, fabric, true, 2));
        rank.store().home.zero_gradients();
      }
    }
  });
  const Limits limits = limits_of(settings.precision);
  result.first_rank = !launch.distributed || launch.rank == 0;
  result.ok = result.logits_max_error <= limits.logits && result.loss_error <= limits.loss &&
              result.gradient_max_error <= limits.gradient && result.adamw_loss_max_error <= limits.adamw_loss &&
              result.adamw_parameter_max_error <= limits.adamw_parameter;
  return result;
}

}  // namespace switchyard::train
