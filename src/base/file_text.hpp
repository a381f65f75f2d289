// The text of a file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace switchyard {

/// The whole of a file or pipe that people write: a job, a strategy, a cluster. UserError if it has more than 64 MiB,
/// as a device that never ends. Nothing where it can't be read; errno then has the reason, such as EISDIR for a folder.
std::optional<std::string> file_text(const std::filesystem::path& path);

}  // namespace switchyard
