#include "train/checkpoint.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/errors.hpp"
#include "config/job_keys.hpp"
#include "files/checkpoint_folder.hpp"
#include "files/crc32c.hpp"
#include "files/disk.hpp"
#include "files/manifest.hpp"
#include "files/safetensors.hpp"
#include "files/tensor_writer.hpp"
#include "runtime/flat_memory.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::train {
namespace {

constexpr const char* kParts[] = {"master", "m", "v"};
constexpr const char* kResidual = "residual";

constexpr std::string_view kBetweenKeys = ", ";

std::string fingerprint_of(const config::ModelConfig& model) {
  return fmt::format("{}", fmt::join(config::function_of(model), kBetweenKeys));
}

/// The keys that are in the first list and not in the second.
std::string without(std::string_view text, const std::string& other) {
  std::vector<std::string_view> kept;
  const std::string all = fmt::format("{0}{1}{0}", kBetweenKeys, other);
  while (!text.empty()) {
    const size_t end = text.find(kBetweenKeys);
    const std::string_view key = text.substr(0, end);
    if (all.find(fmt::format("{0}{1}{0}", kBetweenKeys, key)) == std::string::npos) kept.push_back(key);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + kBetweenKeys.size());
  }
  return fmt::format("{}", fmt::join(kept, kBetweenKeys));
}

/// UserError unless the state has exactly the model's parameters.
void require_parameters(const files::Manifest& manifest, const ir::Graph& graph, const std::string& checkpoint) {
  constexpr const char* kRemedy = "Use the job file and the program it was made with.";
  for (const char* part : kParts)
    if (std::ranges::find(manifest.parts, part) == manifest.parts.end())
      user_error("checkpoint {}: state/manifest.json has no part \"{}\". {}", checkpoint, part, kRemedy);
  std::set<std::string> known;
  for (const ir::Param& param : graph.params()) {
    known.insert(param.name);
    const auto found = manifest.shapes.find(param.name);
    if (found == manifest.shapes.end())
      user_error("checkpoint {}: state/manifest.json has no {}, which the job's model has. {}", checkpoint, param.name,
                 kRemedy);
    if (found->second != param.shape.size)
      user_error("checkpoint {}: {} has shape {} in state/manifest.json, but {} in the job's model. {}", checkpoint,
                 param.name, found->second, param.shape.size, kRemedy);
  }
  for (const auto& [name, shape] : manifest.shapes)
    if (!known.contains(name))
      user_error("checkpoint {}: state/manifest.json has {}, which the job's model lacks. {}", checkpoint, name,
                 kRemedy);
}

std::span<const std::byte> raw_bytes(const at::Tensor& dense) {
  return {static_cast<const std::byte*>(dense.data_ptr()), static_cast<size_t>(dense.numel()) * dense.element_size()};
}

layout::Box box_of(const files::ManifestEntry& entry) {
  layout::Box box{static_cast<int>(entry.lo.size()), {}, {}};
  for (size_t d = 0; d < entry.lo.size(); ++d) {
    box.lo[d] = entry.lo[d];
    box.hi[d] = entry.hi[d];
  }
  return box;
}

/// Name of the state of one part of a rank's box; number: of the box among those of its parameter (residuals:
/// of the rank).
files::ManifestEntry entry_of(const compiler::Plans& plans, int param, int rank, const layout::Box& box, size_t number,
                              const char* part) {
  const std::string& name = plans.graph().param(param).name;
  return {.tensor = name,
          .part = part,
          .lo = {box.lo.begin(), box.lo.begin() + box.dims},
          .hi = {box.hi.begin(), box.hi.begin() + box.dims},
          .file = files::shard_name(rank, plans.cluster().ranks()),
          .key = fmt::format("{}/{}/{}", part, name, number)};
}

// The writers follow from the plans alone, so rank 0 knows the whole manifest.
files::Manifest manifest_of(const compiler::Plans& plans) {
  files::Manifest manifest;
  manifest.dtype = plans.graph().precision().state;
  for (size_t p = 0; p < plans.graph().params().size(); ++p) {
    const int index = static_cast<int>(p);
    const ir::Param& param = plans.graph().param(index);
    manifest.shapes[param.name] = param.shape.size;
    const auto& shards = plans.owners()[p].shards;
    for (size_t number = 0; number < shards.size(); ++number)
      for (const char* part : kParts)
        manifest.entries.push_back(entry_of(plans, index, shards[number].rank, shards[number].box, number, part));
  }
  for (int rank = 0; rank < plans.cluster().ranks(); ++rank) {
    const std::vector<compiler::Residual>& residuals = plans.residuals()[static_cast<size_t>(rank)];
    for (size_t number = 0; number < residuals.size(); ++number)
      manifest.residuals.push_back(
          {rank, entry_of(plans, residuals[number].param, rank, residuals[number].box, number, kResidual)});
  }
  return manifest;
}

const at::Tensor& part_of(const runtime::HomeShard& shard, const std::string& part) {
  return part == "master" ? shard.master : part == "m" ? shard.m : shard.v;
}

/// The files of state/, each opened when a tensor of it is read.
class StateFiles {
 public:
  StateFiles(std::filesystem::path folder, DType dtype) : folder_(std::move(folder)), dtype_(dtype) {}
  /// A view of the file, as long as this lives.
  at::Tensor tensor(const files::ManifestEntry& entry) {
    auto it = files_.find(entry.file);
    if (it == files_.end()) it = files_.emplace(entry.file, files::TensorFile::open(folder_ / entry.file)).first;
    void* data = const_cast<std::byte*>(it->second.data(entry.key).data());  // read only
    return at::from_blob(data, runtime::sizes_of(box_of(entry)),
                         at::TensorOptions().dtype(runtime::scalar_type(dtype_)));
  }

 private:
  std::filesystem::path folder_;
  DType dtype_;
  std::map<std::string, files::TensorFile> files_;
};

// Error feedback of elements that a rank no longer sends is added to the owners' gradients, which are zero between
// steps.
void load_residuals(const files::Manifest& manifest, StateFiles& state, const compiler::Plans& plans,
                    runtime::Store& store) {
  const int rank = store.holdings.rank();
  std::map<std::string, int> params;
  for (size_t p = 0; p < plans.graph().params().size(); ++p)
    params[plans.graph().param(static_cast<int>(p)).name] = static_cast<int>(p);
  for (const auto& [writer, entry] : manifest.residuals) {
    const int param = params.at(entry.tensor);
    const layout::Box box = box_of(entry);
    std::vector<layout::Box> parts;  // that the writer sends still
    if (writer >= 0 && writer < plans.cluster().ranks())
      parts = compiler::sent_parts(plans.residuals()[static_cast<size_t>(writer)], param, box);
    i64 elements = 0;
    for (const layout::Box& part : parts) {
      if (writer == rank) store.residuals.view(param, part).copy_(runtime::view_of(state.tensor(entry), box, part));
      elements += part.elements();
    }
    if (elements == box.elements()) continue;
    for (const layout::Box* owned : store.holdings.owned(param)) {
      const layout::Box common = layout::intersect(box, *owned);
      if (common.empty()) continue;
      at::Tensor rest = runtime::view_of(state.tensor(entry), box, common).clone();
      for (const layout::Box& part : parts)
        if (const layout::Box taken = layout::intersect(part, common); !taken.empty())
          runtime::view_of(rest, common, taken).zero_();
      const runtime::HomeShard& shard = store.home.shard(param, common);
      runtime::view_of(shard.grad, shard.box, common).add_(rest.to(shard.grad.device()));
    }
  }
}

// Tensors of the Hugging Face folder: parts of a packed tensor together, Conv1D transposed back, all in fp32.
std::vector<files::TensorEntry> model_entries(const ir::Graph& graph) {
  std::map<std::string, std::vector<i64>> shapes;
  for (const ir::Param& param : graph.params()) {
    auto& shape = shapes.try_emplace(param.file.name, param.shape.size).first->second;
    shape[0] = std::max(shape[0], param.file.first + param.shape.size[0]);
  }
  std::vector<files::TensorEntry> entries;
  std::set<std::string> seen;
  for (const ir::Param& param : graph.params()) {
    if (!seen.insert(param.file.name).second) continue;
    std::vector<i64> shape = shapes.at(param.file.name);
    if (param.file.transposed) std::swap(shape[0], shape[1]);
    entries.push_back({param.file.name, DType::f32, shape});
  }
  return entries;
}

void write_to_model(files::TensorFolderWriter& model, const ir::Param& param, const files::ManifestEntry& entry,
                    const at::Tensor& master) {
  at::Tensor values = master.to(at::kFloat);
  std::vector<i64> lo = entry.lo, hi = entry.hi;
  lo[0] += param.file.first;
  hi[0] += param.file.first;
  if (param.file.transposed) {
    values = values.t();
    std::swap(lo[0], lo[1]);
    std::swap(hi[0], hi[1]);
  }
  model.write_box(param.file.name, lo, hi, raw_bytes(values.contiguous()));
}

// A rank's part, to its own file of state/ and to its place in the files of model/.
void write_part(const std::filesystem::path& folder, const StatePart& part, const compiler::Plans& plans, int rank,
                const comm::JointWork::Check& check_others) {
  if (part.boxes.empty()) return;
  std::vector<files::TensorEntry> entries;
  for (const StatePart::Box& box : part.boxes)
    entries.push_back({box.entry.key, plans.graph().precision().state, runtime::sizes_of(box_of(box.entry))});
  const std::string shard = files::shard_name(rank, plans.cluster().ranks());
  files::TensorWriter state = files::TensorWriter::create(folder / "state" / shard, entries);
  files::TensorFolderWriter model = files::TensorFolderWriter::join(folder / "model", model_entries(plans.graph()));
  files::Checksums checksums;
  for (const StatePart::Box& box : part.boxes) {
    check_others();
    const at::Tensor values = box.values.cpu().contiguous();
    state.write(box.entry.key, 0, raw_bytes(values));
    checksums[box.entry.key] = files::crc32c(raw_bytes(values));
    if (box.entry.part == kParts[0]) write_to_model(model, plans.graph().param(box.param), box.entry, values);
  }
  state.finish();
  files::write_checksums(folder, shard, checksums);
  model.finish();
}

// Every shard is checked by one rank: where as many ranks resume as have written, by the one that needs it.
void verify_shards(const std::filesystem::path& checkpoint, const files::Manifest& manifest, int rank, int ranks) {
  std::set<std::string> shards;
  for (const files::ManifestEntry& entry : manifest.entries) shards.insert(entry.file);
  for (const files::ResidualEntry& residual : manifest.residuals) shards.insert(residual.entry.file);
  for (int number = 0; const std::string& shard : shards)
    if (number++ % ranks == rank) files::verify_shard(checkpoint, shard);
}

}  // namespace

StatePart state_part(const compiler::Plans& plans, const runtime::Store& store, int rank) {
  StatePart result;
  for (size_t p = 0; p < plans.graph().params().size(); ++p) {
    const int index = static_cast<int>(p);
    const auto& shards = plans.owners()[p].shards;
    for (size_t number = 0; number < shards.size(); ++number) {
      const layout::Shard& owned = shards[number];
      if (owned.rank != rank) continue;
      const runtime::HomeShard& shard = store.home.shard(index, owned.box);
      for (const char* part : kParts)
        result.boxes.push_back({entry_of(plans, index, rank, owned.box, number, part), index,
                                runtime::view_of(part_of(shard, part), shard.box, owned.box)});
    }
  }
  const std::vector<runtime::Residuals::Part>& residuals = store.residuals.parts();
  for (size_t number = 0; number < residuals.size(); ++number) {
    const auto& [param, box, values] = residuals[number];
    result.boxes.push_back({entry_of(plans, param, rank, box, number, kResidual), param, values});
  }
  return result;
}

StatePart StatePart::copy() const {
  StatePart result = *this;
  for (Box& box : result.boxes)
    box.values = box.values.to(box.values.options().device(at::kCPU), /*non_blocking=*/false, /*copy=*/true,
                               at::MemoryFormat::Contiguous);
  return result;
}

std::vector<std::string> save_checkpoint(const config::Job& job, const files::ModelFiles& model_files,
                                         const compiler::Plans& plans, const StatePart& part, int rank,
                                         comm::JointWork& together, const TrainState& state, std::uint32_t attempt) {
  // Both are destroyed after the last joint work: what a failed checkpoint leaves is not removed while others still
  // write into it.
  std::optional<files::CheckpointWriter> writer;
  std::optional<files::TensorFolderWriter> model;
  std::vector<std::string> not_removed;
  together.run(fmt::format("folder of checkpoint {}", state.step), [&](const auto&) {
    if (rank != 0) return;
    writer.emplace(files::CheckpointWriter::begin(job.run.out, state.step, attempt));
    model.emplace(files::TensorFolderWriter::create(writer->folder() / "model", model_entries(plans.graph())));
  });
  together.run(fmt::format("parts of checkpoint {}", state.step), [&](const auto& check_others) {
    write_part(files::partial_path(job.run.out, state.step, attempt), part, plans, rank, check_others);
  });
  together.run(fmt::format("end of checkpoint {}", state.step), [&](const auto& check_others) {
    if (!writer) return;
    model->finish();
    for (const auto& [name, text] : model_files) files::write_text(writer->folder() / "model" / name, text);
    files::write_manifest(writer->folder(), manifest_of(plans));
    files::CheckpointMeta meta;
    meta.step = state.step;
    meta.updates = state.updates;
    meta.tokens = state.tokens;
    meta.decay_end = state.decay_end;
    meta.schedule = state.schedule;
    meta.seed = job.seed;
    meta.places = state.places;
    meta.fingerprint = fingerprint_of(job.model.config);
    files::write_meta(writer->folder(), meta);
    check_others();
    writer->commit();
    if (job.run.keep_checkpoints > 0)
      not_removed = files::remove_old_checkpoints(job.run.out, static_cast<int>(job.run.keep_checkpoints));
  });
  return not_removed;
}

TrainState load_checkpoint(const std::string& folder, const compiler::Plans& plans, runtime::Store& store,
                           const config::Job& job) {
  const files::CheckpointPlace place = files::find_checkpoint(folder);
  const files::CheckpointMeta meta = files::read_meta(place.folder);
  if (const std::string mine = fingerprint_of(job.model.config); meta.fingerprint != mine)
    user_error("checkpoint {} is of another model ({}) than the job's ({}). Use the job file it was made with.",
               place.folder.string(), without(meta.fingerprint, mine), without(mine, meta.fingerprint));
  if (meta.seed != job.seed)
    user_error(
        "checkpoint {} was made with seed {}, the job has seed {}: the order of the data would change. Set seed = {}.",
        place.folder.string(), meta.seed, job.seed, meta.seed);
  const files::Manifest manifest = files::read_manifest(place.folder);
  require_parameters(manifest, plans.graph(), place.folder.string());
  verify_shards(place.folder, manifest, store.holdings.rank(), plans.cluster().ranks());
  std::map<std::pair<std::string, std::string>, std::vector<const files::ManifestEntry*>> entries;
  for (const files::ManifestEntry& entry : manifest.entries) entries[{entry.tensor, entry.part}].push_back(&entry);
  StateFiles state(place.folder / "state", manifest.dtype);
  for (runtime::HomeUnit& unit : store.home.units())
    for (runtime::HomeShard& shard : unit.shards) {
      for (const char* part : kParts)
        for (const files::ManifestEntry* entry : entries[{plans.graph().param(shard.param).name, part}]) {
          const layout::Box common = layout::intersect(box_of(*entry), shard.box);
          if (common.empty()) continue;
          runtime::view_of(part_of(shard, part), shard.box, common)
              .copy_(runtime::view_of(state.tensor(*entry), box_of(*entry), common));
        }
      if (!shard.compute_copy.is_same(shard.master)) shard.compute_copy.copy_(shard.master);
    }
  load_residuals(manifest, state, plans, store);
  return {.step = meta.step,
          .updates = meta.updates,
          .tokens = meta.tokens,
          .places = meta.places,
          .decay_end = meta.decay_end,
          .schedule = meta.schedule,
          .fingerprint = files::fingerprint(place.folder)};
}

}  // namespace switchyard::train
