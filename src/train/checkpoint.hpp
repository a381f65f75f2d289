// Saving and loading the state of a run: home's shards, error feedback, the weights as a Hugging Face folder, the
// position in the data.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/joint_work.hpp"
#include "config/job.hpp"
#include "files/checkpoint_folder.hpp"
#include "files/manifest.hpp"
#include "files/model_folder.hpp"
#include "runtime/store.hpp"

namespace switchyard::train {

/// The state of a run without its tensors. step: steps done; updates: steps whose update was applied; decay_end: step
/// at which the learning rate's decay ends (0: not known). schedule: of the learning rate, in words (empty: not known).
/// fingerprint: of the checkpoint that it comes from.
struct TrainState {
  i64 step = 0, updates = 0, tokens = 0;
  std::vector<files::DataPlace> places{};
  i64 decay_end = 0;
  std::string schedule{};
  std::uint64_t fingerprint = 0;
};

/// The part of a checkpoint that a rank writes: master weights and moments of every box of home that it owns, and its
/// residuals.
struct StatePart {
  struct Box {
    files::ManifestEntry entry;
    int param = 0;
    at::Tensor values;
  };
  std::vector<Box> boxes;

  /// The same in memory of its own on the host.
  StatePart copy() const;
};
/// Views of the store.
StatePart state_part(const compiler::Plans& plans, const runtime::Store& store, int rank);

/// Every element of home is written by the rank that owns it, to a file of its own in state/ and to its place in the
/// files of model/, which rank 0 has made with room for all, and residuals by the rank that has them; a rank that has
/// neither writes nothing. Then rank 0 adds `model_files` (of rank 0) and commits. Old checkpoints are removed after
/// that; returns on rank 0 why some could not be. Collective; `together`: of all ranks, so that the disk may take its
/// time. attempt: see files::partial_path. ClusterError for the disk; the earlier checkpoint stays.
std::vector<std::string> save_checkpoint(const config::Job& job, const files::ModelFiles& model_files,
                                         const compiler::Plans& plans, const StatePart& part, int rank,
                                         comm::JointWork& together, const TrainState& state, std::uint32_t attempt);

/// Fills a new store from a checkpoint (or the newest one of a run folder), whatever strategies and ranks wrote it. A
/// rank takes back residuals of what it still sends, bit for bit; all others are added to home's gradients, as part of
/// the next step's. UserError: none there, damaged, of another model or seed.
TrainState load_checkpoint(const std::string& folder, const compiler::Plans& plans, runtime::Store& store,
                           const config::Job& job);

}  // namespace switchyard::train
