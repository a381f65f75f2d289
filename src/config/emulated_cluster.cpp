#include "config/emulated_cluster.hpp"

#include <vector>

#include "base/errors.hpp"
#include "config/hardware.hpp"

namespace switchyard::config {
namespace {

constexpr Seconds kBetweenHosts{50e-6}, kInsideHosts{10e-6};  // latencies of the short form

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts{""};
  for (const char c : text)
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

// "2x4", with any numbers.
bool is_product(const std::string& text) {
  return text.find('x') != std::string::npos && text.find_first_not_of("-0123456789x") == std::string::npos;
}

// Without a unit a rate would be bytes a second, which nobody means.
void require_unit(const std::string& spec, const std::string& part, const char* example) {
  if (part.find_first_of("123456789") != std::string::npos && part.find_first_not_of("0123456789. ") == part.npos)
    user_error("the emulated cluster \"{}\" has \"{}\" without a unit. Write one, such as {}.", spec, part, example);
}

// "2x4:200Mbit/s,800Mbit/s,40MiB".
cluster::Hardware from_short_form(const std::string& spec, const std::string& topology, const std::string& rest) {
  const cluster::Cluster placed = cluster::from_spec(topology);
  cluster::Hardware hardware;
  hardware.name = spec;
  hardware.hosts = placed.hosts();
  hardware.devices_per_host = placed.ranks() / placed.hosts();
  const std::vector<std::string> parts = parts_of(rest);
  const bool several = hardware.hosts > 1;
  if (parts.size() != (several ? 3u : 2u))
    user_error("the emulated cluster \"{}\" needs {}, such as {}:{}800Mbit/s,40MiB. Separate them by commas.", spec,
               several
                   ? "three things behind the colon: the bandwidth of a host, that of a device inside, and its memory"
                   : "two things behind the colon: the bandwidth of a device inside its host, and its memory",
               topology, several ? "200Mbit/s," : "");
  for (size_t i = 0; i < parts.size(); ++i) require_unit(spec, parts[i], i + 1 < parts.size() ? "800Mbit/s" : "40MiB");
  if (several)
    hardware.inter_host = cluster::LinkClass{
        .latency = kBetweenHosts, .bandwidth = parse_bandwidth(parts[0]), .shared_by = hardware.devices_per_host};
  hardware.intra_host = {.latency = kInsideHosts, .bandwidth = parse_bandwidth(parts[parts.size() - 2])};
  hardware.device.memory = parse_bytes(parts.back());
  if (hardware.intra_host.bandwidth.count <= 0 || (several && hardware.inter_host->bandwidth.count <= 0) ||
      hardware.device.memory.count <= 0)
    user_error("the emulated cluster \"{}\" has bandwidths and memory of 0. They must be above 0.", spec);
  return hardware;
}

}  // namespace

cluster::Hardware emulated_hardware(const std::string& spec, std::optional<int> ranks) {
  if (const size_t colon = spec.find(':'); colon != std::string::npos && is_product(spec.substr(0, colon))) {
    const std::string topology = spec.substr(0, colon);
    if (!cluster::is_topology(topology))
      user_error("the emulated cluster \"{}\" has {} hosts and devices per host. Each is a number from 1 to 1000000.",
                 spec, topology);
    return from_short_form(spec, topology, spec.substr(colon + 1));
  }
  if (spec.ends_with(".json")) {
    Profile profile = read_profile(spec);
    require_emulable(profile, spec);
    return profile.hardware;
  }
  if (cluster::is_topology(spec))
    user_error(
        "the emulated cluster \"{0}\" says which hosts there are, but not what their links and devices can do. Write "
        "{0}:200Mbit/s,800Mbit/s,40MiB for the bandwidth of a host to the others, that of a device inside, and its "
        "memory.",
        spec);
  cluster::Hardware hardware = load_hardware(spec, ranks);
  hardware.name = spec;
  hardware.device = {
      .name = hardware.device.name, .memory = hardware.device.memory, .reserve = hardware.device.reserve};
  return hardware;
}

void require_emulable(const Profile& profile, const std::string& path) {
  if (profile.machine.fabric != kEmulatedFabric)
    user_error(
        "{0} is a profile of a machine by the time on its clock, with which nothing can be emulated. Measure one by "
        "processor time: switchyard profile --emulate 2x4:200Mbit/s,800Mbit/s,40MiB --out {0}.",
        path);
}

bool has_rates(const cluster::Hardware& emulated) { return !emulated.device.rates.empty(); }

cluster::Hardware with_cores(cluster::Hardware emulated, const cluster::Device& core) {
  emulated.device = {.name = core.name,
                     .memory = emulated.device.memory,
                     .reserve = emulated.device.reserve,
                     .rates = core.rates,
                     .operators = core.operators,
                     .codecs = core.codecs};
  return emulated;
}

}  // namespace switchyard::config
