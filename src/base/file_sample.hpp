// Recognizing a file without reading all of it.
#pragma once

#include <filesystem>

#include "base/fingerprint.hpp"

namespace switchyard {

/// Adds the size of a file and all of its bytes up to 64 KiB; of more 64 pieces of 1 KiB, evenly spread from the first
/// to the last.
/// errors  UserError if it can't be read
void add_sample(Fingerprint& fingerprint, const std::filesystem::path& path);

}  // namespace switchyard
