#include "planner/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "base/count_of.hpp"
#include "base/errors.hpp"
#include "batch/planner.hpp"
#include "planner/range_candidates.hpp"
#include "planner/workload.hpp"

namespace switchyard::planner {
namespace {

// Where a model fits nowhere, so many times the ranks are tried, unless twice as many need hardly less.
constexpr int kMostTimes = 64;
constexpr double kHardlyLess = 0.95;

// Rounded up, so that it can be given as it is reported.
std::string at_least(Bytes need) {
  constexpr i64 kMiB = i64{1} << 20, kGiB = i64{1} << 30;
  if (need.count < kGiB) return fmt::format("{} MiB", (need.count + kMiB - 1) / kMiB);
  return fmt::format("{:.1f} GiB", std::ceil(10.0 * static_cast<double>(need.count) / kGiB) / 10);
}

// The longest first, as a job lists them.
std::vector<Phase> longest_first(const Choice& choice) {
  std::vector<Phase> phases = choice.phases;
  std::ranges::sort(phases, [](const Phase& a, const Phase& b) { return a.range.hi > b.range.hi; });
  return phases;
}

// What distinguishes choices of equal shapes is left out: capacity, ZeRO stage, which is home's, and codecs; so is
// recomputation, of which some levels are the same on some meshes.
config::Strategy what_counts(config::Strategy strategy) {
  strategy.name.clear();
  strategy.chunks = strategy.chunk_count();
  strategy.micro_batch_tokens = 0;
  strategy.zero = 1;
  strategy.compression = {};
  strategy.recompute = {};
  return strategy;
}

}  // namespace

Planner::Model::Model(const std::vector<std::vector<i64>>& steps, i64 context, std::shared_ptr<const LayerCodes> codes)
    : units(std::move(codes)), transfers(units), costs(units, transfers, workload_of(steps, context)) {}

Planner::Planner(Request request) : request_(std::move(request)) {
  const i64 device = request_.hardware.device.usable().count;
  memory_ = request_.memory > 0 ? std::min(request_.memory, device) : device;
  model_ = std::make_unique<Model>(request_.steps, request_.context,
                                   std::make_shared<LayerCodes>(request_.model, request_.precision, request_.hardware,
                                                                request_.code, request_.allowed));
  shapes_ = shapes(request_.model, request_.hardware.ranks(), request_.limits);
}

Found Planner::plan(int top, int most_buckets, std::function<double()> spent, std::optional<i64> runners_up,
                    std::function<void(const Choice&)> on_first, double share) const {
  while (equal_.size() + 1 < RangeCandidates::kParts)
    equal_.push_back(std::make_unique<Model>(request_.steps, request_.context, model_->units.codes()));
  SearchSettings settings{.memory = static_cast<i64>(share * static_cast<double>(memory_)),
                          .most_buckets = most_buckets,
                          .top = top,
                          .singles = most_buckets == 1 ? 0 : top,
                          .spent = std::move(spent),
                          .runners_up = runners_up,
                          .of_singles = runners_up ? std::optional(kStepsOfSingles) : std::nullopt,
                          .threads = std::thread::hardware_concurrency(),
                          .on_first = [&](const Choice& choice) {
                            if (on_first) on_first(merged(choice));
                          }};
  for (const std::unique_ptr<Model>& one : equal_) settings.equal.push_back(&one->costs);
  Found found = search(model(), shapes_, settings);
  if (found.best.empty()) nothing_fits();
  found.share = share;
  for (Choice& choice : found.best) choice = merged(std::move(choice));  // singles have nothing to merge
  return found;
}

// Where documents happen to fill their micro-batches better in two buckets, the search prefers two.
Choice Planner::merged(Choice choice) const {
  std::vector<Phase>& phases = choice.phases;
  const size_t found = phases.size();
  for (size_t i = 0; i < phases.size();) {
    const auto shorter = std::ranges::find_if(phases, [&](const Phase& other) {
      return other.range.hi == phases[i].range.lo && other.shape == phases[i].shape &&
             other.capacity == phases[i].capacity;
    });
    if (shorter == phases.end()) {
      ++i;
      continue;
    }
    phases[i].range.lo = shorter->range.lo;
    phases.erase(shorter);
    i = 0;
  }
  if (phases.size() < found) choice.seconds = step_seconds(model(), transfers(), choice, 0);
  return choice;
}

std::vector<config::Bucket> Planner::buckets(const Choice& choice) const {
  std::vector<config::Bucket> buckets;
  for (const Phase& phase : longest_first(choice)) {
    config::Bucket bucket{
        model().longest(phase.range), {}, strategy_of(phase.shape, request_.model.layers, phase.capacity)};
    if (buckets.empty() && choice.zero == 0) bucket.strategy.zero = 0;
    bucket.strategy.compression = compression();
    bucket.degrees = {degrees_of(phase.shape.placement)};
    buckets.push_back(std::move(bucket));
  }
  return buckets;
}

std::vector<int> Planner::order(const Choice& choice) const {
  const std::vector<Phase> buckets = longest_first(choice);
  std::vector<int> order;
  for (const Phase& phase : choice.phases)
    order.push_back(static_cast<int>(std::ranges::find(buckets, phase) - buckets.begin()));
  return order == batch::published_order(static_cast<int>(order.size())) ? std::vector<int>{} : order;
}

std::optional<Choice> Planner::choice(const std::vector<config::Bucket>& buckets, std::span<const int> order) const {
  const std::vector<i64>& bounds = model().bounds();
  Choice choice;
  for (const int index : order) {
    const auto b = static_cast<size_t>(index);
    const auto level = [&](i64 length) {
      return static_cast<int>(std::ranges::upper_bound(bounds, length) - bounds.begin());
    };
    const Range range{b + 1 < buckets.size() ? level(buckets[b + 1].max_length) : 0,
                      b == 0 ? static_cast<int>(bounds.size()) : level(buckets[b].max_length)};
    const config::Strategy& strategy = buckets[b].strategy;
    if (range.lo >= range.hi || !model().any(range)) continue;
    const i64 capacity = strategy.micro_batch_tokens > 0 ? strategy.micro_batch_tokens : model().longest(range);
    const auto same = [&](const Shape& shape) {
      return shape.recompute == std::max(strategy.recompute, least_recompute(shape.placement.mesh)) &&
             shape.schedule == strategy.schedule && shape.activation_cap == strategy.activation_cap &&
             shape.placement.chunks == strategy.chunk_count() &&
             what_counts(strategy_of(shape, request_.model.layers, capacity)) == what_counts(strategy);
    };
    const auto shape = std::ranges::find_if(shapes_, same);
    if (shape == shapes_.end() || capacity < model().longest(range)) return std::nullopt;
    choice.phases.push_back({range, *shape, capacity});
    choice.phases.back().shape.placement.zero = std::max(1, strategy.zero);
  }
  if (choice.phases.empty()) return std::nullopt;
  choice.zero = std::min(1, buckets.front().strategy.zero);
  choice.seconds = step_seconds(model(), transfers(), choice, 0);
  return choice;
}

Account Planner::account(const Choice& choice) const {
  Account account{.seconds = choice.seconds};
  double phases = 0;
  const i64 home = model().home_bytes(choice.home());
  for (const Phase& phase : choice.phases) {
    const PhaseParts parts = model().parts(phase.shape, phase.capacity, phase.range);
    phases += parts.seconds;
    account.compute += parts.compute;
    account.communication += parts.communication;
    account.idle += parts.idle;
    const MemoryNeed need = model().need(phase.shape, phase.capacity, phase.range);
    account.memory = std::max(account.memory, home + need.total());
    account.memory_in_pairs = std::max(account.memory_in_pairs, home + need.total() + need.activations);
  }
  account.transfers = choice.seconds - phases;
  return account;
}

std::string Planner::to_string(const Choice& choice) const {
  std::string text;
  for (const Phase& phase : longest_first(choice)) {
    config::StrategySettings settings = settings_of(phase.shape);
    if (text.empty() && choice.zero == 0) settings.zero = 0;
    const i64 longest = model().longest(phase.range);
    settings.micro_batch_tokens = phase.capacity == longest ? 0 : phase.capacity;
    text += fmt::format("{}to {}: {}", text.empty() ? "" : "; ", longest,
                        config::to_text(degrees_of(phase.shape.placement), settings));
  }
  if (const std::vector<int> order = this->order(choice); !order.empty()) {
    std::vector<i64> lengths;
    for (const Phase& phase : choice.phases) lengths.push_back(model().longest(phase.range));
    text += fmt::format("; in the order {}", fmt::join(lengths, ", "));
  }
  return text;
}

// The least memory that plans with a bucket for every range between bounds need. No other plan needs less: a bucket
// never needs less for longer documents.
std::vector<i64> Planner::least_needs() const {
  const auto need = [&](Shape shape, Range range) {
    shape.placement = leanest(shape.placement);
    i64 least = std::numeric_limits<i64>::max();
    for (const i64 capacity : capacities(model(), range))
      least = std::min(least, model().need(shape, capacity, range).total());
    return least;
  };
  std::vector<i64> needs;
  i64 shorter = 0;
  for (int level = 0; level < static_cast<int>(model().bounds().size()); ++level) {
    i64 least = std::numeric_limits<i64>::max(), of_bucket = least;
    for (const Shape& shape : shapes_) {
      const i64 of_shape = need(shape, {level, level + 1});
      of_bucket = std::min(of_bucket, of_shape);
      least = std::min(least, model().home_bytes({shape.placement}) + std::max(shorter, of_shape));
    }
    needs.push_back(least);
    shorter = std::max(shorter, of_bucket);
  }
  return needs;
}

void Planner::check_fits() const {
  if (least_needs().back() > memory_) nothing_fits();
}

void Planner::nothing_fits() const {
  const std::vector<i64> needs = least_needs();
  const Bytes need{needs.back()};
  std::string remedy = at_least(need) + " of memory a rank";
  i64 before = need.count;
  for (int times = 2; times <= kMostTimes; times *= 2) {
    Request larger = request_;
    larger.hardware.hosts *= times;
    if (!larger.hardware.inter_host) break;
    const Planner more(larger);
    const i64 with_more = more.least_needs().back();
    if (with_more <= memory_) remedy += fmt::format(", or {} ranks", larger.hardware.ranks());
    if (with_more <= memory_ || static_cast<double>(with_more) > kHardlyLess * static_cast<double>(before)) break;
    before = with_more;
  }
  const auto above = std::ranges::find_if(needs, [&](i64 of_documents) { return of_documents > memory_; });
  if (above != needs.begin() && above != needs.end())
    remedy += fmt::format(", or batch.context = {}", model().bounds()[static_cast<size_t>(above - needs.begin()) - 1]);
  user_error(
      "no strategy fits {} of {}: with documents of {} tokens the one with the lowest memory needs {} a rank. "
      "Enough: {}.",
      count_of(request_.hardware.ranks(), "rank"), format_bytes(Bytes{memory_}), request_.context, at_least(need),
      remedy);
}

}  // namespace switchyard::planner
