#include "train/batch_planner.hpp"

#include <utility>

#include "base/errors.hpp"
#include "batch/validate.hpp"
#include "batch/wire.hpp"
#include "comm/collectives.hpp"
#include "train/channels.hpp"

namespace switchyard::train {

BatchPlanner::BatchPlanner(const config::Job& job, const std::vector<data::Source>& sources,
                           const data::Sampler& sampler, const compiler::Plans& plans, comm::Fabric& fabric,
                           const cluster::Hardware* hardware)
    : sources_(sources),
      sampler_(sampler),
      plans_(plans),
      fabric_(fabric),
      settings_(compiler::step_settings(job, plans)),
      choosing_(fabric, comm::everyone(fabric, kChoiceChannel),
                comm::sign_interval(std::chrono::milliseconds(static_cast<i64>(job.fabric.timeout.count * 1000)))) {
  if (job.run.choose_buckets) {
    check(hardware != nullptr, "buckets are to be chosen without rates of devices");
    chooser_ = std::make_unique<simulator::BucketChooser>(settings_, plans, *hardware, known_);
  }
}

BatchPlanner::~BatchPlanner() {
  if (next_.valid()) next_.wait();
}

void BatchPlanner::begin(i64 index, const data::Cursor& cursor) {
  begun_ = index;
  next_ = std::async(std::launch::async, [this, index, cursor] { return plan(index, cursor); });
}

PlannedBatch BatchPlanner::take(i64 index, const data::Cursor& cursor) {
  if (!next_.valid()) return plan(index, cursor);
  check(begun_ == index, "step {} was planned, not step {}", begun_ + 1, index + 1);
  return next_.get();
}

PlannedBatch BatchPlanner::plan(i64 index, const data::Cursor& cursor) {
  PlannedBatch planned{.batch = sampler_.batch(cursor)};
  const std::vector<i64> lengths = data::Sampler::lengths(planned.batch);
  std::vector<std::byte> bytes;
  // Rank 0 plans alone: floating-point arithmetic then decides nothing twice.
  const auto make = [&] {
    if (fabric_.rank() != 0) return;
    batch::StepPlan plan = plan_by_rank_0(index, lengths);
    plan.valid_tokens = data::labels(sources_, planned.batch.sequences);
    bytes = batch::encode(plan);
  };
  if (chooser_)
    choosing_.run("choice of buckets", [&](const auto&) { make(); });
  else
    make();
  planned.plan = batch::decode(
      comm::broadcast_blob(fabric_, comm::everyone(fabric_, kPlanChannel), "batch plan", index + 1, bytes));
  batch::validate(planned.plan, lengths, batch::used_buckets(planned.plan, settings_.buckets), data::masked(sources_));
  int before = -1;
  for (const batch::PhasePlan& phase : planned.plan.phases)
    plans_.moves(std::exchange(before, phase.strategy), phase.strategy);
  return planned;
}

batch::StepPlan BatchPlanner::plan_by_rank_0(i64 index, const std::vector<i64>& lengths) {
  if (chooser_) return chooser_->choose(index, lengths).step.plan;
  return compiler::planned_batch(settings_, index, lengths);
}

}  // namespace switchyard::train
