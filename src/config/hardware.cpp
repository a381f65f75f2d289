#include "config/hardware.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/count_of.hpp"
#include "base/file_text.hpp"
#include "base/text.hpp"
#include "codecs/codec.hpp"
#include "config/errors.hpp"
#include "config/hardware_table.hpp"
#include "config/profile.hpp"

namespace switchyard::config {
namespace {

using cluster::EfficiencyCurve;
using cluster::Hardware;

constexpr int kMostRanks = 1'000'000;
// Instead of a number of ranks: as many as a host of the file has devices.
constexpr int kWholeHost = std::numeric_limits<int>::min();
// Bounds of any quantity in its plain unit: byte counts stay finite, and times neither zero nor infinite.
constexpr double kLeast = 1e-18, kMost = 1e18;

/// How a quantity is written: as text with a unit, or as a bare number.
struct Notation {
  const char* wanted;
  double (*parse)(const std::string& text);  // nullptr: numbers only
};
double memory_count(const std::string& text) { return static_cast<double>(parse_bytes(text).count); }
double duration_count(const std::string& text) { return parse_duration(text).count; }
double bandwidth_count(const std::string& text) { return parse_bandwidth(text).count; }
double flop_rate_count(const std::string& text) { return parse_flop_rate(text).count; }
constexpr Notation kMemory{"an amount of memory such as \"80 GB\" is needed", memory_count};
constexpr Notation kDuration{"a duration such as \"5 us\" is needed", duration_count};
constexpr Notation kBandwidth{"a bandwidth such as \"300 GB/s\" is needed", bandwidth_count};
constexpr Notation kFlopRate{"a compute rate such as \"312 TFLOP/s\" is needed", flop_rate_count};
constexpr Notation kShare{"a share from 0 to 1 is needed", nullptr};
constexpr Notation kFactor{"a factor from 1 to 2 is needed", nullptr};
constexpr Notation kSpeedup{"a factor of at least 1 is needed", nullptr};
constexpr Notation kByteSizes{"sizes are bytes, such as 65536 or \"64 KiB\"", memory_count};
constexpr Notation kPlainSizes{"sizes are numbers", nullptr};
constexpr Notation kDurationSizes{"sizes are seconds, such as 1e-3 or \"1 ms\"", duration_count};

/// A number, or text that the notation can parse; nothing for other types. UserError for text that it can't parse.
std::optional<double> quantity_of(const toml::node& node, const Notation& notation) {
  if (const auto integer = node.value_exact<i64>()) return static_cast<double>(*integer);
  if (const auto number = node.value_exact<double>()) return *number;
  const auto text = node.value_exact<std::string>();
  return text && notation.parse ? std::optional(notation.parse(*text)) : std::nullopt;
}

/// One table of the file. Every key that is asked for is known; all others are reported as unknown.
struct Section {
  std::string name;                    // "device.bf16"; "" for the whole file
  const toml::table* table = nullptr;  // nullptr if the file has no such section
  std::string where;                   // "my.toml:7"
  std::vector<std::string> asked;

  std::string key(const std::string& part) const { return name.empty() ? part : name + "." + part; }
};

class Reader {
 public:
  Reader(std::string origin, Errors& errors) : origin_(std::move(origin)), errors_(errors) {}
  Hardware read(const toml::table& root, std::optional<int> ranks);

 private:
  const toml::node* find(Section& section, const std::string& part) const;
  Section subsection(Section& parent, const std::string& part, const char* needed);
  std::string text(Section& section, const std::string& part);
  double quantity(Section& section, const std::string& part, const Notation& notation, bool zero_too = false);
  double optional_quantity(Section& section, const std::string& part, const Notation& notation, double fallback,
                           bool zero_too = false);
  bool yes(Section& section, const std::string& part, bool fallback = false);
  std::optional<int> count(Section& section, const std::string& part, i64 most);
  EfficiencyCurve curve(Section& section, const std::string& part, const Notation& sizes);
  std::optional<EfficiencyCurve::Point> point(const toml::node& item, const Notation& sizes,
                                              std::string& message) const;

  std::map<std::string, cluster::CodecRates> read_codecs(Section& device);
  cluster::DeviceType device_type(Section& device);
  void read_device(Section& root, cluster::Device& device);
  std::optional<cluster::Rates> read_rates(Section& device, const std::string& part, BytesPerSecond memory);
  std::optional<cluster::LinkClass> read_link(Section& links, const std::string& part, const char* needed, int devices);
  void read_hosts(Section& root, Hardware& hardware);
  void read_host_names(const toml::array& list, const std::string& place, Hardware& hardware);
  void fit_ranks(Hardware& hardware, std::optional<int> ranks);
  void close(const Section& section);
  void report_unknown();

  std::string where(const toml::node& node) const {
    return node.source().begin.line == 0 ? origin_ : fmt::format("{}:{}", origin_, node.source().begin.line);
  }
  void wrong(const std::string& name, const toml::node& node, const std::string& message) {
    const bool container = node.is_table() || node.is_array();
    errors_.add(where(node), fmt::format("{}{} {}.", name, container ? "" : " = " + shown(node), message));
  }
  /// A key that the section has.
  void wrong(const Section& section, const std::string& part, const std::string& message) {
    wrong(section.key(part), *section.table->get(part), message);
  }

  std::string origin_;
  Errors& errors_;
  std::vector<std::string> known_;                            // keys asked for
  std::vector<std::pair<std::string, std::string>> unknown_;  // key, where
  bool hosts_given_ = false, hosts_faulty_ = false;
  std::string hosts_where_;
};

const toml::node* Reader::find(Section& section, const std::string& part) const {
  section.asked.push_back(part);
  return section.table == nullptr ? nullptr : section.table->get(part);
}

/// needed: what a required section is for; nullptr if the section is optional.
Section Reader::subsection(Section& parent, const std::string& part, const char* needed) {
  const toml::node* node = find(parent, part);
  Section section{.name = parent.key(part),
                  .table = node == nullptr ? nullptr : node->as_table(),
                  .where = node == nullptr ? parent.where : where(*node),
                  .asked = {}};
  if (node != nullptr && section.table == nullptr) {
    wrong(section.name, *node, fmt::format("is {}; a section [{}] is needed", type_name(*node), section.name));
  } else if (node == nullptr && needed != nullptr && (parent.table != nullptr)) {
    errors_.add(parent.where, fmt::format("[{}] is missing; {}.", section.name, needed));
  }
  return section;
}

std::string Reader::text(Section& section, const std::string& part) {
  const toml::node* node = find(section, part);
  if (node == nullptr) {
    if (section.table != nullptr)
      errors_.add(section.where, fmt::format("{} is missing; a string is needed.", section.key(part)));
    return "";
  }
  if (const auto value = node->value_exact<std::string>()) return *value;
  wrong(section.key(part), *node, fmt::format("is {}; a string is needed", type_name(*node)));
  return "";
}

/// A quantity above 0, or with zero_too at least 0. 1 in an absent section: its absence has been reported where it
/// matters.
double Reader::quantity(Section& section, const std::string& part, const Notation& notation, bool zero_too) {
  const toml::node* node = find(section, part);
  const std::string name = section.key(part);
  if (node == nullptr) {
    if (section.table != nullptr) errors_.add(section.where, fmt::format("{} is missing; {}.", name, notation.wanted));
    return 1;
  }
  try {
    const std::optional<double> value = quantity_of(*node, notation);
    if (!value) {
      wrong(name, *node, fmt::format("is {}; {}", type_name(*node), notation.wanted));
    } else if (std::isfinite(*value) && *value != 0 && (std::abs(*value) < kLeast || std::abs(*value) > kMost)) {
      wrong(name, *node, fmt::format("is out of range: use {:g} to {:g}", kLeast, kMost));
    } else if (!std::isfinite(*value) || !(zero_too ? *value >= 0 : *value > 0)) {
      wrong(name, *node, zero_too ? "must be at least 0" : "must be above 0");
    } else {
      return *value;
    }
  } catch (const UserError& error) {
    errors_.add(where(*node), fmt::format("{} = {}", name, error.what()));
  }
  return 1;
}

double Reader::optional_quantity(Section& section, const std::string& part, const Notation& notation, double fallback,
                                 bool zero_too) {
  if (section.table != nullptr && section.table->contains(part)) return quantity(section, part, notation, zero_too);
  section.asked.push_back(part);
  return fallback;
}

/// The key's value; false if it is wrong or missing.
bool Reader::yes(Section& section, const std::string& part, bool fallback) {
  if (section.table == nullptr || !section.table->contains(part)) {
    section.asked.push_back(part);
    return fallback;
  }
  const toml::node* node = find(section, part);
  const auto value = node->value_exact<bool>();
  if (!value) wrong(section.key(part), *node, fmt::format("is {}; true or false is needed", type_name(*node)));
  return value.value_or(fallback);
}

/// A number of at least 1; nothing if it is wrong or missing.
std::optional<int> Reader::count(Section& section, const std::string& part, i64 most) {
  const toml::node* node = find(section, part);
  const std::string name = section.key(part);
  if (node == nullptr) {
    if (section.table != nullptr) errors_.add(section.where, fmt::format("{} is missing; an integer is needed.", name));
    return std::nullopt;
  }
  const auto value = node->value_exact<i64>();
  if (!value) {
    wrong(name, *node, fmt::format("is {}; an integer is needed", type_name(*node)));
  } else if (*value < 1 || *value > most) {
    wrong(name, *node, fmt::format("must be at least 1 and at most {}", most));
  } else {
    return static_cast<int>(*value);
  }
  return std::nullopt;
}

std::optional<EfficiencyCurve::Point> Reader::point(const toml::node& item, const Notation& sizes,
                                                    std::string& message) const {
  const toml::array* pair = item.as_array();
  if (pair == nullptr || pair->size() != 2) {
    message = "must be a list of pairs [size, share]";
    return std::nullopt;
  }
  try {
    const std::optional<double> size = quantity_of(*pair->get(0), sizes);
    const std::optional<double> share = quantity_of(*pair->get(1), kPlainSizes);
    if (size && share) return EfficiencyCurve::Point{*size, *share};
    message = fmt::format("has a point {}; {}, shares are numbers", shown(item), sizes.wanted);
  } catch (const UserError& error) {
    message = fmt::format("has a point {}: {}", shown(item), error.what());
    if (message.back() == '.') message.pop_back();
  }
  return std::nullopt;
}

EfficiencyCurve Reader::curve(Section& section, const std::string& part, const Notation& sizes) {
  const toml::node* node = find(section, part);
  if (node == nullptr) return {};
  const std::string name = section.key(part);
  const toml::array* list = node->as_array();
  EfficiencyCurve curve;
  std::string message;
  if (list == nullptr) {
    message = fmt::format("is {}; a list of pairs [size, share] is needed", type_name(*node));
  } else if (list->empty()) {
    message = "has no points; leave it out where the peak is reached at any size";
  } else {
    for (const toml::node& item : *list) {
      const std::optional<EfficiencyCurve::Point> next = point(item, sizes, message);
      if (!next) break;
      curve.points.push_back(*next);
    }
    if (const std::string shape = message.empty() ? curve.error() : ""; !shape.empty()) message = "is wrong: " + shape;
  }
  if (message.empty()) return curve;
  wrong(name, *node, message);
  return {};
}

/// Records the keys that were asked for as known, and the section's other keys as unknown.
void Reader::close(const Section& section) {
  for (const std::string& part : section.asked) known_.push_back(section.key(part));
  if (section.table == nullptr) return;
  for (const auto& [part, node] : *section.table) {
    const std::string name(part.str());
    if (std::find(section.asked.begin(), section.asked.end(), name) == section.asked.end()) {
      unknown_.emplace_back(section.key(name), where(node));
    }
  }
}

void Reader::report_unknown() {
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  for (const auto& [name, place] : unknown_) {
    const auto same = std::ranges::find(known_, last(name), last);
    const std::string likely = same != known_.end() ? *same : nearest_name(name, known_);
    errors_.add(place, fmt::format("{} is not a key. {}", name,
                                   likely.empty() ? "docs/cluster-format.md lists all keys."
                                                  : fmt::format("Did you mean {}?", likely)));
  }
}

/// The rates of a data type; nothing if the file has no such section.
std::optional<cluster::Rates> Reader::read_rates(Section& device, const std::string& part, BytesPerSecond memory) {
  Section section = subsection(device, part, nullptr);
  cluster::Rates rates;
  rates.matmul = {quantity(section, "matmul", kFlopRate)};
  rates.memory = {optional_quantity(section, "memory_bandwidth", kBandwidth, memory.count)};
  rates.matmul_curve = curve(section, "matmul_curve", kPlainSizes);
  rates.attention = {optional_quantity(section, "attention", kFlopRate, 0)};
  rates.attention_backward = {optional_quantity(section, "attention_backward", kFlopRate, 0)};
  close(section);
  return section.table == nullptr ? std::nullopt : std::optional(rates);
}

// Rates of the codecs that the file names.
std::map<std::string, cluster::CodecRates> Reader::read_codecs(Section& device) {
  Section section = subsection(device, "codecs", nullptr);
  std::map<std::string, cluster::CodecRates> read;
  for (int i = 0; i < codecs::kCodecs; ++i) {
    const std::string name(name_of(static_cast<codecs::Codec>(i)));
    Section codec = subsection(section, name, nullptr);
    const cluster::CodecRates rates{.encode = {quantity(codec, "encode", kBandwidth)},
                                    .decode = {quantity(codec, "decode", kBandwidth)},
                                    .message = {optional_quantity(codec, "message", kDuration, 0, true)}};
    close(codec);
    if (codec.table != nullptr) read[name] = rates;
  }
  close(section);
  return read;
}

// "cpu" where the file does not say it.
cluster::DeviceType Reader::device_type(Section& device) {
  using enum cluster::DeviceType;
  const toml::node* node = find(device, "type");
  if (node == nullptr) return cpu;
  const std::string type = node->value_exact<std::string>().value_or("");
  if (type == name_of(cuda)) return cuda;
  if (type != name_of(cpu)) wrong(device, "type", "must be \"cpu\" or \"cuda\"");
  return cpu;
}

void Reader::read_device(Section& root, cluster::Device& device) {
  Section section = subsection(root, "device", "it gives what one device can do");
  device.name = text(section, "name");
  device.type = device_type(section);
  device.torch_elements = yes(section, "torch_elements");
  device.memory = {static_cast<i64>(quantity(section, "memory", kMemory))};
  device.reserve = {static_cast<i64>(optional_quantity(section, "reserve", kMemory, 0, true))};
  if (device.reserve >= device.memory && section.table != nullptr && section.table->contains("memory"))
    wrong(section, "reserve", "must be below device.memory");
  const BytesPerSecond memory{quantity(section, "memory_bandwidth", kBandwidth)};
  device.launch = {quantity(section, "launch", kDuration, true)};
  device.host_launch = {optional_quantity(section, "host_launch", kDuration, 0, true)};
  device.host_waits = yes(section, "host_waits");
  device.memory_curve = curve(section, "memory_curve", kByteSizes);
  device.width_curve = curve(section, "width_curve", kPlainSizes);
  device.lockstep_curve = curve(section, "lockstep_curve", kDurationSizes);
  device.alone_speedup = optional_quantity(section, "alone_speedup", kSpeedup, 1);
  if (device.alone_speedup < 1)
    wrong(section, "alone_speedup", "must be at least 1 (the devices of a host don't slow each other down)");
  for (const DType type : {DType::bf16, DType::f32, DType::f64}) {
    const std::string part(name_of(Precision{.compute = type, .state = type}));
    if (const std::optional<cluster::Rates> rates = read_rates(section, part, memory)) device.rates[type] = *rates;
  }
  device.codecs = read_codecs(section);
  if (device.rates.empty() && section.table != nullptr) {
    errors_.add(section.where,
                "device has no rates; add a section [device.bf16], [device.fp32] or [device.fp64] with matmul.");
  }
  close(section);
}

/// A class of links; nothing if the file has no such section.
std::optional<cluster::LinkClass> Reader::read_link(Section& links, const std::string& part, const char* needed,
                                                    int devices) {
  Section section = subsection(links, part, needed);
  cluster::LinkClass link;
  link.latency = {quantity(section, "latency", kDuration, true)};
  link.bandwidth = {quantity(section, "bandwidth", kBandwidth)};
  if (section.table != nullptr && section.table->contains("shared_by"))
    link.shared_by = count(section, "shared_by", devices).value_or(1);
  section.asked.push_back("shared_by");
  link.sum_share = optional_quantity(section, "sum_share", kShare, 1);
  if (link.sum_share > 1) wrong(section, "sum_share", "must be at most 1");
  link.overlap_slowdown = optional_quantity(section, "overlap_slowdown", kFactor, 0);
  if (link.overlap_slowdown != 0 && (link.overlap_slowdown < 1 || link.overlap_slowdown > 2))
    wrong(section, "overlap_slowdown", "must be at least 1 (no slowdown) and at most 2 (serialized)");
  link.pair_bandwidth = {optional_quantity(section, "pair_bandwidth", kBandwidth, 0)};
  if (link.pair_bandwidth.count > link.bandwidth.count)
    wrong(section, "pair_bandwidth",
          fmt::format("must be at most the bandwidth of a port, {:g} GB/s", link.bandwidth.count / 1e9));
  link.curve = curve(section, "curve", kByteSizes);
  close(section);
  return section.table == nullptr ? std::nullopt : std::optional(link);
}

void Reader::read_host_names(const toml::array& list, const std::string& place, Hardware& hardware) {
  for (const toml::node& item : list) {
    const auto name = item.value_exact<std::string>();
    if (!name || name->empty()) {
      errors_.add(place,
                  fmt::format("hosts has an entry {}; a list holds names of hosts, such as [\"alpha\", \"beta\"].",
                              shown(item)));
      hosts_faulty_ = true;
      return;
    }
    if (std::find(hardware.host_names.begin(), hardware.host_names.end(), *name) != hardware.host_names.end()) {
      errors_.add(place, fmt::format("hosts names \"{}\" twice; name each host once.", *name));
      hosts_faulty_ = true;
      return;
    }
    hardware.host_names.push_back(*name);
  }
  hardware.hosts = static_cast<int>(hardware.host_names.size());
  if (hardware.hosts > 0) return;
  errors_.add(place, "hosts is empty; name at least one host, or leave the key out and let the ranks decide.");
  hosts_faulty_ = true;
}

/// Reads `hosts`: a number, a list of names, or left out.
void Reader::read_hosts(Section& root, Hardware& hardware) {
  const toml::node* node = find(root, "hosts");
  hosts_given_ = node != nullptr;
  if (node == nullptr) return;
  hosts_where_ = where(*node);
  if (const toml::array* list = node->as_array()) {
    read_host_names(*list, hosts_where_, hardware);
    return;
  }
  const auto value = node->value_exact<i64>();
  hosts_faulty_ = !value || *value < 1 || *value > kMostRanks;
  if (!value) {
    wrong("hosts", *node, fmt::format("is {}; an integer or a list of names is needed", type_name(*node)));
  } else if (hosts_faulty_) {
    wrong("hosts", *node,
          fmt::format("must be at least 1 and at most {}; leave it out to let the ranks decide", kMostRanks));
  } else {
    hardware.hosts = static_cast<int>(*value);
  }
}

/// All that a device computes takes 1 / factor of the time.
void make_faster(cluster::Device& device, double factor) {
  device.launch = {device.launch.count / factor};
  for (auto& [type, rates] : device.rates) {
    for (FlopsPerSecond* rate : {&rates.matmul, &rates.attention, &rates.attention_backward}) rate->count *= factor;
    rates.memory.count *= factor;
  }
  for (auto& [type, tables] : device.operators)
    for (auto& [name, table] : tables) {
      for (cluster::MeasuredCall& call : table.calls) call.seconds /= factor;
      for (cluster::MeasuredAttention& one : table.attention)
        for (double* time : {&one.per_row, &one.per_pair, &one.per_square}) *time /= factor;
    }
  for (auto& [name, codec] : device.codecs) {
    for (BytesPerSecond* rate : {&codec.encode, &codec.decode}) rate->count *= factor;
    codec.message = {codec.message.count / factor};
  }
}

/// Leaves so many devices of a host without a rank that `kept` are left. Those compute with what the others of their
/// host would take: rates become those of as many devices while all of them are busy.
void keep_devices(Hardware& hardware, int kept) {
  double& alone = hardware.device.alone_speedup;
  const double left = std::max(1.0, alone * kept / hardware.devices_per_host);  // what is left of the speedup
  if (alone > 1) make_faster(hardware.device, alone / left);
  alone = left;
  hardware.devices_per_host = kept;
}

/// Keeps as many devices as there are ranks, in whole hosts or part of one host; returns what is wrong, or "".
/// hosts_given: whether there are no more hosts than it has.
std::string keep_ranks(Hardware& hardware, int ranks, bool hosts_given) {
  const i64 devices = hardware.devices_per_host, capacity = devices * hardware.hosts;
  const i64 needed = (ranks + devices - 1) / devices;  // hosts
  if (ranks < 1 || ranks > kMostRanks)
    return fmt::format("{} ranks; at least 1 and at most {} are needed.", ranks, kMostRanks);
  if (hosts_given && ranks > capacity)
    return fmt::format("{} ranks don't fit on {} with {}{}. Use at most {}, or a cluster of {} hosts{}.", ranks,
                       count_of(hardware.hosts, "host"), count_of(devices, "device"),
                       hardware.hosts == 1 ? "" : " each", count_of(capacity, "rank"), needed,
                       hardware.inter_host ? "" : " with [links.inter_host]");
  if (ranks > devices && ranks % devices != 0)
    return fmt::format("{} ranks are not a whole number of hosts with {} devices each. Use {} or {} ranks.", ranks,
                       devices, (needed - 1) * devices, needed * devices);
  hardware.hosts = static_cast<int>(needed);
  keep_devices(hardware, std::min(ranks, hardware.devices_per_host));
  if (!hardware.host_names.empty()) hardware.host_names.resize(static_cast<size_t>(needed));
  return "";
}

void Reader::fit_ranks(Hardware& hardware, std::optional<int> ranks) {
  if (ranks == kWholeHost) ranks = hardware.devices_per_host;
  const i64 devices = hardware.devices_per_host, capacity = devices * hardware.hosts;
  if (!ranks) {
    if (!hosts_given_)
      errors_.add(origin_, "hosts is not set, and the number of ranks is not given. Set hosts, or pass --ranks N.");
    if (hosts_given_ && capacity > kMostRanks) {
      errors_.add(hosts_where_, fmt::format("{} hosts with {} devices each are {} devices; at most {} are supported.",
                                            hardware.hosts, devices, capacity, kMostRanks));
    }
    return;
  }
  const std::string& place = hosts_given_ && *ranks > capacity ? hosts_where_ : origin_;
  if (const std::string wrong = keep_ranks(hardware, *ranks, hosts_given_); !wrong.empty()) errors_.add(place, wrong);
}

Hardware Reader::read(const toml::table& table, std::optional<int> ranks) {
  Section root{.name = "", .table = &table, .where = origin_, .asked = {}};
  Hardware hardware;
  hardware.name = text(root, "name");
  read_hosts(root, hardware);
  const std::optional<int> devices = count(root, "devices_per_host", kMostRanks);
  hardware.devices_per_host = devices.value_or(1);
  hardware.overlap_slowdown = quantity(root, "overlap_slowdown", kFactor);
  if (hardware.overlap_slowdown < 1 || hardware.overlap_slowdown > 2)
    wrong(root, "overlap_slowdown", "must be at least 1 (no slowdown) and at most 2 (serialized)");
  hardware.overlaps_collectives = yes(root, "overlap_collectives", true);
  read_device(root, hardware.device);
  const bool one_host = hosts_given_ && !hosts_faulty_ && hardware.hosts == 1;
  Section links = subsection(root, "links", "it gives the links inside a host and between hosts");
  const int sharers = devices.value_or(kMostRanks);
  hardware.intra_host =
      read_link(links, "intra_host", "it gives the links inside a host", sharers).value_or(cluster::LinkClass{});
  hardware.inter_host =
      read_link(links, "inter_host", one_host ? nullptr : "it gives the links between hosts", sharers);
  close(links);
  close(root);
  report_unknown();
  if (devices && !hosts_faulty_) fit_ranks(hardware, ranks);
  return hardware;
}

std::string known_names() {
  std::vector<std::string_view> names;
  for (const ShippedCluster& shipped : shipped_clusters()) names.push_back(shipped.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool is_shipped(std::string_view name) {
  return std::ranges::any_of(shipped_clusters(), [&](const ShippedCluster& shipped) { return shipped.name == name; });
}

/// Devices and links of one cluster on the hosts of a topology.
Hardware on_hosts(const std::string& name, const std::string& topology, std::optional<int> ranks) {
  const cluster::Cluster placed = cluster::from_spec(topology);
  const int hosts = placed.hosts(), devices = placed.ranks() / hosts;
  for (int rank = 0; rank < placed.ranks(); ++rank)
    if (placed.host[static_cast<size_t>(rank)] != rank / devices)
      user_error("{} has hosts with unlike numbers of slots; as many on each host are needed. Change the slots.",
                 topology);
  Hardware hardware = load_hardware(name, kWholeHost);
  if (devices > hardware.devices_per_host)
    user_error("cluster {} has {} on a host, but {} has {}. Use at most {} on each host.", name,
               count_of(hardware.devices_per_host, "device"), topology, devices, hardware.devices_per_host);
  if (hosts > 1 && !hardware.inter_host)
    user_error("cluster {} has no [links.inter_host], which the {} hosts of {} need. Add it.", name, hosts, topology);
  hardware.hosts = hosts;
  keep_devices(hardware, devices);
  hardware.host_names = placed.names;
  if (ranks)
    if (const std::string wrong = keep_ranks(hardware, *ranks, true); !wrong.empty())
      user_error("{}: {}", topology, wrong);
  return hardware;
}

}  // namespace

Hardware hardware_from_toml(const std::string& text, const std::string& origin, std::optional<int> ranks) {
  return hardware_from_table(parse_toml(text, origin), origin, ranks);
}

Hardware hardware_from_table(const toml::table& table, const std::string& origin, std::optional<int> ranks) {
  Errors errors("the cluster file");
  Hardware hardware = Reader(origin, errors).read(table, ranks);
  errors.throw_if_any();
  return hardware;
}

bool is_cluster_file(const std::string& spec) {
  return is_shipped(spec) || spec.ends_with(".toml") || spec.ends_with(".json") || spec.find(':') != std::string::npos;
}

cluster::Cluster load_cluster(const std::string& spec, std::optional<int> ranks) {
  return is_cluster_file(spec) ? load_hardware(spec, ranks).placement() : cluster::from_spec(spec);
}

void require_cluster(const std::string& spec) {
  if (spec.empty()) user_error("no cluster is named. Give --cluster one of {}, or a cluster file.", known_names());
}

Hardware load_hardware(const std::string& spec, std::optional<int> ranks) {
  for (const ShippedCluster& shipped : shipped_clusters()) {
    if (shipped.name != spec) continue;
    return hardware_from_toml(std::string(shipped.text), fmt::format("clusters/{}.toml", shipped.name), ranks);
  }
  if (spec.ends_with(".json")) return read_profile(spec, ranks).hardware;
  const std::optional<std::string> text = file_text(spec);
  if (text && spec.ends_with(".toml")) return hardware_from_toml(*text, spec, ranks);
  if (const size_t colon = spec.rfind(':'); !text && colon != std::string::npos)
    return on_hosts(spec.substr(0, colon), spec.substr(colon + 1), ranks);
  if (text || cluster::is_topology(spec))
    user_error(
        "cluster \"{0}\" says which hosts there are, but not what their devices and links can do. Name a cluster "
        "before it, such as {1}:{0}; known names: {2}. A cluster file's name ends in .toml.",
        spec, shipped_clusters().back().name, known_names());
  user_error("cluster \"{}\" is neither a file nor a known name. Check the path, or use one of {}.", spec,
             known_names());
}

}  // namespace switchyard::config
