#include "comm/host_names.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/file_text.hpp"

namespace switchyard::comm {
namespace {

constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
constexpr size_t kLongestBootId = 40;  // a UUID's 36 letters, and a line's end

}  // namespace

HostId own_host(const std::string& given) {
  HostId id{};
  const size_t longest = id.size() - kLongestBootId - 2;  // longest name
  if (!given.empty()) {
    given.copy(id.data(), longest);
    return id;
  }
  ::gethostname(id.data(), longest);
  if (const auto boot = file_text(kBootId))
    boot->copy(std::find(id.begin(), id.end(), '\0') + 1, std::min(boot->size(), kLongestBootId));
  return id;
}

cluster::Cluster cluster_of_hosts(const std::vector<HostId>& hosts) {
  cluster::Cluster cluster;
  std::vector<HostId> known;
  for (const HostId& id : hosts) {
    const auto at = std::ranges::find(known, id);
    cluster.host.push_back(static_cast<int>(at - known.begin()));
    if (at != known.end()) continue;
    known.push_back(id);
    const std::string name = id.data();
    const auto of_this_name =
        std::ranges::count(known, name, [](const HostId& one) { return std::string(one.data()); });
    cluster.names.push_back(of_this_name == 1 ? name : name + " (" + std::to_string(of_this_name) + ")");
  }
  return cluster;
}

}  // namespace switchyard::comm
