// A log of JSON objects, one per line.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "base/dtype.hpp"
#include "files/disk.hpp"

namespace switchyard::files {

/// A file of a run's folder. Errors: ClusterError naming the file.
class JsonLines {
 public:
  /// Makes the folder; appends to an existing log. Lines whose "step" is above `step`, and a last line that a killed
  /// run left half-written, are dropped first (the file is replaced atomically).
  static JsonLines open(const std::filesystem::path& folder, i64 step, const char* name = "log.jsonl");
  /// Writes one line before it returns. Numbers that aren't finite become null.
  void append(const nlohmann::ordered_json& object);
  const std::filesystem::path& path() const { return path_; }
  /// The "step" of the last line that was there and stays; 0 if there is none.
  i64 last_kept() const { return last_kept_; }

 private:
  i64 last_kept_ = 0;
  std::filesystem::path path_;
  Descriptor file_;
};

}  // namespace switchyard::files
