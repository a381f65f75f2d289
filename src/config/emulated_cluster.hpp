// Clusters whose devices are emulated by cores of this machine (docs/clusters.md).
#pragma once

#include <optional>
#include <string>

#include "cluster/hardware.hpp"
#include "config/profile.hpp"

namespace switchyard::config {

/// What --emulate names. "2x4:200Mbit/s,800Mbit/s,40MiB": two hosts of four devices, the port of a host to the others,
/// which its devices share, that of a device inside, and its memory; with one host, "1x4:800Mbit/s,40MiB". Latencies
/// are then 50 us and 10 us, and transfers don't slow computing. Otherwise hosts, links and memory are those of a
/// cluster as load_hardware takes it, with as many devices as `ranks`. Devices have no rates, as they compute as this
/// machine's cores do, unless `spec` is a profile (.json) that was made with --emulate. errors  UserError: what is
/// wrong with the text, and how it is written; a profile of a machine itself
cluster::Hardware emulated_hardware(const std::string& spec, std::optional<int> ranks = std::nullopt);

/// UserError, with the path, unless the profile was measured by processor time.
void require_emulable(const Profile& profile, const std::string& path);

/// Whether the devices' rates are known.
bool has_rates(const cluster::Hardware& emulated);

/// The same cluster of devices that compute as `core` does: its rates and operators.
cluster::Hardware with_cores(cluster::Hardware emulated, const cluster::Device& core);

/// How a profile's `fabric` is called that was measured for emulation, by processor time.
inline constexpr const char* kEmulatedFabric = "emulated";

}  // namespace switchyard::config
