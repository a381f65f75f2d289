#include "config/profile.hpp"

#include <cmath>
#include <limits>
#include <memory>

#include "base/errors.hpp"
#include "base/file_text.hpp"
#include "config/hardware_table.hpp"
#include "config/json_node.hpp"

namespace switchyard::config {
namespace {

using cluster::EfficiencyCurve;
using cluster::Hardware;
using cluster::OperatorTable;

constexpr i64 kDay = 24 * 60 * 60, kFresh = 30 * kDay;
constexpr const char* kRemedy = "Measure again with `switchyard profile`.";

Json json_of(const EfficiencyCurve& curve) {
  Json points = Json::array();
  for (const EfficiencyCurve::Point& point : curve.points) points.push_back({point.size, point.share});
  return points;
}

void add_curve(Json& object, const char* key, const EfficiencyCurve& curve) {
  if (!curve.points.empty()) object[key] = json_of(curve);
}

Json json_of(const cluster::LinkClass& link) {
  Json object = {{"latency", link.latency.count},
                 {"bandwidth", link.bandwidth.count},
                 {"shared_by", link.shared_by},
                 {"sum_share", link.sum_share}};
  if (link.overlap_slowdown > 0) object["overlap_slowdown"] = link.overlap_slowdown;
  if (link.pair_bandwidth.count > 0) object["pair_bandwidth"] = link.pair_bandwidth.count;
  add_curve(object, "curve", link.curve);
  return object;
}

Json json_of(const OperatorTable& table) {
  Json calls = Json::array(), attention = Json::array();
  for (const auto& call : table.calls) calls.push_back({call.rows, call.columns, call.work, call.seconds});
  for (const auto& one : table.attention)
    attention.push_back({one.columns, one.head_dim, one.per_row, one.per_pair, one.per_square});
  return {{"calls", calls}, {"attention", attention}};
}

std::string type_key(DType type) { return std::string(name_of(Precision{.compute = type, .state = type})); }

Json json_of(const Machine& machine) {
  return {{"processor", machine.processor},
          {"device", machine.device},
          {"fabric", machine.fabric},
          {"version", machine.version},
          {"cores", machine.cores},
          {"ranks", machine.ranks},
          {"threads", machine.threads},
          {"measured_at", machine.measured_at},
          {"speed_change", machine.speed_change}};
}

// Converts JSON to TOML nodes, which the reader of cluster files takes.
std::unique_ptr<toml::node> node_of(const Json& value);

toml::table table_of(const Json& object) {
  toml::table table;
  for (const auto& [key, value] : object.items())
    if (const auto node = node_of(value)) table.insert(key, *node);
  return table;
}

std::unique_ptr<toml::node> node_of(const Json& value) {
  if (value.is_object()) return std::make_unique<toml::table>(table_of(value));
  if (value.is_string()) return std::make_unique<toml::value<std::string>>(value.get<std::string>());
  if (value.is_boolean()) return std::make_unique<toml::value<bool>>(value.get<bool>());
  if (value.is_number_integer()) return std::make_unique<toml::value<int64_t>>(value.get<i64>());
  if (value.is_number()) return std::make_unique<toml::value<double>>(value.get<double>());
  if (!value.is_array()) return nullptr;
  auto array = std::make_unique<toml::array>();
  for (const Json& item : value)
    if (const auto node = node_of(item)) array->push_back(*node);
  return array;
}

// A list of `count` numbers, none below 0.
std::vector<double> numbers(const Node& node, size_t count) {
  std::vector<double> values;
  for (const Node& item : node.items()) values.push_back(item.number());
  if (values.size() != count) node.error("has {} numbers; {} are needed. {}", values.size(), count, kRemedy);
  for (const double value : values)
    if (!(value >= 0) || !std::isfinite(value)) node.error("has {}; no quantity is below 0. {}", value, kRemedy);
  return values;
}

OperatorTable read_table(const Node& node) {
  node.expect_keys({"calls", "attention"}, {"calls", "attention"});
  OperatorTable table;
  for (const Node& item : node["calls"].items()) {
    const std::vector<double> n = numbers(item, 4);
    if (n[0] <= 0 || n[3] <= 0) item.error("has {} rows in {} s; both must be above 0. {}", n[0], n[3], kRemedy);
    table.calls.push_back({.rows = n[0], .columns = n[1], .work = n[2], .seconds = n[3]});
  }
  for (const Node& item : node["attention"].items()) {
    const std::vector<double> n = numbers(item, 5);
    if (n[0] <= 0 || n[1] <= 0)
      item.error("has {} columns in heads of {}; both must be above 0. {}", n[0], n[1], kRemedy);
    table.attention.push_back(
        {.columns = n[0], .head_dim = n[1], .per_row = n[2], .per_pair = n[3], .per_square = n[4]});
  }
  return table;
}

Machine read_machine(const Node& node) {
  node.expect_keys(
      {"processor", "device", "fabric", "version", "cores", "ranks", "threads", "measured_at", "speed_change"},
      {"processor", "device", "fabric", "version", "cores", "ranks", "threads", "measured_at"});
  Machine machine{.processor = node["processor"].text(),
                  .device = node["device"].text(),
                  .fabric = node["fabric"].text(),
                  .version = node["version"].text()};
  machine.cores = node["cores"].small(0);
  machine.ranks = node["ranks"].small(1);
  machine.threads = node["threads"].small(0);
  machine.measured_at = node["measured_at"].integer(0, std::numeric_limits<i64>::max());
  if (node.has("speed_change")) machine.speed_change = node["speed_change"].number(0, 1e6);
  return machine;
}

}  // namespace

std::string difference(const Machine& measured, const Machine& here) {
  if (measured.processor != here.processor || measured.cores != here.cores || measured.device != here.device)
    return fmt::format("was measured on {} with {} cores ({}), not on this machine, {} with {} cores ({})",
                       measured.processor, measured.cores, measured.device, here.processor, here.cores, here.device);
  if (measured.version != here.version)
    return fmt::format("was measured by version {}; this is {}", measured.version, here.version);
  if (here.measured_at - measured.measured_at > kFresh)
    return fmt::format("was measured {} days ago", (here.measured_at - measured.measured_at) / kDay);
  return "";
}

std::string to_json(const Profile& profile) {
  const Hardware& h = profile.hardware;
  Json device = {{"name", h.device.name},
                 {"memory", h.device.memory.count},
                 {"reserve", h.device.reserve.count},
                 {"launch", h.device.launch.count},
                 {"host_launch", h.device.host_launch.count}};
  Json operators = Json::object();
  for (const auto& [type, rates] : h.device.rates) {
    if (!device.contains("memory_bandwidth")) device["memory_bandwidth"] = rates.memory.count;
    device[type_key(type)] = {{"matmul", rates.matmul.count}, {"memory_bandwidth", rates.memory.count}};
    add_curve(device[type_key(type)], "matmul_curve", rates.matmul_curve);
  }
  add_curve(device, "width_curve", h.device.width_curve);
  add_curve(device, "memory_curve", h.device.memory_curve);
  add_curve(device, "lockstep_curve", h.device.lockstep_curve);
  device["alone_speedup"] = h.device.alone_speedup;
  for (const auto& [name, rates] : h.device.codecs)
    device["codecs"][name] = {
        {"encode", rates.encode.count}, {"decode", rates.decode.count}, {"message", rates.message.count}};
  for (const auto& [type, tables] : h.device.operators)
    for (const auto& [name, table] : tables) operators[type_key(type)][name] = json_of(table);
  Json links = {{"intra_host", json_of(h.intra_host)}};
  if (h.inter_host) links["inter_host"] = json_of(*h.inter_host);
  const Json document = {{"name", h.name},
                         {"hosts", h.hosts},
                         {"devices_per_host", h.devices_per_host},
                         {"overlap_slowdown", h.overlap_slowdown},
                         {"overlap_collectives", h.overlaps_collectives},
                         {"device", device},
                         {"links", links},
                         {"operators", operators},
                         {"machine", json_of(profile.machine)}};
  return document.dump() + "\n";
}

Profile profile_from_json(const std::string& text, const std::string& origin, std::optional<int> ranks) {
  Json document = parse_json(text, origin, kRemedy);
  const Node root(document, origin, "");
  root.expect_keys(
      {"name", "hosts", "devices_per_host", "overlap_slowdown", "overlap_collectives", "device", "links", "operators",
       "machine"},
      {"name", "hosts", "devices_per_host", "overlap_slowdown", "device", "links", "operators", "machine"});
  Profile profile;
  profile.machine = read_machine(root["machine"]);
  std::map<DType, std::map<std::string, OperatorTable>> operators;
  const Node tables = root["operators"];
  for (const std::string& precision : tables.keys())
    for (const std::string& name : tables[precision].keys())
      operators[precision_from(precision).compute][name] = read_table(tables[precision][name]);
  document.erase("operators");
  document.erase("machine");
  profile.hardware = hardware_from_table(table_of(document), origin, ranks);
  profile.hardware.device.operators = std::move(operators);
  profile.hardware.device.type =
      profile.machine.device == "cuda" ? cluster::DeviceType::cuda : cluster::DeviceType::cpu;
  return profile;
}

Profile read_profile(const std::string& path, std::optional<int> ranks) {
  const std::optional<std::string> text = file_text(path);
  if (!text)
    user_error("profile {} can't be read. Check the path, or measure one with `switchyard profile --out {}`.", path,
               path);
  return profile_from_json(*text, path, ranks);
}

}  // namespace switchyard::config
