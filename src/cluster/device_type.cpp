#include "cluster/device_type.hpp"

#include <array>

namespace switchyard::cluster {

std::string_view name_of(DeviceType type) {
  return std::array<std::string_view, 3>{"auto", "cpu", "cuda"}[static_cast<size_t>(type)];
}

}  // namespace switchyard::cluster
