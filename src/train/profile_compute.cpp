#include "train/profile_compute.hpp"

#include <ATen/ops/rand.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <tuple>

#include "batch/planner.hpp"
#include "comm/measure.hpp"
#include "compiler/job_plans.hpp"
#include "kernels/matmul_rate.hpp"
#include "kernels/optimizer.hpp"
#include "runtime/tensors.hpp"
#include "train/bench_rank.hpp"
#include "train/rank.hpp"
#include "train/weights.hpp"

namespace switchyard::train {
namespace {

constexpr int kRounds = 5;  // of all models, one step of each shape: machines that others use, too, are slow for seconds at a time
constexpr int kFewestRounds = 1;
constexpr int kQuickRounds = 2;
constexpr size_t kQuickSubjects = 2;
constexpr double kEnough = 75;  // seconds, after which no further round begins
constexpr double kLengthsApart = 3.5;  // of documents at least, to tell what pairs take from what rows take
constexpr i64 kDocument = 256;  // tokens
constexpr i64 kFewRows = 1024;

// A step of `documents` documents of `length` tokens to a micro-batch, on each rank.
struct Shape {
  i64 documents = 1, length = 0;
};
struct Subject {
  config::ModelConfig model;
  std::vector<Shape> shapes;
};

// Layers enough that caches don't hold their weights until the next micro-batch.
i64 layers_of(i64 hidden) { return std::clamp<i64>(1024 / hidden, 1, 4); }

config::ModelConfig llama(i64 hidden, i64 ffn, i64 vocab) {
  config::ModelConfig m;
  m.hidden_size = hidden;
  m.layers = layers_of(hidden);
  m.head_dim = 64;
  m.heads = hidden / m.head_dim;
  m.kv_heads = std::max<i64>(1, m.heads / 2);
  m.ffn_size = ffn;
  m.vocab_size = vocab;
  return m;
}

config::ModelConfig gpt2(i64 hidden, i64 vocab, config::AttentionKind attention) {
  config::ModelConfig m = config::family_defaults(config::Family::gpt2);
  m.hidden_size = hidden;
  m.layers = 1;
  m.head_dim = 64;
  m.heads = m.kv_heads = hidden / m.head_dim;
  m.ffn_size = 4 * hidden;
  m.vocab_size = vocab;
  m.max_positions = 4 * kFewRows;
  m.attention = attention;
  if (attention == config::AttentionKind::unfused) m.dropout = 0.1;
  return m;
}

// Hidden sizes about half an octave apart, rows two octaves; the products of a layer differ in aspect by themselves. Attention besides with
// whole rows as one document.
std::vector<Subject> subjects() {
  const auto rows = [](const std::vector<i64>& sizes, i64 whole = 0) {
    std::vector<Shape> shapes;
    for (const i64 tokens : sizes) shapes.push_back({std::max<i64>(1, tokens / kDocument), std::min(tokens, kDocument)});
    if (whole > 0) shapes.push_back({1, whole});
    return shapes;
  };
  return {{llama(64, 192, 512), rows({64, 256, 1024, 4096}, 4096)},
          {llama(128, 384, 2048), rows({64, 256, 1024, 4096}, 4096)},
          {llama(256, 704, 1024), rows({64, 256, 1024, 3072}, 2048)},
          {llama(384, 512, 8192), rows({64, 256, 1024})},
          {llama(512, 1408, 4096), rows({64, 256, 1024}, 2048)},
          {llama(768, 2048, 2048), rows({256, 1024})},
          {llama(1024, 2816, 2048), rows({64, 256, 512})},
          {gpt2(256, 1024, config::AttentionKind::fused), rows({256, 2048}, 2048)},
          {gpt2(512, 1024, config::AttentionKind::unfused), rows({256, 1024}, 1024)}};
}

// An operator's call and what it took on this rank.
struct Call {
  std::string name;
  double rows = 0, columns = 0, work = 0, pairs = 0, squares = 0;
  double seconds = 0;
  std::vector<double> rounds{};  // seconds of each
  bool by_documents() const { return pairs > 0 || squares > 0; }
};

// seconds = a x + b y with the least relative error, neither of them below 0.
std::pair<double, double> slopes(const std::vector<std::array<double, 3>>& points) {
  double xx = 0, xy = 0, yy = 0, x = 0, y = 0;
  for (const auto& [seconds, px, py] : points) {
    const double u = px / seconds, v = py / seconds;
    xx += u * u;
    xy += u * v;
    yy += v * v;
    x += u;
    y += v;
  }
  const double determinant = xx * yy - xy * xy;
  const double a = determinant > 0 ? (yy * x - xy * y) / determinant : -1, b = determinant > 0 ? (xx * y - xy * x) / determinant : -1;
  if (a >= 0 && b >= 0) return {a, b};
  if (yy == 0 || (b < 0 && xx > 0)) return {x / xx, 0};
  return {0, y / yy};
}

// A model and its steps. Memory of ranks stays for the next round.
class ProfiledModel {
 public:
  ProfiledModel(const Subject& subject, comm::Fabric& fabric, Precision precision, const RankSettings& settings)
      : fabric_(fabric), plans_(bench_plans(subject.model, std::string(name_of(precision)), {fmt::format("{},1,1", fabric.size())}, fabric.cluster())), rank_(plans_, subject.model, fabric, settings) {
    rank_.store().initialize(random_weights(plans_.graph(), 1));
    for (const Shape& shape : subject.shapes) steps_.push_back(step_of(shape, subject.model));
  }

  /// A step of each shape. The first time warms up.
  void run() {
    for (Step& step : steps_) {
      size_t index = 0;
      const bool first = step.calls.empty();
      runtime::Probe probe;
      probe.timed = [&](const runtime::TimedCall& timed) {
        if (&timed.micro_batch != &step.plan.phases[0].lane[static_cast<size_t>(fabric_.rank())].back()) return;
        if (first) step.calls.push_back(described(timed));
        Call& call = step.calls[index++];
        if (!first) call.rounds.push_back(timed.time.count);
      };
      rank_.step(step.plan, step.documents, [&](double) { return runtime::UpdateSettings{{1e-4, 0.9, 0.95, 1e-8, 0.1, ++updates_}, 1}; }, probe);
    }
  }

  std::vector<Call> calls() const {
    std::vector<Call> all;
    for (const Step& step : steps_) all.insert(all.end(), step.calls.begin(), step.calls.end());
    return all;
  }

 private:
  struct Step {
    batch::StepPlan plan;
    runtime::Documents documents;
    std::vector<Call> calls;
  };

  // Of two micro-batches the second finds accumulators made; many rows hide that.
  Step step_of(const Shape& shape, const config::ModelConfig& model) const {
    const i64 row = shape.length * shape.documents, micro_batches = row <= kFewRows ? 2 : 1;
    const std::vector<i64> lengths(static_cast<size_t>(micro_batches * shape.documents * fabric_.size()), shape.length);
    batch::BucketSpec bucket;
    bucket.max_length = shape.length;
    bucket.lanes = fabric_.size();
    bucket.micro_batch_tokens = row;
    Step step{batch::plan_batch(0, lengths, {&bucket, 1}, compiler::work_model(model)), {}, {}};
    for (const i64 length : lengths)
      step.documents.emplace_back(static_cast<size_t>(length), static_cast<std::int32_t>(step.documents.size() % 7));
    return step;
  }

  static Call described(const runtime::TimedCall& timed) {
    const ir::LocalWork local = ir::local_work(timed.stage, timed.instr, timed.position);
    Call call{.name = timed.instr.op->name(),
              .rows = static_cast<double>(timed.micro_batch.T) * local.share,
              .columns = local.columns,
              .work = local.work_per_row()};
    if (!local.by_documents()) return call;
    if (local.cost.flops_per_pair > 0) call.pairs = batch::causal_pairs(timed.micro_batch);
    else call.squares = static_cast<double>(batch::squares(timed.micro_batch));
    return call;
  }

  comm::Fabric& fabric_;
  const compiler::Plans plans_;
  Rank rank_;
  std::vector<Step> steps_;
  i64 updates_ = 0;
};

// The median of calls alike; of attention the slopes that fit all lengths best.
std::map<std::string, cluster::OperatorTable> tables_of(const std::vector<Call>& calls) {
  std::map<std::string, cluster::OperatorTable> tables;
  std::map<std::tuple<std::string, double, double, double>, std::vector<double>> alike;
  std::map<std::pair<std::string, double>, std::vector<std::array<double, 3>>> by_pairs, by_squares;
  for (const Call& call : calls) {
    if (!call.by_documents()) alike[{call.name, call.rows, call.columns, call.work}].push_back(call.seconds);
    if (call.pairs > 0) by_pairs[{call.name, call.columns}].push_back({call.seconds, call.rows, call.pairs});
    else if (call.squares > 0) by_squares[{call.name, call.columns}].push_back({call.seconds, call.rows, call.squares});
  }
  for (const auto& [key, seconds] : alike) {
    const auto& [name, rows, columns, work] = key;
    tables[name].calls.push_back({rows, columns, work, comm::median(seconds)});
  }
  const auto apart = [](const std::vector<std::array<double, 3>>& points) {
    const auto [least, most] = std::ranges::minmax(points, {}, [](const auto& point) { return point[2] / point[1]; });
    return most[2] / most[1] >= kLengthsApart * least[2] / least[1];
  };
  for (const auto& [key, points] : by_pairs) {
    if (!apart(points)) continue;
    const auto [row, pair] = slopes(points);
    tables[key.first].attention.push_back({key.second, row, pair, 0});
  }
  for (const auto& [key, points] : by_squares) {
    if (!apart(points)) continue;
    const auto [row, square] = slopes(points);
    tables[key.first].attention.push_back({key.second, row, 0, square});
  }
  return tables;
}

// What the step does besides operators, by elements.
class Movers {
 public:
  Movers(Meeting& meeting, DType type, const at::Device& device) : meeting_(meeting), type_(type), device_(device) {}

  void add_to(std::map<std::string, cluster::OperatorTable>& tables) const {
    const double size = static_cast<double>(size_of(type_));
    for (const i64 elements : {i64{1} << 12, i64{1} << 15, i64{1} << 18, i64{1} << 21, i64{1} << 23}) {
      const auto made = [&] { return at::rand({elements}, at::TensorOptions().dtype(runtime::scalar_type(type_)).device(device_)); };
      at::Tensor a = made(), b = made(), c = made(), none;
      const at::Tensor grad = made();
      const auto measure = [&](const char* name, double bytes, const std::function<void()>& work) {
        tables[name].calls.push_back({static_cast<double>(elements), 1, bytes, meeting_.longest_of(work)});
      };
      measure("adamw", 8 * size, [&] { kernels::adamw(a, b, c, none, grad, {}, 1); });
      measure("sum_of_squares", size, [&] { kernels::sum_of_squares(grad); });
      measure("zero", size, [&] { a.zero_(); });
      measure("copy", 2 * size, [&] { a.copy_(grad); });
      measure("add", 3 * size, [&] { a.add_(grad); });
    }
  }

 private:
  Meeting& meeting_;
  const DType type_;
  const at::Device device_;
};

}  // namespace

OperatorProfile profile_operators(Meeting& meeting, Precision precision, const RankSettings& settings, bool quick,
                                  const std::function<void(double share)>& told) {
  OperatorProfile profile;
  std::vector<Subject> all = subjects();
  if (quick) all.resize(kQuickSubjects);
  std::vector<std::unique_ptr<ProfiledModel>> models;
  for (const Subject& subject : all) models.push_back(std::make_unique<ProfiledModel>(subject, meeting.fabric(), precision, settings));
  std::vector<double> rates;
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] { return meeting.mean({std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()})[0]; };
  const int rounds = quick ? kQuickRounds : kRounds;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    if (round > kFewestRounds && passed() > kEnough * round / (round + 1)) break;
    for (size_t m = 0; m < models.size(); ++m) {
      models[m]->run();
      rates.push_back(kernels::matmul_rate(runtime::scalar_type(precision.compute), settings.device, Seconds{0.02}).count);
      told(static_cast<double>(round * all.size() + m + 1) / static_cast<double>((rounds + 1) * all.size()));
    }
  }
  std::vector<Call> calls;
  for (const auto& model : models)
    for (Call& call : model->calls()) calls.push_back(std::move(call));
  // Ranks wait for one another within a step, so the slowest counts; of rounds the median.
  std::vector<double> mine;
  for (const Call& call : calls) mine.insert(mine.end(), call.rounds.begin(), call.rounds.end());
  const std::vector<double> slowest = meeting.longest(mine);
  auto next = slowest.begin();
  for (Call& call : calls) {
    const auto end = next + static_cast<std::ptrdiff_t>(call.rounds.size());
    call.seconds = comm::median({next, end});
    next = end;
  }
  profile.matmul = {meeting.mean({comm::median(rates)})[0]};
  profile.tables = tables_of(calls);
  Movers(meeting, precision.state, settings.device).add_to(profile.tables);
  return profile;
}

}  // namespace switchyard::train
