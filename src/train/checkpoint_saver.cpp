#include "train/checkpoint_saver.hpp"

#include <utility>

#include "base/errors.hpp"

namespace switchyard::train {

CheckpointSaver::CheckpointSaver(const config::Job& job, const compiler::Plans& plans, comm::Fabric& fabric,
                                 const comm::JointWork& together, files::ModelFiles model_files)
    : job_(job), plans_(plans), fabric_(fabric), together_(together), model_files_(std::move(model_files)) {}

CheckpointSaver::~CheckpointSaver() {
  if (writer_.joinable()) writer_.join();
}

void CheckpointSaver::begin(const HomePart& part, const TrainState& state, bool copy_first) {
  check(!writer_.joinable(), "checkpoint {}: the one before is not finished", state.step);
  if (copy_first) copied_bytes_ = part.bytes();
  writing_ = true;
  writer_ = std::thread([this, kept = copy_first ? part.copy() : part, state]() mutable {
    try {
      save_checkpoint(job_, model_files_, plans_, kept, fabric_.rank(), together_, state);
    } catch (const std::exception& error) {
      failure_ = std::current_exception();
      failed_ = true;
      fabric_.abort(error.what());  // the others wait for it, and may be within a long step
    }
    kept.boxes.clear();
    copied_bytes_ = 0;
    writing_ = false;
  });
}

void CheckpointSaver::finish() {
  if (writer_.joinable()) writer_.join();
  failed_ = false;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace switchyard::train
