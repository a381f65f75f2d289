#include "planner/packings.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "compiler/job_plans.hpp"

namespace switchyard::planner {
namespace {

// Tokens and attention pairs of a pipeline, or of pipelines that wait for one another.
struct Weight {
  double tokens = 0, attention_pairs = 0;
  void add(i64 more_tokens, double pairs) {
    tokens += static_cast<double>(more_tokens);
    attention_pairs += pairs;
  }
};

// Numbers of the pipelines with most tokens and with most attention pairs: a bound on the slowest of many doesn't have
// to consider all.
std::set<size_t> heaviest(const std::vector<Weight>& weights) {
  std::set<size_t> heavy;
  for (const auto member : {&Weight::tokens, &Weight::attention_pairs})
    if (const auto most = std::ranges::max_element(weights, {}, member); most != weights.end())
      heavy.insert(static_cast<size_t>(most - weights.begin()));
  return heavy;
}

// Counts the pipeline with the one before it if that has equal micro-batches.
void add(Replicas& to, int pipeline, std::vector<PackedSequence> micro_batches) {
  if (micro_batches.empty()) return;
  if (!to.empty() && to.back().micro_batches == micro_batches && to.back().first + to.back().count == pipeline)
    ++to.back().count;
  else
    to.push_back({.micro_batches = std::move(micro_batches), .first = pipeline});
}

// One in place of those that wait for one another, with the slowest of their micro-batches.
Replicas tied(const Replicas& replicas, int pipelines) {
  std::map<int, std::vector<PackedSequence>> groups;
  for (const Replica& replica : replicas)
    for (int group = replica.first / pipelines; group * pipelines < replica.first + replica.count; ++group) {
      std::vector<PackedSequence>& slowest = groups[group];
      slowest.resize(std::max(slowest.size(), replica.micro_batches.size()));
      for (size_t i = 0; i < replica.micro_batches.size(); ++i)
        slowest[i] = largest(slowest[i], replica.micro_batches[i]);
    }
  Replicas all;
  for (auto& [group, micro_batches] : groups)
    all.push_back({.micro_batches = std::move(micro_batches), .first = group * pipelines, .count = pipelines});
  return all;
}

std::pair<int, int> ends(Range range) { return {range.lo, range.hi}; }

}  // namespace

Packings::Packings(const UnitCosts& units, const Workload& workload, bool all)
    : ring_loads_(units), workload_(workload), work_(compiler::work_model(units.model())), all_(all) {}

const std::vector<std::vector<i64>>& Packings::lengths(Range range) const {
  const auto [it, fresh] = lengths_.try_emplace(ends(range));
  if (!fresh) return it->second;
  const i64 above = range.lo == 0 ? 0 : workload_.bounds[static_cast<size_t>(range.lo - 1)];
  for (const std::vector<i64>& all : workload_.steps) {
    std::vector<i64>& chosen = it->second.emplace_back();
    for (const i64 length : all)
      if (length > above && length <= workload_.longest(range)) chosen.push_back(length);
  }
  return it->second;
}

std::vector<batch::Item> Packings::items(std::span<const std::uint32_t> documents,
                                         const std::vector<i64>& lengths) const {
  std::vector<batch::Item> items;
  items.reserve(documents.size());
  for (const std::uint32_t document : documents)
    items.push_back({.doc = document, .tokens = lengths[document], .work = work_(lengths[document])});
  return items;
}

const std::vector<Packings::Spread>& Packings::spread(const Placement& p, Range range) const {
  const auto [it, fresh] = spread_.try_emplace({p.pipelines(), p.pp, range.lo, range.hi});
  if (!fresh) return it->second;
  const std::vector<batch::Pipeline> pipelines(static_cast<size_t>(p.pipelines()), {.speed = 1, .stages = p.pp});
  for (const std::vector<i64>& lengths : this->lengths(range)) {
    std::vector<std::uint32_t> all(lengths.size());
    std::iota(all.begin(), all.end(), std::uint32_t{0});
    Spread& spread = it->second.emplace_back();
    spread.documents.reserve(all.size());
    spread.begin.push_back(0);
    for (const std::vector<batch::Item>& of_pipeline : batch::spread_over_replicas(items(all, lengths), pipelines)) {
      for (const batch::Item& item : of_pipeline) spread.documents.push_back(static_cast<std::uint32_t>(item.doc));
      spread.begin.push_back(static_cast<std::uint32_t>(spread.documents.size()));
    }
  }
  return it->second;
}

// Where pipelines don't wait for one another, only the heaviest are packed.
Replicas Packings::bare(const Spread& spread, const std::vector<i64>& lengths, const Placement& p, i64 capacity) const {
  std::vector<Weight> weights(spread.pipelines());
  for (size_t pipeline = 0; pipeline < weights.size(); ++pipeline)
    for (const std::uint32_t document : spread.of(pipeline))
      weights[pipeline].add(lengths[document], attention_pairs_of(lengths[document]));
  std::vector<size_t> chosen(weights.size());
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  if (!all_ && p.tied() == 1) {
    const std::set<size_t> heavy = heaviest(weights);
    chosen.assign(heavy.begin(), heavy.end());
  }
  Replicas replicas;
  for (const size_t pipeline : chosen) {
    std::vector<PackedSequence> micro_batches;
    for (const batch::PackedSequence& packed :
         batch::pack_sequences(items(spread.of(pipeline), lengths), {capacity}, p.pp)) {
      PackedSequence& micro_batch = micro_batches.emplace_back(PackedSequence{packed.tokens});
      for (const batch::Item& item : packed.items) {
        micro_batch.attention_pairs += attention_pairs_of(item.tokens);
        micro_batch.longest = std::max(micro_batch.longest, item.tokens);
      }
    }
    add(replicas, static_cast<int>(pipeline), std::move(micro_batches));
  }
  if (p.tied() == 1) return replicas;
  Replicas tied = planner::tied(replicas, p.tied());
  if (all_) return tied;
  weights.clear();
  for (const Replica& replica : tied) {
    Weight& weight = weights.emplace_back();
    for (const PackedSequence& micro_batch : replica.micro_batches)
      weight.add(micro_batch.T, micro_batch.attention_pairs);
  }
  Replicas heavy;
  for (const size_t number : heaviest(weights)) heavy.push_back(std::move(tied[number]));
  return heavy;
}

const std::vector<Replicas>& Packings::bare(const Placement& p, i64 capacity, Range range) const {
  const auto [it, fresh] = bare_.try_emplace(bare_key(p, p.tied(), capacity, range));
  if (!fresh) return it->second;
  const std::vector<Spread>& spread = this->spread(p, range);
  const std::vector<std::vector<i64>>& lengths = this->lengths(range);
  for (size_t step = 0; step < spread.size(); ++step)
    it->second.push_back(bare(spread[step], lengths[step], p, capacity));
  return it->second;
}

const std::vector<Replicas>& Packings::even(const Placement& p, i64 capacity, Range range) const {
  const auto [it, fresh] =
      even_.try_emplace(std::tuple_cat(bare_key(p, p.tied(), capacity, range), std::tuple(p.code_ranks(), p.ring())));
  if (!fresh) return it->second;
  it->second = bare(p, capacity, range);
  const i64 multiple = p.code_ranks();
  for (Replicas& step : it->second)
    for (Replica& replica : step)
      for (PackedSequence& micro_batch : replica.micro_batches) {
        micro_batch.T = std::max<i64>(1, (micro_batch.T + multiple - 1) / multiple * multiple / p.ring());
        micro_batch.attention_pairs /= p.ring();
      }
  return it->second;
}

std::pair<int, int> Packings::micro_batches(const Placement& p, i64 capacity, Range range) const {
  const auto [it, fresh] =
      micro_batches_.try_emplace(bare_key(p, 1, capacity, range), std::numeric_limits<int>::max(), 1);
  if (!fresh) return it->second;
  auto& [least, most] = it->second;
  const std::vector<Spread>& spread = this->spread(p, range);
  const std::vector<std::vector<i64>>& lengths = this->lengths(range);
  for (size_t step = 0; step < spread.size(); ++step)
    for (size_t pipeline = 0; pipeline < spread[step].pipelines(); ++pipeline) {
      const std::vector<batch::Item> documents = items(spread[step].of(pipeline), lengths[step]);
      const int number = static_cast<int>(batch::pack_sequences(documents, {capacity}, p.pp).size());
      if (number == 0) continue;
      least = std::min(least, number);
      most = std::max(most, number);
    }
  return it->second;
}

Packings::AssignedKey Packings::assigned_key(const Placement& p, int tied, i64 capacity, Range range) const {
  return std::tuple_cat(bare_key(p, tied, capacity, range),
                        std::tuple(p.code_ranks(), p.ring(), p.ring() > 1 ? ring_loads_.columns(p) : 0));
}

std::vector<Packings::Apart>& Packings::apart(const Placement& p, i64 capacity, Range range) const {
  const auto [it, fresh] = apart_.try_emplace(assigned_key(p, 1, capacity, range));
  if (!fresh) return it->second;
  const std::vector<Spread>& spread = this->spread(p, range);
  const std::vector<std::vector<i64>>& lengths = this->lengths(range);
  for (size_t step = 0; step < spread.size(); ++step) {
    Apart& apart = it->second.emplace_back();
    std::map<std::vector<i64>, size_t> known;  // by lengths
    for (size_t pipeline = 0; pipeline < spread[step].pipelines(); ++pipeline) {
      std::vector<i64> documents;
      for (const std::uint32_t document : spread[step].of(pipeline)) documents.push_back(lengths[step][document]);
      if (documents.empty()) {
        apart.of.push_back(Apart::kNone);
        continue;
      }
      const auto [same, unlike] = known.try_emplace(documents, apart.unlike.size());
      apart.of.push_back(same->second);
      if (!unlike) continue;
      Apart::Documents& one = apart.unlike.emplace_back(Apart::Documents{.pipeline = static_cast<int>(pipeline)});
      for (const i64 length : documents) {
        one.tokens += static_cast<double>(length);
        one.attention_pairs += attention_pairs_of(length);
      }
    }
  }
  return it->second;
}

const std::vector<PackedSequence>& Packings::micro_batches(Apart& apart, size_t number, size_t step, const Placement& p,
                                                           i64 capacity, Range range) const {
  Apart::Documents& documents = apart.unlike[number];
  if (!documents.micro_batches.empty()) return documents.micro_batches;
  const bool rings = p.ring() > 1;
  const batch::Pipeline pipeline{.speed = 1, .stages = p.pp};
  const batch::BucketSpec spec{
      .max_length = workload_.longest(range),
      .micro_batch_tokens = capacity,
      .multiple = p.code_ranks(),
      .pipelines = {pipeline},
      .rings = rings ? std::vector{ring_loads_.ring(p)} : std::vector<batch::Ring>{},
  };
  const Spread& spread = this->spread(p, range)[step];
  const std::vector<i64>& lengths = this->lengths(range)[step];
  for (const batch::MicroBatch& micro_batch :
       batch::micro_batches_of(items(spread.of(static_cast<size_t>(documents.pipeline)), lengths), spec, 0))
    documents.micro_batches.push_back(
        rings ? ring_loads_.assigned(micro_batch, p)
              : PackedSequence{batch::tokens(micro_batch), batch::attention_pairs(micro_batch)});
  return documents.micro_batches;
}

const std::vector<Replicas>& Packings::assigned(const Placement& p, int tied, i64 capacity, Range range) const {
  const auto [it, fresh] = assigned_.try_emplace(assigned_key(p, tied, capacity, range));
  std::vector<Replicas>& steps = it->second;
  if (!fresh) return steps;
  if (tied > 1) {
    for (const Replicas& apart : assigned(p, 1, capacity, range)) steps.push_back(planner::tied(apart, tied));
    return steps;
  }
  std::vector<Apart>& apart = this->apart(p, capacity, range);
  for (size_t step = 0; step < apart.size(); ++step) {
    Replicas& replicas = steps.emplace_back();
    for (size_t pipeline = 0; pipeline < apart[step].of.size(); ++pipeline)
      if (const size_t of = apart[step].of[pipeline]; of != Apart::kNone)
        add(replicas, static_cast<int>(pipeline), micro_batches(apart[step], of, step, p, capacity, range));
  }
  return steps;
}

}  // namespace switchyard::planner
