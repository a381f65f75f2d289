#include "train/checkpoint_saver.hpp"

#include <exception>
#include <random>
#include <utility>

#include "base/errors.hpp"
#include "comm/collectives.hpp"
#include "compiler/memory.hpp"
#include "train/channels.hpp"

namespace switchyard::train {
namespace {

std::uint32_t rank_0_s_attempt(comm::Fabric& fabric) {
  const std::uint32_t mine = fabric.rank() == 0 ? std::random_device()() : 0;
  return comm::all_gather_values(fabric, comm::everyone(fabric, kStartChannel), "number of the attempt",
                                 kBeforeTheFirstStep, mine)
      .front();
}

}  // namespace

CheckpointSaver::CheckpointSaver(const config::Job& job, const compiler::Plans& plans, comm::Fabric& fabric,
                                 const comm::JointWork& together, files::ModelFiles model_files,
                                 std::function<void(const std::string&)> say)
    : job_(job),
      plans_(plans),
      fabric_(fabric),
      together_(together),
      model_files_(std::move(model_files)),
      say_(std::move(say)),
      copy_bytes_(compiler::checkpoint_copies(plans)[static_cast<size_t>(fabric.rank())]),
      attempt_(rank_0_s_attempt(fabric)) {}

void CheckpointSaver::begin(const StatePart& part, const TrainState& state) {
  check(!writer_.valid(), "checkpoint {}: the one before is not finished", state.step);
  copied_bytes_ = copy_bytes_;
  writing_ = true;
  writer_ = std::async(std::launch::async, [this, kept = part.copy(), state]() mutable {
    std::exception_ptr failure;
    try {
      tell(save_checkpoint(job_, model_files_, plans_, kept, fabric_.rank(), together_, state, attempt_));
    } catch (const std::exception& error) {
      failure = std::current_exception();
      failed_ = true;
      fabric_.abort(error.what());  // the others wait for it, and may be within a long step
    }
    kept.boxes.clear();
    copied_bytes_ = 0;
    writing_ = false;
    if (failure) std::rethrow_exception(failure);
  });
}

void CheckpointSaver::save(const StatePart& part, const TrainState& state) {
  check(!writer_.valid(), "checkpoint {}: the one before is not finished", state.step);
  tell(save_checkpoint(job_, model_files_, plans_, part, fabric_.rank(), together_, state, attempt_));
}

// Each once: what can't be removed can't be the next time, either.
void CheckpointSaver::tell(const std::vector<std::string>& remarks) {
  for (const std::string& remark : remarks)
    if (remarked_.insert(remark).second) say_(remark);
}

void CheckpointSaver::wait(std::chrono::milliseconds most) const {
  if (writer_.valid()) writer_.wait_for(most);
}

void CheckpointSaver::finish() {
  if (!writer_.valid()) return;
  writer_.wait();
  failed_ = false;
  writer_.get();
}

}  // namespace switchyard::train
