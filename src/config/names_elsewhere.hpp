// What other programs call the ways to split a model.
#pragma once

#include <string_view>

namespace switchyard::config {

/// A sentence that says what is written here in place of a strategy's key of another program, such as "cp" or "fsdp";
/// empty if there is no such key.
std::string_view instead_of(std::string_view key);

}  // namespace switchyard::config
