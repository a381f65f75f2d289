// A cluster file as a parsed table, whatever it was written in.
#pragma once

#include <optional>
#include <string>

#include "cluster/hardware.hpp"
#include "config/toml_nodes.hpp"

namespace switchyard::config {

/// As load_hardware.
cluster::Hardware hardware_from_table(const toml::table& table, const std::string& origin, std::optional<int> ranks);

}  // namespace switchyard::config
