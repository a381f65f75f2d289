// A cluster file as a parsed table, whatever it was written in.
#pragma once

#include <optional>
#include <string>

#include "cluster/hardware.hpp"
#include "config/toml_nodes.hpp"

namespace switchyard::config {

/// Reads a cluster from a parsed table, as load_hardware does.
cluster::Hardware hardware_from_table(const toml::table& table, const std::string& origin, std::optional<int> ranks);

}  // namespace switchyard::config
