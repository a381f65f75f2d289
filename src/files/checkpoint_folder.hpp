// A checkpoint on disk, either complete or absent:
//   RUN/checkpoints/step-00000050/
//     model/     config.json, model*.safetensors               (weights, as Hugging Face)
//     state/     manifest.json, home-00003-of-00008.safetensors (boxes of master weights and moments), .json (their
//                checksums)
//     meta.json  CheckpointMeta
//     COMMITTED  written last: size of every file, checksums of the JSON files
// While it is written it is called step-00000050.1b2f03c4.partial, with a number of the job that writes. When a run
// goes back to an earlier checkpoint, the later ones move to a run folder of their own, RUN/abandoned-1; a run that
// starts anew moves all that is there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "files/manifest.hpp"

namespace switchyard::files {

/// In a run folder: the config.json of model.path as it was when the run began.
inline constexpr const char* kRunModel = "model.json";

/// Where a run draws next from a corpus. source: its name; empty if it is the only one and has none. documents, tokens:
/// of the whole corpus; 0 where an earlier version did not keep them.
struct DataPlace {
  std::string source;
  i64 epoch = 0, position = 0, offset = 0;
  double drawn = 0;  // tokens drawn so far, each over the source's weight at that time
  i64 documents = 0, tokens = 0;
  bool operator==(const DataPlace&) const = default;
};

/// step: optimizer steps done; the next one is `step`. updates: those that were applied (a step with a non-finite
/// gradient is not). decay_end: step at which the learning rate's decay ends, 0 if not known. schedule: of the learning
/// rate, in words; empty if not known. places: where the sampler
/// draws next with this seed. fingerprint: of the model.
struct CheckpointMeta {
  i64 step = 0, updates = 0, tokens = 0, seed = 0, decay_end = 0;
  std::string schedule;
  std::vector<DataPlace> places;
  std::string fingerprint;
  bool operator==(const CheckpointMeta&) const = default;
};
void write_meta(const std::filesystem::path& checkpoint, const CheckpointMeta& meta);
/// UserError naming file and key.
CheckpointMeta read_meta(const std::filesystem::path& checkpoint);

/// RUN/checkpoints/step-00000050
std::filesystem::path checkpoint_path(const std::filesystem::path& run, i64 step);
/// The folder of a checkpoint that is being written; it exists once rank 0 has begun. attempt: the same on every rank
/// of a job, another one in each job, as a rank of a killed job may still write for a while.
std::filesystem::path partial_path(const std::filesystem::path& run, i64 step, std::uint32_t attempt);

/// The transaction that writes a checkpoint, held by one rank. Other ranks write their shards into partial_path between
/// begin() and commit().
class CheckpointWriter {
 public:
  /// Removes what killed writers left, as far as possible, and makes the .partial folder with model/ and state/.
  /// ClusterError naming the path.
  static CheckpointWriter begin(const std::filesystem::path& run, i64 step, std::uint32_t attempt);
  CheckpointWriter(CheckpointWriter&& other) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) = delete;
  /// Removes the folder if it was not committed.
  ~CheckpointWriter();
  const std::filesystem::path& folder() const { return partial_; }
  /// Syncs every file and folder and the run's logs, writes the marker, renames. A checkpoint of the same step is
  /// replaced atomically where the file system allows it. Returns the final folder. UserError if meta.json, a manifest
  /// entry's file or a model file is missing (a run folder that is not shared by all hosts); ClusterError for the disk.
  std::filesystem::path commit();

 private:
  CheckpointWriter() = default;
  std::filesystem::path partial_, final_;
};

/// Committed checkpoints of a run, oldest first: step and folder. Everything else in the folder is ignored.
struct CheckpointPlace {
  i64 step = 0;
  std::filesystem::path folder;
};
std::vector<CheckpointPlace> list_checkpoints(const std::filesystem::path& run);
std::optional<CheckpointPlace> newest_complete(const std::filesystem::path& run);
/// What --resume DIR means: DIR itself if it is a committed checkpoint, else the newest of the run folder DIR.
/// Verified. UserError if there is none, or it is damaged (see verify_checkpoint).
CheckpointPlace find_checkpoint(const std::filesystem::path& folder);
/// Checks that every file has its size, that JSON files have their checksum, and that manifest and shards agree.
/// UserError naming the file and an intact older checkpoint to resume from.
void verify_checkpoint(const std::filesystem::path& checkpoint);
/// Checks a shard's tensors by their checksums, which takes as long as reading them (verify_checksums). UserError as of
/// verify_checkpoint.
void verify_shard(const std::filesystem::path& checkpoint, const std::string& shard);
/// By which ranks recognize the same committed checkpoint, from its marker.
std::uint64_t fingerprint(const std::filesystem::path& checkpoint);
/// Whether `checkpoint` is one of those in RUN/checkpoints.
bool is_checkpoint_of(const std::filesystem::path& checkpoint, const std::filesystem::path& run);

/// Checkpoints that were set aside: their steps, and the run folder that has them now.
struct AbandonedLine {
  std::filesystem::path folder;
  std::vector<i64> steps;
};
/// For a run that goes on from its checkpoint of `step`: moves the later ones to RUN/abandoned-N/checkpoints (N: the
/// first free number from 1), with copies of log.jsonl, job.toml and plan.json, so that this is a run folder that can
/// be resumed and reported. A link RUN/checkpoints stays: they move beside, where it leads. Returns nothing if there
/// are no later ones. The newest is moved first, so that after a kill the others are still the run's newest.
/// ClusterError for the disk.
std::optional<AbandonedLine> set_aside_after(const std::filesystem::path& run, i64 step);

/// Whether the folder has what a run writes: a step in its log, or a checkpoint.
bool holds_run(const std::filesystem::path& run);
/// Moves what a run wrote there to RUN/abandoned-N (N: the first free number from 1), which is a run folder, too, and
/// returns that. The lock, earlier abandoned-* and files that no run writes stay. ClusterError for the disk.
std::filesystem::path set_aside(const std::filesystem::path& run);

/// Removes all but the newest `keep` (at least 1) committed checkpoints. Returns why some could not be removed, a text
/// for each; one of which nothing could be removed stays a checkpoint.
std::vector<std::string> remove_old_checkpoints(const std::filesystem::path& run, int keep);

}  // namespace switchyard::files
