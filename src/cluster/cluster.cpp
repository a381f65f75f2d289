#include "cluster/cluster.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::cluster {
namespace {

/// A positive number that fills all of `text`; 0 if it is anything else or above a million.
int positive(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 && value <= 1'000'000 ? value : 0;
}

struct HostLine {
  std::string name;
  int slots = 1;
};

HostLine parse_host(const std::string& text, const std::string& path, int number) {
  std::istringstream words(text);
  HostLine line;
  words >> line.name;
  if (line.name.find('=') != std::string::npos) {
    user_error("{}:{}: the line starts with \"{}\". Write the host's name first: name slots=N", path, number,
               line.name);
  }
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const int value = equals == std::string::npos ? 0 : positive(std::string_view(word).substr(equals + 1));
    if (key != "slots" && key != "max_slots" && key != "max-slots") {
      user_error("{}:{}: \"{}\" is not understood. A line is: name slots=N [max_slots=M]", path, number, word);
    }
    if (value == 0) user_error("{}:{}: \"{}\" needs a positive whole number, e.g. {}=8", path, number, word, key);
    if (key == "slots") line.slots = value;
  }
  return line;
}

/// Hosts and devices of "2x8".
std::optional<std::pair<int, int>> topology_of(std::string_view spec) {
  const size_t cross = spec.find('x');
  if (cross == std::string_view::npos) return std::nullopt;
  const int hosts = positive(spec.substr(0, cross)), devices = positive(spec.substr(cross + 1));
  if (hosts == 0 || devices == 0) return std::nullopt;
  return std::pair(hosts, devices);
}

}  // namespace

int Cluster::hosts() const { return host.empty() ? 0 : *std::max_element(host.begin(), host.end()) + 1; }

Link Cluster::link(int from, int to) const {
  if (from == to) return Link::local;
  return same_host(from, to) ? Link::intra_host : Link::inter_host;
}

Cluster uniform(int hosts, int devices) {
  check(hosts > 0 && devices > 0, "cluster of {} hosts with {} devices", hosts, devices);
  Cluster cluster;
  for (int h = 0; h < hosts; ++h) cluster.host.insert(cluster.host.end(), static_cast<size_t>(devices), h);
  return cluster;
}

bool is_topology(std::string_view spec) { return topology_of(spec).has_value(); }

Cluster from_spec(std::string_view spec) {
  const auto topology = topology_of(spec);
  if (!topology) {
    if (std::filesystem::is_regular_file(spec)) return from_hostfile(std::string(spec));
    user_error("cluster \"{}\" is not understood. Give hosts x devices per host, e.g. 2x8, or the path of a hostfile.",
               spec);
  }
  const auto [hosts, devices] = *topology;
  if (static_cast<i64>(hosts) * devices > 1'000'000) {
    user_error("cluster \"{}\" has {} devices; at most 1000000 are supported.", spec,
               static_cast<i64>(hosts) * devices);
  }
  return uniform(hosts, devices);
}

Cluster from_hostfile(const std::string& path) {
  std::ifstream file(path);
  if (!file) user_error("hostfile \"{}\" cannot be read. Check the path.", path);
  std::vector<HostLine> lines;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    text.resize(std::min(text.size(), text.find('#')));
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const HostLine line = parse_host(text, path, number);
    const auto known =
        std::find_if(lines.begin(), lines.end(), [&](const HostLine& other) { return other.name == line.name; });
    if (known == lines.end()) {
      lines.push_back(line);
    } else {
      known->slots += line.slots;  // like Open MPI: slots of a repeated host add up
    }
  }
  if (lines.empty()) user_error("hostfile \"{}\" names no host. A line is: name slots=N", path);
  Cluster cluster;
  for (size_t h = 0; h < lines.size(); ++h) {
    cluster.names.push_back(lines[h].name);
    cluster.host.insert(cluster.host.end(), static_cast<size_t>(lines[h].slots), static_cast<int>(h));
  }
  return cluster;
}

}  // namespace switchyard::cluster
