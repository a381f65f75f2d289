#include "train/batch_planner.hpp"

#include <utility>

#include "base/errors.hpp"
#include "batch/validate.hpp"
#include "batch/wire.hpp"
#include "comm/collectives.hpp"
#include "train/channels.hpp"
#include "train/ranks.hpp"

namespace switchyard::train {

BatchPlanner::BatchPlanner(const config::Job& job, const std::vector<data::Source>& sources,
                           const data::Sampler& sampler, const compiler::Plans& plans, comm::Fabric& fabric,
                           const cluster::Hardware* hardware)
    : sources_(sources),
      sampler_(sampler),
      plans_(plans),
      fabric_(fabric),
      steps_(job.run.steps),
      settings_(compiler::step_settings(job, plans)),
      drafting_(fabric, comm::everyone(fabric, kDraftChannel), comm::sign_interval(timeout_of(job.fabric))) {
  if (job.run.choose_buckets) {
    check(hardware != nullptr, "buckets are to be chosen without rates of devices");
    chooser_ = std::make_unique<simulator::BucketChooser>(settings_, plans, *hardware, known_segments_);
  }
}

BatchPlanner::~BatchPlanner() {
  if (after_next_.valid()) after_next_.wait();
}

PlannedBatch BatchPlanner::take(i64 index, const data::Cursor& cursor) {
  if (!next_) next_ = share(index, [&] { return draft(index, cursor); });
  check(next_->plan.step == index, "step {} was planned, not step {}", next_->plan.step + 1, index + 1);
  std::optional<PlannedBatch> following;
  if (index + 1 < steps_)
    following =
        share(index + 1, [&] { return after_next_.valid() ? after_next_.get() : draft(index + 1, next_->batch.next); });
  else if (after_next_.valid())
    after_next_.get();
  PlannedBatch taken = *std::exchange(next_, std::move(following));
  if (next_) begin_next(index + 2);
  return taken;
}

// Rank 0 plans alone: floating-point arithmetic then decides nothing twice.
BatchPlanner::Draft BatchPlanner::draft(i64 index, const data::Cursor& cursor) {
  Draft draft{.batch = sampler_.batch(cursor)};
  if (fabric_.rank() != 0) return draft;
  const std::vector<i64> lengths = data::Sampler::lengths(draft.batch);
  batch::StepPlan plan =
      chooser_ ? chooser_->choose(index, lengths).step.plan : compiler::planned_batch(settings_, index, lengths);
  plan.valid_tokens = data::labels(sources_, draft.batch.sequences);
  draft.plan = batch::encode(plan);
  return draft;
}

PlannedBatch BatchPlanner::share(i64 index, const std::function<Draft()>& drafted) {
  Draft draft;
  if (chooser_)
    drafting_.run("choice of buckets", [&](const auto&) { draft = drafted(); });
  else
    draft = drafted();
  PlannedBatch planned{.batch = std::move(draft.batch)};
  planned.plan = batch::decode(
      comm::broadcast_blob(fabric_, comm::everyone(fabric_, kPlanChannel), "batch plan", index + 1, draft.plan));
  batch::validate(planned.plan, data::Sampler::lengths(planned.batch),
                  batch::used_buckets(planned.plan, settings_.buckets), data::masked(sources_));
  return planned;
}

// index: of the step after next_.
void BatchPlanner::begin_next(i64 index) {
  after_next_ = std::async(std::launch::async, [this, index] {
    int before = -1;
    for (const batch::PhasePlan& phase : next_->plan.phases)
      plans_.moves(std::exchange(before, phase.strategy), phase.strategy);
    return index < steps_ ? draft(index, next_->batch.next) : Draft{};
  });
}

}  // namespace switchyard::train
