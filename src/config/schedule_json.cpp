#include "config/schedule_json.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/errors.hpp"
#include "config/json_node.hpp"

namespace switchyard::config {
namespace {

using schedule::Item;
using schedule::Placement;
using schedule::Schedule;

/// Takes a number off the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

/// "F0", "W12.1".
std::optional<Item> item_of(std::string_view word) {
  Item item;
  bool known = false;
  for (const Pass pass : {Pass::F, Pass::B, Pass::W, Pass::BW})  // the longest name last
    if (word.starts_with(name_of(pass))) {
      item.pass = pass;
      known = true;
    }
  if (!known) return std::nullopt;
  word.remove_prefix(name_of(item.pass).size());
  const auto mb = take_number(word);
  if (!mb) return std::nullopt;
  item.mb = *mb;
  if (word.empty()) return item;
  if (word[0] != '.') return std::nullopt;
  word.remove_prefix(1);
  const auto chunk = take_number(word);
  if (!chunk || !word.empty()) return std::nullopt;
  item.chunk = *chunk;
  return item;
}

void check_range(const Node& node, const std::string& word, const Item& item, const Schedule& schedule) {
  if (item.mb >= schedule.mbs) {
    node.error("has {}, but \"micro_batches\" is {}: their numbers begin at 0. Raise it, or take the item out.",
               quoted(word), schedule.mbs);
  }
  if (item.chunk >= schedule.chunks) {
    node.error("has {}, but \"chunks\" is {}: their numbers begin at 0. Raise it, or take the item out.", quoted(word),
               schedule.chunks);
  }
}

std::vector<Item> read_stage(const Node& node, const Schedule& schedule) {
  const std::string line = node.text();
  constexpr std::string_view kBlanks = " \t\r\n";
  constexpr size_t kLongest = 40;
  std::vector<Item> items;
  for (size_t begin = line.find_first_not_of(kBlanks); begin != std::string::npos;) {
    const size_t end = std::min(line.find_first_of(kBlanks, begin), line.size());
    const std::string word = line.substr(begin, end - begin);
    const auto item = item_of(word);
    if (!item) {
      node.error(
          "has {} as item {}; write F, B, W or BW, the micro-batch, and for chunks above 0 a dot and the chunk: "
          "\"F3\", "
          "\"W3.1\".",
          quoted(word.substr(0, kLongest)), items.size());
    }
    check_range(node, word, *item, schedule);
    items.push_back(*item);
    begin = line.find_first_not_of(kBlanks, end);
  }
  return items;
}

}  // namespace

std::string to_json(const Schedule& schedule) {
  std::string stages;
  for (const std::vector<Item>& items : schedule.order) {
    stages += fmt::format("{}\n    {}", stages.empty() ? "" : ",", quoted(schedule::to_string(items)));
  }
  return fmt::format(
      "{{\n  \"micro_batches\": {},\n  \"chunks\": {},\n  \"placement\": \"{}\",\n  \"stages\": [{}\n  ]\n}}\n",
      schedule.mbs, schedule.chunks, name_of(schedule.placement), stages);
}

Schedule schedule_from_json(const std::string& text, const std::string& origin) {
  const Json document = parse_json(text, origin, "docs/schedule-format.md has an example.");
  return schedule_from_json(Node(document, origin, ""));
}

Schedule schedule_from_json(const Node& root) {
  root.expect_keys({"micro_batches", "chunks", "placement", "stages"}, {"micro_batches", "stages"});
  Schedule schedule;
  schedule.mbs = root["micro_batches"].small(0);
  constexpr i64 kMostChunks = 1024, kMostStages = 16384;
  if (root.has("chunks")) schedule.chunks = static_cast<int>(root["chunks"].integer(1, kMostChunks));
  if (root.has("placement")) schedule.placement = root["placement"].choice({Placement::loop, Placement::v});
  const std::vector<Node> stages = root["stages"].items();
  if (stages.empty() || stages.size() > static_cast<size_t>(kMostStages))
    root["stages"].error("has {} stages; there must be 1 to {}.", stages.size(), kMostStages);
  for (const Node& stage : stages) schedule.order.push_back(read_stage(stage, schedule));
  try {
    schedule::verify(schedule);
  } catch (const InternalError& error) {
    root["stages"].error("can't run: {}. Fix the order of the items.", error.what());
  }
  return schedule;
}

}  // namespace switchyard::config
