#include "train/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "base/clock.hpp"
#include "batch/wire.hpp"
#include "comm/collectives.hpp"
#include "compiler/job_plans.hpp"
#include "compiler/step_planner.hpp"
#include "train/channels.hpp"
#include "train/documents.hpp"

namespace switchyard::train {
namespace {

// Several buckets may have the same one.
std::vector<i64> max_lengths(const std::vector<config::Bucket>& buckets) {
  std::vector<i64> lengths;
  for (const config::Bucket& bucket : buckets)
    if (lengths.empty() || bucket.max_length < lengths.back()) lengths.push_back(bucket.max_length);
  return lengths;
}

// The shortest that is enough; they fall.
int range_of(const std::vector<i64>& max_lengths, i64 length) {
  int found = 0;
  for (size_t range = 0; range < max_lengths.size(); ++range)
    if (length <= max_lengths[range]) found = static_cast<int>(range);
  return found;
}

}  // namespace

std::vector<data::Sequence> first_documents(const config::Job& job, const std::vector<data::Source>& sources,
                                            i64 count) {
  constexpr double kSpent = 1e-30;  // a weight: nothing is drawn while another source has some
  config::Job drawn = job;
  drawn.batch.tokens = 0;
  std::vector<double> weights;
  for (const data::Source& source : sources) weights.push_back(source.weight);
  std::vector<data::Sequence> once;
  std::set<std::tuple<int, i64, i64>> taken;
  data::Cursor cursor;
  const auto has_more = [](double weight) { return weight > kSpent; };
  while (std::ssize(once) < count && std::ranges::any_of(weights, has_more)) {
    drawn.batch.sequences = std::min(count - std::ssize(once), data::kMostSequences);
    const data::Batch batch = data::sampler_of(sources, drawn, weights).batch(cursor);
    std::ranges::copy_if(batch.sequences, std::back_inserter(once), [&](const data::Sequence& sequence) {
      return taken.insert({sequence.source, sequence.document, sequence.first}).second;
    });
    cursor = batch.next;
    for (std::size_t i = 0; i < weights.size(); ++i)
      if (cursor[i].epoch > 0) weights[i] = kSpent;
  }
  return once;
}

Validation::Validation(const config::Job& job, const std::vector<data::Source>& sources, Rank& rank,
                       comm::Fabric& fabric)
    : Validation(job, sources, max_lengths(job.buckets), rank, fabric) {
  take(first_documents(job, sources_, job.validation.sequences));
  rank_.assemble(plan_, plans_);  // so that a lack of memory is known now
}

Validation::Validation(const config::Job& job, const std::vector<data::Source>& sources, std::vector<i64> max_lengths,
                       Rank& rank, comm::Fabric& fabric)
    : job_(job),
      fabric_(fabric),
      rank_(rank),
      sources_(sources),
      plans_(compiler::plans_of(job, compiler::evaluated_model_of(job, fabric.cluster()))),
      max_lengths_(std::move(max_lengths)) {}

void Validation::take(std::vector<data::Sequence> sequences) {
  sequences_ = std::move(sequences);
  range_.clear();
  for (const data::Sequence& sequence : sequences_) range_.push_back(range_of(max_lengths_, sequence.count));
  std::vector<std::byte> bytes;
  if (fabric_.rank() == 0) {
    std::vector<i64> lengths;
    for (const data::Sequence& sequence : sequences_) lengths.push_back(sequence.count);
    batch::StepPlan plan = compiler::planned_batch(compiler::step_settings(job_, plans_), 0, lengths);
    plan.valid_tokens = data::labels(sources_, sequences_);
    bytes = batch::encode(plan);
  }
  plan_ = batch::decode(comm::broadcast_blob(fabric_, comm::everyone(fabric_, kValidationChannel), "validation plan",
                                             ++transactions_, bytes));
}

runtime::Labels Validation::labels_of(const std::vector<bool>& read) const {
  runtime::Labels labels = read_labels(sources_, sequences_, read);
  const int ranges = static_cast<int>(max_lengths_.size());
  for (size_t d = 0; d < sequences_.size(); ++d) labels.source[d] = labels.source[d] * ranges + range_[d];
  labels.sources *= ranges;
  return labels;
}

ValidationRecord Validation::run(const std::function<void()>& make_room) {
  const Clock::time_point began = Clock::now();
  rank_.assemble(plan_, plans_);
  make_room();
  const std::vector<bool> read = rank_.documents_read(plan_, sequences_.size());
  const runtime::StepResult mine = rank_.run(
      plan_, read_documents(sources_, sequences_, read, job_.model.config.vocab_size), {}, {}, labels_of(read));
  std::vector<double> loss = mine.source_loss.empty() ? std::vector<double>{mine.loss} : mine.source_loss;
  comm::all_reduce(fabric_, comm::everyone(fabric_, kValidationChannel), "validation loss", ++transactions_,
                   loss.data(), static_cast<i64>(loss.size()), DType::f64);
  ValidationRecord record = record_of(loss);
  record.time = Seconds{seconds_since(began)};
  return record;
}

// loss: of each source and range of lengths, the part of the mean over all labels.
ValidationRecord Validation::record_of(const std::vector<double>& loss) const {
  const size_t ranges = max_lengths_.size();
  const auto part = [&](const std::string& name, auto belongs) {
    PartRecord record{.name = name};
    std::vector<data::Sequence> own;
    for (size_t d = 0; d < sequences_.size(); ++d)
      if (belongs(static_cast<size_t>(sequences_[d].source), static_cast<size_t>(range_[d]))) {
        own.push_back(sequences_[d]);
        record.tokens += sequences_[d].count;
      }
    double sum = 0;
    for (size_t cell = 0; cell < loss.size(); ++cell)
      if (belongs(cell / ranges, cell % ranges)) sum += loss[cell];
    record.labels = data::labels(sources_, own);
    if (record.labels > 0)
      record.loss = sum * static_cast<double>(plan_.valid_tokens) / static_cast<double>(record.labels);
    return record;
  };
  ValidationRecord record{.all = part("", [](size_t, size_t) { return true; })};
  for (size_t r = 0; ranges > 1 && r < ranges; ++r)
    record.lengths.push_back(
        part(fmt::format("to {}", max_lengths_[r]), [&](size_t, size_t range) { return range == r; }));
  for (size_t s = 0; sources_.size() > 1 && s < sources_.size(); ++s)
    record.sources.push_back(part(sources_[s].name, [&](size_t source, size_t) { return source == s; }));
  return record;
}

}  // namespace switchyard::train
