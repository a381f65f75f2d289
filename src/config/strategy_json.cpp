// Strategies as JSON files: docs/strategy-format.md.
#include <algorithm>
#include <limits>

#include "base/errors.hpp"
#include "config/json_node.hpp"
#include "config/schedule_json.hpp"
#include "config/strategy.hpp"

namespace switchyard::config {
namespace {

StageMesh read_mesh(const Node& node) {
  StageMesh mesh;
  for (const std::string& key : node.keys()) {
    const auto axes = layout::stage_axes();
    const auto axis = std::ranges::find(axes, key, &layout::StageAxisInfo::name);
    if (axis == axes.end()) {
      std::vector<std::string_view> names;
      for (const layout::StageAxisInfo& info : axes) names.push_back(info.name);
      node.error("has an unknown axis \"{}\". Known are {}.", key, fmt::join(names, ", "));
    }
    mesh[axis->axis] = node[key].small(1);
  }
  return mesh;
}

Stage read_stage(const Node& node) {
  if (node.has("tp"))
    node["tp"].error("is no key any more. Write \"mesh\": {{\"data\": ..., \"outer\": ...}} instead.");
  node.expect_keys({"ranks", "mesh", "layers"}, {"ranks", "layers"});
  Stage stage;
  for (const Node& rank : node["ranks"].items()) stage.ranks.push_back(rank.small(0));
  if (node.has("mesh")) stage.mesh = read_mesh(node["mesh"]);
  const std::vector<Node> layers = node["layers"].items();
  if (layers.size() != 2)
    node["layers"].error("has {} numbers; two are needed: the first layer and the one after the last.", layers.size());
  stage.first_layer = layers[0].small(0);
  stage.end_layer = layers[1].small(0);
  return stage;
}

Group read_group(const Node& node) {
  if (node.has("dp")) node["dp"].error("is no key any more. Write \"mesh\": {{\"data\": ...}} in every stage instead.");
  node.expect_keys({"stages"}, {"stages"});
  Group group;
  for (const Node& stage : node["stages"].items()) group.stages.push_back(read_stage(stage));
  return group;
}

Cut read_cut(const Node& node) {
  if (!node.has("axis")) {
    node.expect_keys({"dim", "axis", "parts"}, {"dim", "parts"});
    return {node["dim"].small(0), node["parts"].small(1)};
  }
  node.expect_keys({"dim", "axis", "parts"}, {"dim", "axis"});
  Cut cut{node["dim"].small(0), node.has("parts") ? node["parts"].small(1) : 0};
  std::vector<std::string_view> names;
  const std::string name = node["axis"].text();
  for (const StageAxis axis : layout::weight_axes()) {
    names.push_back(layout::info_of(axis).name);
    if (names.back() == name) cut.axis = axis;
  }
  if (!cut.axis) node["axis"].error("= {} cuts no weights. Use {}.", quoted(name), fmt::join(names, " or "));
  return cut;
}

ParamSplit read_split(const Node& node) {
  node.expect_keys({"parameter", "cuts"}, {"parameter", "cuts"});
  ParamSplit split;
  split.parameter = node["parameter"].text();
  for (const Node& cut : node["cuts"].items()) split.cuts.push_back(read_cut(cut));
  return split;
}

std::string text_of(const Stage& stage) {
  std::string mesh;
  for (const layout::StageAxisInfo& axis : layout::stage_axes())
    if (const int size = stage.mesh[axis.axis]; size > 1)
      mesh += fmt::format("{}\"{}\": {}", mesh.empty() ? "" : ", ", axis.name, size);
  return fmt::format("{{\"ranks\": [{}], \"mesh\": {{{}}}, \"layers\": [{}, {}]}}", fmt::join(stage.ranks, ", "), mesh,
                     stage.first_layer, stage.end_layer);
}

std::string text_of(const Group& group) {
  std::string stages;
  for (const Stage& stage : group.stages)
    stages += fmt::format("{}\n      {}", stages.empty() ? "" : ",", text_of(stage));
  return fmt::format("{{\"stages\": [{}\n    ]}}", stages);
}

std::string text_of(const Cut& cut) {
  const std::string axis = cut.axis ? fmt::format(", \"axis\": \"{}\"", layout::info_of(*cut.axis).name) : "";
  const std::string parts = cut.axis && cut.parts == 0 ? "" : fmt::format(", \"parts\": {}", cut.parts);
  return fmt::format("{{\"dim\": {}{}{}}}", cut.dim, axis, parts);
}

std::string text_of(const ParamSplit& split) {
  std::string cuts;
  for (const Cut& cut : split.cuts) cuts += (cuts.empty() ? "" : ", ") + text_of(cut);
  return fmt::format("{{\"parameter\": {}, \"cuts\": [{}]}}", quoted(split.parameter), cuts);
}

template <class Item>
std::string text_of(const std::vector<Item>& items) {
  std::string text;
  for (const Item& item : items) text += fmt::format("{}\n    {}", text.empty() ? "" : ",", text_of(item));
  return items.empty() ? "[]" : "[" + text + "\n  ]";
}

// JSON text indented by one level, to stand inside other JSON.
std::string indented(const std::string& page) {
  std::string text;
  for (const char c : page.substr(0, page.find_last_not_of('\n') + 1)) text += c == '\n' ? "\n  " : std::string(1, c);
  return text;
}

std::string text_of(const Compression& compression) {
  if (compression == Compression()) return "";
  return fmt::format(
      ",\n  \"compression\": {{\"gradients\": \"{}\", \"error_feedback\": \"{}\", \"pipeline\": \"{}\", "
      "\"activations\": \"{}\", \"ulysses\": \"{}\", \"keys\": \"{}\", "
      "\"gathers\": \"{}\", \"switches\": \"{}\", \"links\": \"{}\", \"smallest\": {}}}",
      name_of(compression.gradients), name_of(compression.error_feedback), name_of(compression.pipeline),
      name_of(compression.activations), name_of(compression.ulysses), name_of(compression.keys),
      name_of(compression.gathers), name_of(compression.switches), name_of(compression.links),
      compression.smallest.count);
}

// Codecs have the choices of the job's keys.
Compression read_compression(const Node& node) {
  using codecs::Codec;
  node.expect_keys({"gradients", "error_feedback", "pipeline", "activations", "ulysses", "keys", "gathers", "switches",
                    "links", "smallest"},
                   {});
  Compression read;
  if (node.has("gradients"))
    read.gradients =
        node["gradients"].choice({Codec::none, Codec::bf16, Codec::fp8, Codec::int8, Codec::int4, Codec::zfp16,
                                  Codec::zfp8, Codec::top_32, Codec::top_128, Codec::lossless});
  if (node.has("error_feedback"))
    read.error_feedback =
        node["error_feedback"].choice({ErrorFeedback::automatic, ErrorFeedback::on, ErrorFeedback::off});
  const auto any = [&](const char* name, Codec& codec) {
    if (node.has(name))
      codec = node[name].choice(
          {Codec::none, Codec::bf16, Codec::fp8, Codec::int8, Codec::zfp16, Codec::zfp8, Codec::lossless});
  };
  any("pipeline", read.pipeline);
  any("activations", read.activations);
  any("ulysses", read.ulysses);
  any("keys", read.keys);
  any("gathers", read.gathers);
  if (node.has("switches")) read.switches = node["switches"].choice({Codec::none, Codec::lossless});
  if (node.has("links")) read.links = node["links"].choice({CompressedLinks::all, CompressedLinks::hosts});
  if (node.has("smallest")) read.smallest = {node["smallest"].integer(0, std::numeric_limits<i64>::max())};
  return read;
}

}  // namespace

std::string to_json(const Strategy& strategy) {
  return fmt::format(
      "{{\n  \"name\": {},\n  \"groups\": {},\n  \"splits\": {},\n  \"recompute\": \"{}\",\n  \"schedule\": \"{}\",\n"
      "  \"chunks\": {},\n  \"activation_cap\": {},\n  \"sequence_parallel\": {},\n  \"micro_batch_tokens\": {},\n"
      "  \"micro_batch_sequences\": {},\n  \"paired\": {},\n  \"packing\": \"{}\",\n  \"ring_degree\": \"{}\",\n  "
      "\"exchange\": \"{}\",\n"
      "  \"zero\": {},\n  \"every\": {}{}{}\n}}\n",
      quoted(strategy.name), text_of(strategy.groups), text_of(strategy.splits), name_of(strategy.recompute),
      name_of(strategy.schedule), strategy.chunk_count(), strategy.activation_cap, strategy.sequence_parallel,
      strategy.micro_batch_tokens, strategy.micro_batch_sequences, strategy.paired, name_of(strategy.packing),
      name_of(strategy.ring_degree), name_of(strategy.exchange), strategy.zero, strategy.every,
      text_of(strategy.compression),
      strategy.order.order.empty() ? "" : ",\n  \"order\": " + indented(to_json(strategy.order)));
}

Strategy strategy_from_json(const std::string& text, const std::string& origin) {
  const Json document = parse_json(text, origin, "Fix the file, or print a fresh one with `switchyard show strategy`.");
  const Node root(document, origin, "");
  root.expect_keys({"name", "groups", "splits", "recompute", "schedule", "chunks", "activation_cap",
                    "sequence_parallel", "micro_batch_tokens", "micro_batch_sequences", "paired", "packing",
                    "ring_degree", "exchange", "compression", "zero", "every", "order"},
                   {"groups"});
  Strategy strategy;
  strategy.name = root.has("name") ? root["name"].text() : origin;
  for (const Node& group : root["groups"].items()) strategy.groups.push_back(read_group(group));
  if (root.has("splits")) {
    for (const Node& split : root["splits"].items()) strategy.splits.push_back(read_split(split));
  }
  if (root.has("recompute"))
    strategy.recompute =
        root["recompute"].choice({Recompute::none, Recompute::gathers, Recompute::selective, Recompute::full});
  if (root.has("schedule"))
    strategy.schedule =
        root["schedule"].choice({ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                 ScheduleKind::zero_bubble, ScheduleKind::zb_v, ScheduleKind::zeropp});
  if (root.has("order")) strategy.order = schedule_from_json(root["order"]);
  if (root.has("chunks")) strategy.chunks = root["chunks"].small(1);
  strategy.chunks = strategy.chunk_count();
  if (root.has("activation_cap")) strategy.activation_cap = root["activation_cap"].small(0);
  if (root.has("sequence_parallel")) strategy.sequence_parallel = root["sequence_parallel"].boolean();
  if (root.has("micro_batch_tokens"))
    strategy.micro_batch_tokens = root["micro_batch_tokens"].integer(0, std::numeric_limits<i64>::max());
  if (root.has("micro_batch_sequences"))
    strategy.micro_batch_sequences = root["micro_batch_sequences"].integer(0, std::numeric_limits<i64>::max());
  if (root.has("paired")) strategy.paired = root["paired"].boolean();
  if (root.has("packing")) strategy.packing = root["packing"].choice({Packing::balanced, Packing::stream});
  if (root.has("ring_degree"))
    strategy.ring_degree = root["ring_degree"].choice({RingDegree::document, RingDegree::uniform});
  if (root.has("exchange")) strategy.exchange = root["exchange"].choice({KeyPassing::gather, KeyPassing::ring});
  if (root.has("compression")) strategy.compression = read_compression(root["compression"]);
  if (root.has("zero")) strategy.zero = static_cast<int>(root["zero"].integer(0, 3));
  if (root.has("every")) strategy.every = root["every"].small(1);
  return strategy;
}

}  // namespace switchyard::config
