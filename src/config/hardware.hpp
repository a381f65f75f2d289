// Cluster files: hosts, devices and links with their constants, as TOML (docs/cluster-format.md).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cluster/hardware.hpp"

namespace switchyard::config {

/// A cluster file that the program carries within it: clusters/<name>.toml.
struct ShippedCluster {
  std::string_view name;
  std::string_view text;
};
/// All shipped clusters, sorted by name.
std::span<const ShippedCluster> shipped_clusters();

/// A shipped cluster by name, else the file at that path; one that ends in .json is a profile (config/profile.hpp).
/// With `ranks`: only as many devices of the cluster as there are ranks, in whole hosts or part of one host. Where the
/// file leaves `hosts` open, they follow from the ranks.
/// errors  UserError with a line per error: where, the key, what is wrong and how to fix it
cluster::Hardware load_hardware(const std::string& path_or_name, std::optional<int> ranks = std::nullopt);

/// The same from text; `origin` names it in messages.
cluster::Hardware hardware_from_toml(const std::string& text, const std::string& origin,
                                     std::optional<int> ranks = std::nullopt);

}  // namespace switchyard::config
