#pragma once

#include <string_view>

namespace switchyard::cluster {

/// Whose kernels compute. automatic: those of the machine or the cluster, which a job does not say; no device of a
/// cluster is automatic.
enum class DeviceType { automatic, cpu, cuda };

/// "auto", "cpu", "cuda"
std::string_view name_of(DeviceType type);

}  // namespace switchyard::cluster
