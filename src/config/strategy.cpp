#include "config/strategy.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/errors.hpp"
#include "config/model.hpp"

namespace switchyard::config {

bool divides_heads(const StageMesh& mesh, const ModelConfig& model) {
  const std::span<const StageAxis> axes = layout::cuts_of(layout::Role::attention, true).features;
  return mesh.parts(axes) <= model.heads && layout::leading_factors(mesh, axes, model.kv_heads);
}

namespace {

/// "outer (tp / inner) = 2 or 4, or ulysses = 1": for each axis that cuts heads, the nearest sizes with which it works
/// while the others stay as they are.
std::string nearest_sizes(const StageMesh& mesh, const ModelConfig& model) {
  std::string text;
  for (const StageAxis axis : layout::cuts_of(layout::Role::attention, true).features) {
    std::vector<int> sizes;
    StageMesh other = mesh;
    const auto works = [&](int size) {
      other[axis] = size;
      return divides_heads(other, model);
    };
    const int most = static_cast<int>(std::min<i64>(model.heads, std::numeric_limits<int>::max()));
    for (int size = std::min(mesh[axis] - 1, most); size >= 1 && sizes.empty(); --size)
      if (works(size)) sizes.push_back(size);
    for (int size = mesh[axis] + 1, known = static_cast<int>(sizes.size());
         size <= most && static_cast<int>(sizes.size()) == known; ++size)
      if (works(size)) sizes.push_back(size);
    if (!sizes.empty())
      text += fmt::format("{}{}{} = {}", text.empty() ? "" : ", or ", layout::info_of(axis).name,
                          axis == StageAxis::outer ? " (tp / inner)" : "", fmt::join(sizes, " or "));
  }
  return text;
}

std::string names_of_head_axes() {
  std::vector<std::string_view> names;
  for (const StageAxis axis : layout::cuts_of(layout::Role::attention, true).features)
    names.push_back(layout::info_of(axis).name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Checks one strategy; every message begins with its name and the place in it.
class Validator {
 public:
  Validator(const Strategy& strategy, const ModelConfig& model, int ranks)
      : strategy_(strategy), model_(model), ranks_(ranks) {}

  void run() {
    if (strategy_.groups.empty()) error("groups", "is empty. Give at least one group of stages.");
    check_schedule();
    for (size_t g = 0; g < strategy_.groups.size(); ++g) check_group(strategy_.groups[g], fmt::format("groups[{}]", g));
    for (size_t i = 0; i < strategy_.splits.size(); ++i) check_split(strategy_.splits[i], fmt::format("splits[{}]", i));
    check_ring_settings();
    if (strategy_.micro_batch_tokens < 0)
      error("micro_batch_tokens", "= {} is negative. Use 0 for the bucket's length.", strategy_.micro_batch_tokens);
  }

 private:
  template <class... Args>
  [[noreturn]] void error(const std::string& place, fmt::format_string<Args...> format, Args&&... args) const {
    user_error("strategy \"{}\": {} {}", strategy_.name, place, fmt::format(format, std::forward<Args>(args)...));
  }

  void check_schedule() const {
    const int chunks = strategy_.chunk_count();
    const bool by_hand = !strategy_.order.order.empty();
    const ScheduleKind kind = strategy_.schedule;
    if (chunks < 1) error("chunks", "= {} must be at least 1.", chunks);
    if (strategy_.activation_cap < 0)
      error("activation_cap", "= {} is negative. Use 0 for the memory of 1F1B.", strategy_.activation_cap);
    if (strategy_.zero < 0 || strategy_.zero > 3)
      error("zero", "= {} is not a ZeRO stage. Use 0, 1, 2 or 3.", strategy_.zero);
    check_every();
    if (strategy_.paired && (by_hand || kind == ScheduleKind::zeropp))
      error("paired", "= true goes with schedules of single micro-batches, not with {}. Leave it out.",
            by_hand ? "an order written by hand" : "blocks of schedule \"zeropp\"");
    if (strategy_.micro_batch_sequences < 0)
      error("micro_batch_sequences", "= {} is negative. Use 0 for any number.", strategy_.micro_batch_sequences);
    if (by_hand && chunks != strategy_.order.chunks)
      error("chunks", "= {}, but the schedule has {}. Leave it out.", chunks, strategy_.order.chunks);
    if (by_hand) return;
    if (strategy_.activation_cap > 0 && kind != ScheduleKind::zero_bubble && kind != ScheduleKind::zb_v)
      error("activation_cap", "= {} goes with schedule \"zero-bubble\" or \"zb-v\", not \"{}\". Leave it out.",
            strategy_.activation_cap, name_of(kind));
    if (chunks > 1 && kind != ScheduleKind::interleaved && kind != ScheduleKind::zb_v && kind != ScheduleKind::zeropp)
      error("chunks",
            "= {} go with schedule \"interleaved\", \"zb-v\" or \"zeropp\", not \"{}\". Use one of them, or one chunk.",
            chunks, name_of(kind));
    if (kind == ScheduleKind::zb_v && chunks != 2)
      error("chunks", "= {}: schedule \"zb-v\" has 2. Leave it out.", chunks);
    if (kind == ScheduleKind::zb_v && strategy_.activation_cap == 1)
      error("activation_cap", "= 1: zb-v holds an activation of each of its two chunks. Use 2 or more.");
  }

  void check_ring_settings() const {
    if (strategy_.has(StageAxis::ring)) return;
    const auto refuse = [&](const char* key, auto value) {
      if (value != decltype(value){})
        error(key, "= \"{}\" has no effect: no stage has a ring. Give ring = 2 or more, or leave it out.",
              name_of(value));
    };
    refuse("ring_degree", strategy_.ring_degree);
    refuse("exchange", strategy_.exchange);
  }

  void check_every() const {
    if (strategy_.every < 1) error("every", "= {} must be at least 1.", strategy_.every);
    const bool blockwise = strategy_.order.order.empty() && strategy_.schedule == ScheduleKind::zeropp;
    if (strategy_.every > 1 && !strategy_.gathers() && !blockwise)
      error("every",
            "= {}: so many micro-batches share the parameters that are gathered for them, but without zero = 3 or "
            "depth none are. Leave it out, or use zero = 3.",
            strategy_.every);
    int stages = 1;
    for (const Group& group : strategy_.groups)
      stages = std::max(stages, static_cast<int>(group.stages.size()) / strategy_.chunk_count());
    if (blockwise && strategy_.every == 1 && stages > 1)
      error("every",
            "= 1: schedule \"zeropp\" takes blocks of so many micro-batches through one chunk after the other, and "
            "with blocks of one, one stage works at a time. Use every = {}, with which none of {} stages has to "
            "wait, or as many as fit the memory.",
            2 * stages - 1, stages);
  }

  void check_group(const Group& group, const std::string& place) {
    if (group.stages.empty()) error(place + ".stages", "is empty. Give at least one stage.");
    const int positions = static_cast<int>(group.stages.size()), chunks = strategy_.chunk_count();
    if (positions % chunks != 0)
      error(place + ".stages", "are {}, which {} chunks don't divide. Give every stage the same number of chunks.",
            positions, chunks);
    if (const int stages = strategy_.order.stages(); stages > 0 && stages != positions / chunks)
      error(place + ".stages", "are {}, but the schedule is for {}. Use as many.", positions / chunks, stages);
    i64 next = 0;
    for (size_t s = 0; s < group.stages.size(); ++s) {
      const Stage& stage = group.stages[s];
      const std::string at = fmt::format("{}.stages[{}]", place, s);
      if (stage.first_layer != next) {
        error(at + ".layers",
              "begins at {}, but the stages before it end at {}. Every layer belongs to one stage, in order.",
              stage.first_layer, next);
      }
      if (stage.end_layer <= stage.first_layer) {
        error(at + ".layers", "[{}, {}] is empty. A stage needs at least one layer.", stage.first_layer,
              stage.end_layer);
      }
      next = stage.end_layer;
      const int first = schedule::stage_of(strategy_.placement(), positions / chunks, static_cast<int>(s));
      check_stage(stage, group.stages.front().mesh, at,
                  s < static_cast<size_t>(positions / chunks) ? nullptr : &group.stages[static_cast<size_t>(first)]);
    }
    if (next != model_.layers)
      error(place + ".stages", "end at layer {} of {}. The last stage must end at {}.", next, model_.layers,
            model_.layers);
  }

  // pipeline: mesh of the first stage. first: the same ranks' first chunk, for the later ones.
  void check_stage(const Stage& stage, const StageMesh& pipeline, const std::string& place, const Stage* first) {
    for (const layout::StageAxisInfo& axis : layout::stage_axes())
      if (stage.mesh[axis.axis] < 1)
        error(fmt::format("{}.mesh.{}", place, axis.name), "= {} must be at least 1.", stage.mesh[axis.axis]);
    for (const StageAxis axis : layout::axes_outside_code())
      if (stage.mesh[axis] != pipeline[axis])
        error(fmt::format("{}.mesh.{}", place, layout::info_of(axis).name),
              "= {}, but the first stage has {}. All stages of a group have as many {}.", stage.mesh[axis],
              pipeline[axis], axis == StageAxis::ring ? "ring ranks" : "replicas");
    if (stage.mesh[StageAxis::ring] > 1 && model_.attention != AttentionKind::fused)
      error(place + ".mesh.ring",
            "= {}, but the model's attention stores its scores (model.attention = \"unfused\"), which ring attention "
            "never has in one place. Use ulysses instead, or fused attention.",
            stage.mesh[StageAxis::ring]);
    const i64 needed = stage.mesh.ranks();
    if (static_cast<i64>(stage.ranks.size()) != needed)
      error(place + ".ranks", "lists {} ranks, but the mesh ({}) needs {}.", stage.ranks.size(),
            needed == 1 ? "no axes" : to_string(stage.mesh), needed);
    if (!divides_heads(stage.mesh, model_))
      error(place + ".mesh",
            "({}) can't divide {} heads with {} key/value heads. The axes that divide heads ({}) make at most as many "
            "parts as there are heads; above the key/value heads, leading factors of theirs multiply to these. Use {}.",
            to_string(stage.mesh), model_.heads, model_.kv_heads, names_of_head_axes(),
            nearest_sizes(stage.mesh, model_));
    if (first && (stage.ranks != first->ranks || !(stage.mesh == first->mesh)))
      error(place, "is a further chunk of the stage with ranks [{}] and the mesh ({}). Give it the same.",
            fmt::join(first->ranks, ", "), to_string(first->mesh));
    if (first) return;
    for (const int rank : stage.ranks) {
      if (rank < 0 || rank >= ranks_)
        error(place + ".ranks", "has rank {}, but the run has ranks 0 to {}. Raise run.ranks or use another.", rank,
              ranks_ - 1);
      if (used_.empty()) used_.resize(static_cast<size_t>(ranks_));
      std::string& user = used_[static_cast<size_t>(rank)];
      if (!user.empty())
        error(place + ".ranks", "has rank {}, which {} uses already. A rank belongs to one stage.", rank, user);
      user = place;
    }
  }

  void check_split(const ParamSplit& split, const std::string& place) const {
    if (split.parameter.empty())
      error(place + ".parameter", "is empty. Give a Hugging Face name; '*' matches any characters.");
    i64 parts = 1;
    for (size_t i = 0; i < split.cuts.size(); ++i) {
      const Cut& cut = split.cuts[i];
      if (cut.dim < 0 || cut.dim > 1)
        error(fmt::format("{}.cuts[{}].dim", place, i), "= {} must be 0 (rows) or 1 (columns).", cut.dim);
      if (cut.axis.has_value() != split.cuts.front().axis.has_value())
        error(fmt::format("{}.cuts[{}]", place, i),
              "names {} axis, unlike the first cut. Name an axis in all or in none.", cut.axis ? "an" : "no");
      if (cut.axis) continue;
      if (cut.parts < 1) error(fmt::format("{}.cuts[{}].parts", place, i), "= {} must be at least 1.", cut.parts);
      parts = std::min(parts * cut.parts, i64{1} << 31);
    }
    std::string degrees;
    for (const Group& group : strategy_.groups) {
      for (const Stage& stage : group.stages) {
        const i64 degree = stage.mesh.parts(layout::weight_axes());
        if (degree % parts == 0) return;
        degrees += fmt::format("{}{}", degrees.empty() ? "" : ", ", degree);
      }
    }
    error(place,
          "cuts {} into {} parts, which divides the tensor parallel degree of no stage ({}). The product of the parts "
          "must divide it.",
          split.parameter, parts, degrees);
  }

  const Strategy& strategy_;
  const ModelConfig& model_;
  int ranks_;
  std::vector<std::string> used_;  // [rank] the stage that uses it
};

}  // namespace

int Strategy::chunk_count() const {
  if (chunks > 0) return chunks;
  if (!order.order.empty()) return order.chunks;
  return schedule == ScheduleKind::interleaved || schedule == ScheduleKind::zb_v || schedule == ScheduleKind::zeropp
             ? 2
             : 1;
}

schedule::Placement Strategy::placement() const {
  if (!order.order.empty()) return order.placement;
  return schedule == ScheduleKind::zb_v ? schedule::Placement::v : schedule::Placement::loop;
}

bool Strategy::splits_gradients() const {
  if (order.order.empty())
    return schedule == ScheduleKind::zero_bubble || schedule == ScheduleKind::zb_v || schedule == ScheduleKind::zeropp;
  return std::ranges::any_of(order.order, [](const std::vector<schedule::Item>& items) {
    return std::ranges::any_of(items, [](const schedule::Item& item) { return item.pass == Pass::W; });
  });
}

bool Strategy::gathers() const { return zero == 3 || has(StageAxis::depth); }

bool Strategy::has(StageAxis axis) const {
  return std::ranges::any_of(groups, [&](const Group& group) {
    return std::ranges::any_of(group.stages, [&](const Stage& stage) { return stage.mesh[axis] > 1; });
  });
}

int Strategy::replicas() const {
  int count = 0;
  for (const Group& group : groups) count += group.replicas();
  return count;
}

std::vector<int> Strategy::ranks() const {
  std::vector<int> used;
  for (const Group& group : groups) {
    for (const Stage& stage : group.stages) used.insert(used.end(), stage.ranks.begin(), stage.ranks.end());
  }
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  return used;
}

StrategySettings shared_settings(StrategySettings settings, std::span<const Degrees> groups) {
  if (std::ranges::any_of(groups, [](const Degrees& degrees) { return degrees.ring > 1; })) return settings;
  const StrategySettings usual;
  settings.ring_degree = usual.ring_degree;
  settings.exchange = usual.exchange;
  return settings;
}

Degrees degrees_of(const StageMesh& mesh) {
  Degrees degrees;
  for (const DegreeKey& degree : degree_keys())
    if (degree.axis) degrees.*degree.value *= mesh[*degree.axis];
  for (const DegreeKey& factor : degree_keys())
    if (factor.factor_of) degrees.*factor.factor_of *= mesh[*factor.axis];
  return degrees;
}

i64 ranks_of(const Degrees& degrees) {
  constexpr i64 kMost = i64{1} << 62;
  i64 ranks = 1;
  for (const DegreeKey& degree : degree_keys())
    if (!degree.factor_of) ranks *= std::min(degrees.*degree.value, kMost / ranks);
  return ranks;
}

i64 ranks_of(std::span<const Degrees> groups) {
  constexpr i64 kMost = i64{1} << 62;
  i64 ranks = 0;
  for (const Degrees& degrees : groups) ranks += std::min(ranks_of(degrees), kMost - ranks);
  return ranks;
}

namespace {

// The largest divisor of `product` below `size` and the smallest one above it.
std::vector<i64> nearest_divisors(i64 product, i64 size) {
  std::vector<i64> nearest;
  for (i64 less = std::min(size - 1, product); less >= 1 && nearest.empty(); --less)
    if (product % less == 0) nearest.push_back(less);
  i64 more = std::min(size, product) + 1;
  while (more <= product && product % more != 0) ++more;
  if (more <= product) nearest.push_back(more);
  return nearest;
}

// The mesh of a stage with these degrees, whose product is at most the number of ranks. name: the group's, in messages.
StageMesh mesh_of(const Degrees& degrees, const std::string& name) {
  StageMesh mesh;
  for (const DegreeKey& degree : degree_keys())
    if (degree.axis) mesh[*degree.axis] = static_cast<int>(degrees.*degree.value);
  for (const DegreeKey& factor : degree_keys()) {
    if (!factor.factor_of) continue;
    const DegreeKey& whole = *std::ranges::find(degree_keys(), factor.factor_of, &DegreeKey::value);
    const i64 size = degrees.*factor.value, product = degrees.*whole.value;
    if (product % size != 0)
      user_error("{}: {} = {} does not divide {} = {}. Use {} = {}.", name, factor.key, size, whole.key, product,
                 factor.key, fmt::join(nearest_divisors(product, size), " or "));
    mesh[*whole.axis] /= mesh[*factor.axis];
  }
  return mesh;
}

// The ranks of a stage in the order of the mesh. first: the group's first rank.
std::vector<int> ranks_of_stage(const Degrees& degrees, const StageMesh& mesh, int stage, int first) {
  const int places = mesh[StageAxis::data], wide = static_cast<int>(mesh.ranks()) / places;
  std::vector<int> ranks;
  for (int place = 0; place < places; ++place) {
    const int before =
        degrees.inside == Inside::data ? stage * places + place : place * static_cast<int>(degrees.pp) + stage;
    for (int i = 0; i < wide; ++i) ranks.push_back(first + before * wide + i);
  }
  return ranks;
}

// "2 x 4 x 2".
std::string product_of(const Degrees& degrees) {
  std::vector<i64> sizes;
  for (const DegreeKey& degree : degree_keys())
    if (degrees.*degree.value > 1 && !degree.factor_of) sizes.push_back(degrees.*degree.value);
  return sizes.empty() ? "1" : fmt::format("{}", fmt::join(sizes, " x "));
}

void check_ranks(std::span<const Degrees> groups, int ranks, const std::string& strategy) {
  if (ranks_of(groups) <= ranks) return;
  std::vector<std::string> products;
  for (const Degrees& degrees : groups) products.push_back(product_of(degrees));
  user_error("{} needs {} ranks, but the run has {}. Use degrees whose {} at most {}, or raise run.ranks.", strategy,
             fmt::join(products, " + "), ranks, groups.size() == 1 ? "product is" : "products add up to", ranks);
}

// The group with these degrees, on consecutive ranks from `first` on. name: the group's, in messages.
Group group_of(const Strategy& strategy, const Degrees& degrees, int first, i64 layers, const std::string& name) {
  const int chunks = std::max(1, strategy.chunk_count());
  const i64 pp = degrees.pp;
  if (chunks > 1 && pp * chunks > layers)
    user_error("{} has {} pipeline stages of {} chunks, but the model has {} layers. Use {} chunks or fewer stages.",
               name, pp, chunks, layers, std::max<i64>(1, layers / pp));
  if (pp > layers)
    user_error("{} has {} pipeline stages, but the model has {} layers. Use pp of at most {}.", name, pp, layers,
               layers);
  const StageMesh mesh = mesh_of(degrees, name);
  const int positions = static_cast<int>(pp) * chunks;
  if (const i64 most = positions > 1 ? layers - positions : 0; degrees.head_layers > most)
    user_error("{}: head_layers = {}, but {} layers on {} position{} of the pipeline leave at most {}. Use less.", name,
               degrees.head_layers, layers, positions, positions == 1 ? "" : "s", most);
  Group group;
  int layer = 0;
  for (int position = 0; const int count : layers_of_positions(positions, layers, degrees.head_layers)) {
    Stage stage;
    stage.mesh = mesh;
    stage.ranks =
        ranks_of_stage(degrees, mesh, schedule::stage_of(strategy.placement(), static_cast<int>(pp), position), first);
    stage.first_layer = layer;
    layer += count;
    stage.end_layer = layer;
    group.stages.push_back(std::move(stage));
    ++position;
  }
  return group;
}

}  // namespace

std::vector<int> layers_of_positions(int positions, i64 layers, i64 head_layers) {
  const i64 spread = layers + head_layers;
  std::vector<int> of(static_cast<size_t>(positions));
  for (int at = 0; at < positions; ++at)
    of[static_cast<size_t>(at)] = static_cast<int>(spread / positions + (at < spread % positions ? 1 : 0));
  of.back() -= static_cast<int>(head_layers);
  // The last position gets layers from earlier ones if it would otherwise have none.
  for (int at = positions - 2; at >= 0 && of.back() < 1; --at)
    while (of[static_cast<size_t>(at)] > 1 && of.back() < 1) {
      --of[static_cast<size_t>(at)];
      ++of.back();
    }
  return of;
}

void cut_by_degrees(Strategy& strategy, std::span<const Degrees> groups, int ranks, i64 layers) {
  const std::string name = fmt::format("strategy \"{}\"", to_text(groups));
  check_ranks(groups, ranks, name);
  strategy.groups.clear();
  int first = 0;
  for (const Degrees& degrees : groups) {
    const std::string group = groups.size() == 1 ? name : fmt::format("{}: group \"{}\"", name, to_text(degrees));
    strategy.groups.push_back(group_of(strategy, degrees, first, layers, group));
    first += static_cast<int>(ranks_of(degrees));
  }
}

Strategy strategy_from_spec(std::string_view spec, int ranks, i64 layers, const StrategySettings& settings) {
  const StrategyText text = read_strategy_text(spec, settings);
  Strategy strategy{text.settings};
  strategy.name = to_text(text.groups, read_strategy_text(spec).settings);
  strategy.chunks = strategy.chunk_count();
  cut_by_degrees(strategy, text.groups, ranks, layers);
  return strategy;
}

void validate(const Strategy& strategy, const ModelConfig& model, int ranks) {
  check(model.kv_heads >= 1, "validate: the model has no key/value heads yet");
  Validator(strategy, model, ranks).run();
}

std::string_view name_of(Inside inside) { return inside == Inside::data ? "data" : "pipeline"; }

std::string_view name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::gathers:
      return "gathers";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
  }
  throw InternalError("name_of: unknown recomputation");
}

std::string_view name_of(Packing packing) {
  switch (packing) {
    case Packing::balanced:
      return "balanced";
    case Packing::stream:
      return "stream";
  }
  throw InternalError("name_of: unknown packing");
}

std::string_view name_of(RingDegree degree) { return degree == RingDegree::document ? "document" : "uniform"; }

std::string_view name_of(ScheduleKind schedule) {
  switch (schedule) {
    case ScheduleKind::gpipe:
      return "gpipe";
    case ScheduleKind::one_f_one_b:
      return "1f1b";
    case ScheduleKind::interleaved:
      return "interleaved";
    case ScheduleKind::zero_bubble:
      return "zero-bubble";
    case ScheduleKind::zb_v:
      return "zb-v";
    case ScheduleKind::zeropp:
      return "zeropp";
  }
  throw InternalError("name_of: unknown schedule");
}

std::string_view name_of(ErrorFeedback feedback) {
  constexpr std::array<std::string_view, 3> kNames = {"auto", "on", "off"};
  return kNames[static_cast<size_t>(feedback)];
}

codecs::Rule Compression::rule_of_gradients() const {
  codecs::Rule rule = this->rule(gradients);
  const bool lossy = gradients != codecs::Codec::none && gradients != codecs::Codec::lossless;
  rule.feedback = lossy && (error_feedback == ErrorFeedback::on ||
                            (error_feedback == ErrorFeedback::automatic && codecs::keeps_largest(gradients)));
  return rule;
}

std::string_view name_of(CompressedLinks links) { return links == CompressedLinks::all ? "all" : "hosts"; }

}  // namespace switchyard::config
