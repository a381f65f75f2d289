#include "train/profile_compute.hpp"

#include <ATen/ops/rand.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <ranges>
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
constexpr double kStretches[] = {1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1};  // seconds
constexpr size_t kFewestStretches = 8;
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

// share: of the heads, as a tensor rank has them; ffn is what it has.
config::ModelConfig llama(i64 hidden, i64 ffn, i64 vocab, i64 share = 1) {
  config::ModelConfig m;
  m.hidden_size = hidden;
  m.layers = layers_of(hidden);
  m.head_dim = 64;
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
          {llama(256, 384, 512, 2), rows({256, 1024})},
          {llama(512, 704, 2048, 2), rows({256, 1024})},
          {gpt2(256, 1024, config::AttentionKind::fused), rows({256, 2048}, 2048)},
          {gpt2(512, 1024, config::AttentionKind::unfused), rows({256, 1024}, 1024)}};
}

// An operator's call and what it took on this rank, at first the time before the rounds, which found memory untouched.
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

  /// Of each step.
  std::vector<std::vector<Call>> calls() const {
    std::vector<std::vector<Call>> all;
    for (const Step& step : steps_) all.push_back(step.calls);
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
              .work = local.work_per_row(),
              .seconds = timed.time.count};
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

// Calls one after the other that take `seconds`, and less than twice as much.
void add_stretches(const std::vector<Call>& calls, double seconds, std::vector<double>& quiet, std::vector<double>& taken) {
  for (size_t first = 0, end = 0; first < calls.size(); first = end) {
    double sum = 0;
    while (end < calls.size() && sum < seconds) sum += calls[end++].seconds;
    if (sum < seconds || sum >= 2 * seconds) continue;
    quiet.push_back(sum);
    for (size_t round = 0; round < calls.front().rounds.size(); ++round) {
      double& stretch = taken.emplace_back(0);
      for (size_t call = first; call < end; ++call) stretch += calls[call].rounds[round];
    }
  }
}

// What disturbs a machine for moments doubles the time of single calls, and of whole steps takes a share. So a call counts with its least
// time of all rounds and ranks; the curve tells how much longer than that calls take that follow one another for so long, on the rank that
// is slowest meanwhile.
cluster::EfficiencyCurve settle(std::vector<std::vector<Call>>& steps, Meeting& meeting) {
  std::vector<double> least;
  for (const Call& call : std::views::join(steps)) least.push_back(std::min(call.seconds, std::ranges::min(call.rounds)));
  least = meeting.least(least);
  auto next = least.begin();
  for (Call& call : std::views::join(steps)) call.seconds = *next++;
  cluster::EfficiencyCurve curve;
  for (const double seconds : kStretches) {
    std::vector<double> quiet, taken;  // of each stretch, and in each round
    for (const std::vector<Call>& calls : steps) add_stretches(calls, seconds, quiet, taken);
    taken = meeting.longest(taken);
    if (quiet.size() < kFewestStretches) continue;
    const double rounds = static_cast<double>(taken.size()) / static_cast<double>(quiet.size()), all = std::reduce(quiet.begin(), quiet.end());
    const double before = curve.points.empty() ? 0 : curve.points.back().share;
    curve.add(all / static_cast<double>(quiet.size()), std::max(before, rounds * all / std::reduce(taken.begin(), taken.end())));
  }
  return curve;
}

// The median of calls alike; of attention the slopes that fit all lengths best.
std::map<std::string, cluster::OperatorTable> tables_of(const std::vector<std::vector<Call>>& steps) {
  std::map<std::string, cluster::OperatorTable> tables;
  std::map<std::tuple<std::string, double, double, double>, std::vector<double>> alike;
  std::map<std::pair<std::string, double>, std::vector<std::array<double, 3>>> by_pairs, by_squares;
  for (const Call& call : std::views::join(steps)) {
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
  Movers(Meeting& meeting, DType type, const at::Device& device) : meeting_(meeting), size_(static_cast<double>(size_of(type))) {
    for (const i64 elements : {i64{1} << 12, i64{1} << 15, i64{1} << 18, i64{1} << 21, i64{1} << 23}) {
      const auto made = [&] { return at::rand({elements}, at::TensorOptions().dtype(runtime::scalar_type(type)).device(device)); };
      at::Tensor a = made(), b = made(), c = made(), none;
      const at::Tensor grad = made();
      add("adamw", elements, 8, [=]() mutable { kernels::adamw(a, b, c, none, grad, {}, 1); });
      add("sum_of_squares", elements, 1, [=] { kernels::sum_of_squares(grad); });
      add("zero", elements, 1, [=] { a.zero_(); });
      add("copy", elements, 2, [=] { a.copy_(grad); });
      add("add", elements, 3, [=] { a.add_(grad); });
    }
  }

  void run() {
    for (Mover& mover : movers_) mover.least = std::min(mover.least, meeting_.least_of(mover.work));
  }
  void add_to(std::map<std::string, cluster::OperatorTable>& tables) const {
    for (const Mover& mover : movers_) tables[mover.name].calls.push_back({mover.elements, 1, mover.bytes, mover.least});
  }

 private:
  struct Mover {
    std::string name;
    double elements = 0, bytes = 0;  // bytes: of each element, read and written
    std::function<void()> work;
    double least = std::numeric_limits<double>::infinity();
  };
  void add(const char* name, i64 elements, int times, std::function<void()> work) {
    movers_.push_back({name, static_cast<double>(elements), times * size_, std::move(work)});
  }

  Meeting& meeting_;
  const double size_;
  std::vector<Mover> movers_;
};

// Of one rank of each host, another one each time, while the others wait.
double alone_rate(Meeting& meeting, int number, const std::function<double()>& rate) {
  const std::vector<int>& host = meeting.fabric().cluster().host;
  const int me = meeting.fabric().rank(), mine = host[static_cast<size_t>(me)];
  const auto devices = std::ranges::count(host, mine), place = std::count(host.begin(), host.begin() + me, mine);
  meeting.mean({0});
  return meeting.longest({place == number % devices ? rate() : 0})[0];
}

}  // namespace

OperatorProfile profile_operators(Meeting& meeting, Precision precision, const RankSettings& settings, bool quick,
                                  const std::function<void(double share)>& told) {
  OperatorProfile profile;
  std::vector<Subject> all = subjects();
  if (quick) all.resize(kQuickSubjects);
  std::vector<std::unique_ptr<ProfiledModel>> models;
  for (const Subject& subject : all) models.push_back(std::make_unique<ProfiledModel>(subject, meeting.fabric(), precision, settings));
  Movers movers(meeting, precision.state, settings.device);
  const auto products = [&] { return kernels::matmul_rate(runtime::scalar_type(precision.compute), settings.device, Seconds{0.05}).count; };
  std::vector<double> rates, alone;
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] { return meeting.mean({std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()})[0]; };
  const int rounds = quick ? kQuickRounds : kRounds;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    if (round > kFewestRounds && passed() > kEnough * round / (round + 1)) break;
    for (size_t m = 0; m < models.size(); ++m) {
      models[m]->run();
      rates.push_back(products());
      alone.push_back(alone_rate(meeting, static_cast<int>(m), products));
      told(static_cast<double>(round * all.size() + m + 1) / static_cast<double>((rounds + 1) * all.size()));
    }
    if (round > 0) movers.run();
  }
  std::vector<std::vector<Call>> steps;
  for (const auto& model : models)
    for (std::vector<Call>& calls : model->calls()) steps.push_back(std::move(calls));
  profile.lockstep = settle(steps, meeting);
  profile.matmul = {meeting.mean({comm::median(rates)})[0]};
  profile.alone_speedup = std::max(1.0, comm::median(alone) / profile.matmul.count);
  profile.tables = tables_of(steps);
  movers.add_to(profile.tables);
  return profile;
}

}  // namespace switchyard::train
