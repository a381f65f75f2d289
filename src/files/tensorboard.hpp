// Scalars for TensorBoard: event files of TFRecords with Event messages.
// Source: tensorflow/core/lib/io/record_writer, tensorboard/compat/proto/{event,summary}.proto.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "files/disk.hpp"

namespace switchyard::files {

/// One record: length, its checksum, payload, its checksum.
std::string tf_record(std::string_view payload);
/// Tag ("train/loss") and value; stored as fp32.
using Scalars = std::vector<std::pair<std::string, double>>;

/// How the names of files with events begin.
inline constexpr std::string_view kEventsPrefix = "events.out.tfevents.";

/// Appends to a new file with events of a folder; every call reaches the file before it returns.
/// Errors: ClusterError naming the file.
class EventWriter {
 public:
  /// first_step: the first step that a resumed run logs. Viewers then drop the steps from there on that an earlier file
  /// has.
  static EventWriter create(const std::filesystem::path& folder, i64 first_step = 0);
  /// wall_time: seconds since 1970; negative: now.
  void add(i64 step, const Scalars& scalars, double wall_time = -1);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

}  // namespace switchyard::files
