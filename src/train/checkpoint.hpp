// Saving and loading the state of a run: home's shards, the weights as a Hugging Face folder, the position in the data.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "comm/joint_work.hpp"
#include "config/job.hpp"
#include "data/sampler.hpp"
#include "files/manifest.hpp"
#include "files/model_folder.hpp"
#include "runtime/home.hpp"

namespace switchyard::train {

/// The state of a run without its tensors. step: steps done; updates: steps whose update was applied; decay_end: step
/// at which the learning rate's decay ends (0: not known).
struct TrainState {
  i64 step = 0, updates = 0, tokens = 0;
  data::Cursor cursor;
  i64 decay_end = 0;
};

/// What a rank writes of home: master weights and moments of every box that it owns.
struct HomePart {
  struct Box {
    files::ManifestEntry entry;
    int param = 0;
    at::Tensor values;
  };
  std::vector<Box> boxes;

  /// The same in memory of its own on the host.
  HomePart copy() const;
};
/// Views of home.
HomePart home_part(const compiler::Plans& plans, const runtime::Home& home, int rank);

/// Every element of home is written by the rank that owns it, to a file of its own in state/ and to its place in the
/// files of model/, which rank 0 has made with room for all; a rank that owns none writes nothing. Then rank 0 adds
/// `model_files` (of rank 0) and commits. Old checkpoints are removed after that. Collective; `together`: of all ranks,
/// so that the disk may take its time. ClusterError for the disk; the earlier checkpoint stays.
void save_checkpoint(const config::Job& job, const files::ModelFiles& model_files, const compiler::Plans& plans,
                     const HomePart& part, int rank, comm::JointWork& together, const TrainState& state);

/// Fills home from a checkpoint (or the newest one of a run folder), whatever strategies and ranks wrote it. UserError:
/// none there, damaged, of another model or seed.
TrainState load_checkpoint(const std::string& folder, const compiler::Plans& plans, runtime::Home& home,
                           const config::Job& job);

}  // namespace switchyard::train
