#include "files/checkpoint_folder.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.hpp"
#include "base/fingerprint.hpp"
#include "files/crc32c.hpp"
#include "files/disk.hpp"
#include "files/tensorboard.hpp"

namespace switchyard::files {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kMarker = "COMMITTED";
constexpr const char* kPartial = ".partial";
constexpr const char* kPrefix = "step-";
constexpr const char *kLog = "log.jsonl", *kValidations = "validation.jsonl";
constexpr const char *kAbandoned = "abandoned-", *kWandbId = "wandb-id";

fs::path checkpoints_of(const fs::path& run) { return run / "checkpoints"; }

/// The step of a folder called step-00000050; -1 for another name.
i64 step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const std::string digits = name.starts_with(kPrefix) ? name.substr(std::string(kPrefix).size()) : "";
  if (digits.size() < 8 || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoll(digits);
}

bool is_committed(const fs::path& folder) { return fs::exists(folder / kMarker); }

fs::path without_slash(const fs::path& folder) { return folder.has_filename() ? folder : folder.parent_path(); }

/// Removes a folder that readers ignore. What remains is no harm, and the next begin() tries again.
void remove_partial(const fs::path& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

/// Removes what killed writers left.
void remove_partials(const fs::path& run) {
  if (!fs::is_directory(checkpoints_of(run))) return;
  for (const auto& item : fs::directory_iterator(checkpoints_of(run)))
    if (item.path().extension() == kPartial) remove_partial(item.path());
}

/// Paths relative to `folder` of all its files, sorted; the marker is left out.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& item : fs::recursive_directory_iterator(folder)) {
    if (item.is_regular_file() && item.path().filename() != kMarker)
      files.push_back(fs::relative(item.path(), folder).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The marker's entry for a file: its size, and the checksum of a JSON file (tensors are too large to read twice).
json description(const fs::path& path) {
  json result = {{"bytes", fs::file_size(path)}};
  if (path.extension() == ".json") result["crc32c"] = crc32c(read_text(path));
  return result;
}

void sync_all(const fs::path& folder) {
  for (const auto& item : fs::recursive_directory_iterator(folder)) {
    if (item.is_directory()) {
      sync_folder(item.path());
    } else {
      const Descriptor file = open_for_appending(item.path());
      sync(file, item.path());
    }
  }
  sync_folder(folder);
}

// A resumed run keeps the log up to its checkpoint's step, so that must be on the disk first.
void sync_logs(const fs::path& run) {
  for (const char* name : {kLog, kValidations})
    if (fs::exists(run / name)) sync(open_for_appending(run / name), run / name);
  sync_folder(run);
}

void move_to(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) disk_error("rename to", to, errno);
}

/// Renames `from` to `to`, and removes what had that name.
void take_name(const fs::path& from, const fs::path& to) {
  if (!fs::exists(to)) {
    move_to(from, to);
  } else if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    remove_partial(from);
  } else {
    // Network file systems can't exchange names. A kill between these two renames loses only this step's checkpoint.
    const fs::path old = fs::path(to).concat(".old").concat(kPartial);
    move_to(to, old);
    move_to(from, to);
    remove_partial(old);
  }
  sync_folder(to.parent_path());
}

/// The first RUN/abandoned-N that is free.
fs::path free_abandoned(const fs::path& run) {
  for (int number = 1;; ++number) {
    const std::string name = fmt::format("{}{}", kAbandoned, number);
    if (!fs::exists(run / name) && !fs::exists(checkpoints_of(run) / name)) return run / name;
  }
}

/// Makes the folder for the checkpoints of a run folder that is set aside. Where RUN/checkpoints is a link, possibly to
/// another disk, it lies where the link leads, and is a link, too.
fs::path make_checkpoints_aside(const fs::path& run, const fs::path& aside) {
  const fs::path folder = checkpoints_of(aside);
  if (fs::is_symlink(checkpoints_of(run))) {
    const fs::path there = fs::canonical(checkpoints_of(run)) / aside.filename();
    make_folder(there);
    make_folder(aside);
    fs::create_directory_symlink(there, folder);
  } else {
    make_folder(folder);
  }
  return folder;
}

/// UserError for the first fault of a committed checkpoint.
void check_files(const fs::path& folder) {
  const fs::path marker = folder / kMarker;
  if (!fs::exists(marker)) user_error("{} is not a complete checkpoint: it has no {} file.", folder.string(), kMarker);
  const json promised = json::parse(read_text(marker), nullptr, false);
  if (!promised.is_object() || !promised.contains("files") || !promised["files"].is_object())
    user_error("{} is damaged.", marker.string());
  for (const auto& [name, said] : promised["files"].items()) {
    const fs::path path = folder / name;
    if (!fs::exists(path)) user_error("{} is missing.", path.string());
    if (!fs::is_regular_file(path)) user_error("{} is no file.", path.string());
    const json found = description(path);
    if (said == found) continue;
    const bool resized = !said.is_object() || said.value("bytes", json()) != found["bytes"];
    user_error("{} is damaged: {}.", path.string(),
               resized ? fmt::format("it has {} bytes, {} were written", found["bytes"].dump(),
                                     said.is_object() ? said.value("bytes", json()).dump() : "?")
                       : "its checksum differs");
  }
  validate_shards(folder, read_manifest(folder));
  read_meta(folder);
}

/// What a check says; nothing if all is right.
std::optional<std::string> fault_of(const std::function<void()>& check) {
  try {
    check();
    return std::nullopt;
  } catch (const UserError& error) {
    return error.what();
  }
}

/// The fault of a checkpoint as text; nothing if it is intact.
std::optional<std::string> fault_of(const fs::path& folder) {
  return fault_of([&] { check_files(folder); });
}

std::vector<CheckpointPlace> list_folder(const fs::path& checkpoints) {
  if (!fs::is_directory(checkpoints)) return {};
  for (;;) {
    std::vector<CheckpointPlace> places;
    bool gone = false;
    for (const auto& item : fs::directory_iterator(checkpoints)) {
      const i64 step = step_of(item.path());
      if (step < 0) continue;
      if (is_committed(item.path())) {
        places.push_back({step, item.path()});
      } else if (!fs::exists(fs::symlink_status(item.path()))) {
        gone = true;
      }
    }
    std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
    if (!places.empty() || !gone) return places;  // else the run goes on and has removed it, for newer ones
  }
}

// The place of a corpus without a name stands in the object itself.
std::vector<DataPlace> places_of(const json& object) {
  const json sources = object.value("sources", json::array({object}));
  std::vector<DataPlace> places;
  for (const json& source : sources)
    places.push_back({.source = source.value("name", ""),
                      .epoch = source.at("epoch").get<i64>(),
                      .position = source.at("position").get<i64>(),
                      .offset = source.at("offset").get<i64>(),
                      .drawn = source.value("drawn", 0.0),
                      .documents = source.value("documents", i64{0}),
                      .tokens = source.value("corpus_tokens", i64{0})});
  return places;
}

}  // namespace

void write_meta(const fs::path& checkpoint, const CheckpointMeta& meta) {
  json object = {
      {"step", meta.step},           {"updates", meta.updates},   {"tokens", meta.tokens},          {"seed", meta.seed},
      {"decay_end", meta.decay_end}, {"schedule", meta.schedule}, {"fingerprint", meta.fingerprint}};
  for (const DataPlace& place : meta.places) {
    json entry = {{"epoch", place.epoch},
                  {"position", place.position},
                  {"offset", place.offset},
                  {"documents", place.documents},
                  {"corpus_tokens", place.tokens}};
    if (place.source.empty()) {
      object.update(entry);
    } else {
      entry.update({{"name", place.source}, {"drawn", place.drawn}});
      object["sources"].push_back(std::move(entry));
    }
  }
  write_text(checkpoint / "meta.json", object.dump(2) + "\n");
}

CheckpointMeta read_meta(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "meta.json";
  const std::string text = read_text(path);
  try {
    const json object = json::parse(text);
    const auto number = [&](const char* key) { return object.at(key).get<i64>(); };
    return {.step = number("step"),
            .updates = number("updates"),
            .tokens = number("tokens"),
            .seed = number("seed"),
            .decay_end = object.value("decay_end", i64{0}),
            .schedule = object.value("schedule", ""),
            .places = places_of(object),
            .fingerprint = object.at("fingerprint").get<std::string>()};
  } catch (const json::exception& error) {
    user_error("{}: {}. The checkpoint is damaged: resume from another one.", path.string(), error.what());
  }
}

fs::path checkpoint_path(const fs::path& run, i64 step) {
  return checkpoints_of(run) / fmt::format("{}{:08}", kPrefix, step);
}

fs::path partial_path(const fs::path& run, i64 step, std::uint32_t attempt) {
  return checkpoint_path(run, step).concat(fmt::format(".{:08x}{}", attempt, kPartial));
}

CheckpointWriter CheckpointWriter::begin(const fs::path& run, i64 step, std::uint32_t attempt) {
  make_folder(checkpoints_of(run));
  remove_partials(run);
  CheckpointWriter writer;
  writer.partial_ = partial_path(run, step, attempt);
  writer.final_ = checkpoint_path(run, step);
  make_folder(writer.partial_ / "model");
  make_folder(writer.partial_ / "state");
  return writer;
}

CheckpointWriter::CheckpointWriter(CheckpointWriter&& other) noexcept
    : partial_(std::exchange(other.partial_, {})), final_(std::move(other.final_)) {}

CheckpointWriter::~CheckpointWriter() {
  if (!partial_.empty()) remove_partial(partial_);
}

fs::path CheckpointWriter::commit() {
  check(!partial_.empty(), "commit {}: it was committed before", final_.string());
  read_meta(partial_);
  validate_shards(partial_, read_manifest(partial_));
  sync_all(partial_);
  sync_logs(final_.parent_path().parent_path());
  json files = json::object();
  for (const std::string& name : files_below(partial_)) files[name] = description(partial_ / name);
  write_text(partial_ / kMarker, json{{"files", files}}.dump(1) + "\n");
  take_name(partial_, final_);
  partial_.clear();
  return final_;
}

std::vector<CheckpointPlace> list_checkpoints(const fs::path& run) { return list_folder(checkpoints_of(run)); }

std::optional<CheckpointPlace> newest_complete(const fs::path& run) {
  const auto places = list_checkpoints(run);
  if (places.empty()) return std::nullopt;
  return places.back();
}

CheckpointPlace find_checkpoint(const fs::path& folder) {
  if (is_committed(folder)) {
    verify_checkpoint(folder);
    return {read_meta(folder).step, folder};
  }
  for (;;) {
    const auto newest = newest_complete(folder);
    if (!newest) {
      if (!fs::exists(folder))
        user_error("{} does not exist. Give a run folder, or a checkpoint in it.", folder.string());
      user_error("{} holds no complete checkpoint. Give a run folder with checkpoints/step-... in it, or one of these.",
                 folder.string());
    }
    try {
      verify_checkpoint(newest->folder);
      return {read_meta(newest->folder).step, newest->folder};
    } catch (const std::exception&) {
      if (is_committed(newest->folder)) throw;  // else the run goes on and has removed it, for newer ones
    }
  }
}

namespace {

/// UserError if there is a fault: with an intact older checkpoint to resume from.
void refuse(const std::optional<std::string>& fault, const fs::path& checkpoint) {
  if (!fault) return;
  const fs::path folder = without_slash(fs::absolute(checkpoint).lexically_normal());
  auto older = list_folder(folder.parent_path());
  std::erase_if(older, [&](const CheckpointPlace& place) { return place.step >= step_of(folder); });
  while (!older.empty() && fault_of(older.back().folder)) older.pop_back();
  if (older.empty())
    user_error("{} No older checkpoint of this run is intact: start anew with --force, which sets the run aside.",
               *fault);
  user_error("{} Resume from the one before: --resume {}", *fault, older.back().folder.string());
}

}  // namespace

void verify_checkpoint(const fs::path& checkpoint) { refuse(fault_of(checkpoint), checkpoint); }

void verify_shard(const fs::path& checkpoint, const std::string& shard) {
  refuse(fault_of([&] { verify_checksums(checkpoint, shard); }), checkpoint);
}

std::uint64_t fingerprint(const fs::path& checkpoint) {
  Fingerprint fingerprint;
  fingerprint.add(read_text(checkpoint / kMarker));
  return fingerprint.value();
}

bool is_checkpoint_of(const fs::path& checkpoint, const fs::path& run) {
  // The checkpoint itself may be a link, perhaps to another disk.
  const fs::path folder = without_slash(fs::absolute(checkpoint).lexically_normal()).parent_path();
  return fs::weakly_canonical(folder) == fs::weakly_canonical(checkpoints_of(run));
}

std::optional<AbandonedLine> set_aside_after(const fs::path& run, i64 step) {
  auto later = list_checkpoints(run);
  std::erase_if(later, [&](const CheckpointPlace& place) { return place.step <= step; });
  if (later.empty()) return std::nullopt;
  AbandonedLine line;
  line.folder = free_abandoned(run);
  const fs::path aside = make_checkpoints_aside(run, line.folder);
  for (const char* name : {kLog, kValidations, "job.toml", kRunModel, "plan.json", "timeline.json"})
    if (fs::exists(run / name)) write_text(line.folder / name, read_text(run / name));
  if (fs::exists(run / kWandbId)) move_to(run / kWandbId, line.folder / kWandbId);  // the new line is another run there
  for (const CheckpointPlace& place : later) line.steps.push_back(place.step);
  for (auto place = later.rbegin(); place != later.rend(); ++place)
    move_to(place->folder, aside / place->folder.filename());
  sync_folder(aside);
  sync_folder(checkpoints_of(run));
  return line;
}

bool holds_run(const fs::path& run) {
  std::error_code none;
  const auto logged = fs::file_size(run / kLog, none);
  return (!none && logged > 0) || newest_complete(run);
}

fs::path set_aside(const fs::path& run) {
  remove_partials(run);
  const fs::path folder = free_abandoned(run);
  std::vector<fs::path> moved{"job.toml",      kRunModel,     kValidations, "plan.json",
                              "timeline.json", "report.html", kWandbId,     "wandb"};
  for (const auto& item : fs::directory_iterator(run))
    if (item.path().filename().string().starts_with(kEventsPrefix)) moved.push_back(item.path().filename());
  moved.emplace_back(kLog);  // last: after a kill the folder still holds a run
  if (fs::is_symlink(checkpoints_of(run))) {
    const fs::path aside = make_checkpoints_aside(run, folder);
    for (const CheckpointPlace& place : list_checkpoints(run)) move_to(place.folder, aside / place.folder.filename());
  } else {
    make_folder(folder);
    moved.insert(moved.begin(), checkpoints_of(run).filename());
  }
  for (const fs::path& name : moved)
    if (fs::exists(run / name)) move_to(run / name, folder / name);
  sync_folder(folder);
  sync_folder(run);
  return folder;
}

std::vector<std::string> remove_old_checkpoints(const fs::path& run, int keep) {
  const auto is_intact = [](const fs::path& folder) {
    try {
      check_files(folder);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  };
  const auto places = list_checkpoints(run);
  std::vector<std::string> failures;
  const size_t stay = static_cast<size_t>(std::max(keep, 1));
  for (size_t i = 0; i + stay < places.size(); ++i) {
    // The folder is renamed first, so that a kill while it is removed leaves no part of a checkpoint that looks whole.
    const fs::path leaving = fs::path(places[i].folder).concat(kPartial);
    std::error_code failed, ignored;
    fs::rename(places[i].folder, leaving, failed);
    if (!failed) fs::remove_all(leaving, failed);
    if (!failed) continue;
    if (is_intact(leaving)) fs::rename(leaving, places[i].folder, ignored);
    failures.push_back(fmt::format("cannot remove {}: {}", places[i].folder.string(), failed.message()));
  }
  return failures;
}

}  // namespace switchyard::files
