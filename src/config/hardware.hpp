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

/// What --cluster names: a shipped cluster by its name, a cluster file (.toml), or a profile (.json,
/// config/profile.hpp). With ":" and a topology behind it ("h100-80g:2x8", "h100-80g:hostfile") its devices are on
/// those hosts. With `ranks`: only as many devices as there are ranks, in whole hosts or part of one host. Where the
/// file leaves `hosts` open, they follow from the ranks. errors  UserError with a line per error: where, the key, what
/// is wrong and how to fix it
cluster::Hardware load_hardware(const std::string& spec, std::optional<int> ranks = std::nullopt);

/// UserError with the known names if the text is empty.
void require_cluster(const std::string& spec);

/// Whether load_hardware takes it: it names devices and links, too, and not hosts alone.
bool is_cluster_file(const std::string& spec);

/// Where the ranks are, for commands that need no rates: as load_hardware says, or a topology ("2x8", a hostfile).
cluster::Cluster load_cluster(const std::string& spec, std::optional<int> ranks = std::nullopt);

/// The same from text; `origin` names it in messages.
cluster::Hardware hardware_from_toml(const std::string& text, const std::string& origin,
                                     std::optional<int> ranks = std::nullopt);

}  // namespace switchyard::config
