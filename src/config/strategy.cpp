#include "config/strategy.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/errors.hpp"
#include "config/model.hpp"

namespace switchyard::config {
namespace {

/// "1, 2, or a multiple of 2: 4, 6, 8, ...": the tensor degrees that go with a number of key/value heads.
std::string working_degrees(i64 kv_heads) {
  std::string text = kv_heads == 1 ? "1" : kv_heads == 2 ? "1, 2" : fmt::format("1 to {}", kv_heads);
  return fmt::format("{}, or a multiple of {}: {}, {}, {} ...", text, kv_heads, 2 * kv_heads, 3 * kv_heads,
                     4 * kv_heads);
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
    if (strategy_.zero < 0 || strategy_.zero > 1)
      error("zero", "= {} is not a supported ZeRO stage. Use 0 or 1.", strategy_.zero);
    if (strategy_.micro_batch_sequences < 0)
      error("micro_batch_sequences", "= {} is negative. Use 0 for any number.", strategy_.micro_batch_sequences);
    if (by_hand && chunks != strategy_.order.chunks)
      error("chunks", "= {}, but the schedule has {}. Leave it out.", chunks, strategy_.order.chunks);
    if (by_hand) return;
    if (strategy_.activation_cap > 0 && kind != ScheduleKind::zero_bubble && kind != ScheduleKind::zb_v)
      error("activation_cap", "= {} goes with schedule \"zero-bubble\" or \"zb-v\", not \"{}\". Leave it out.",
            strategy_.activation_cap, name_of(kind));
    if (chunks > 1 && kind != ScheduleKind::interleaved && kind != ScheduleKind::zb_v)
      error("chunks", "= {} go with schedule \"interleaved\" or \"zb-v\", not \"{}\". Use one of them, or one chunk.",
            chunks, name_of(kind));
    if (kind == ScheduleKind::zb_v && chunks != 2)
      error("chunks", "= {}: schedule \"zb-v\" has 2. Leave it out.", chunks);
    if (kind == ScheduleKind::zb_v && strategy_.activation_cap == 1)
      error("activation_cap", "= 1: zb-v holds an activation of each of its two chunks. Use 2 or more.");
  }

  void check_group(const Group& group, const std::string& place) {
    if (group.dp < 1) error(place + ".dp", "= {} must be at least 1.", group.dp);
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
      check_stage(stage, group.dp, at,
                  s < static_cast<size_t>(positions / chunks) ? nullptr : &group.stages[static_cast<size_t>(first)]);
    }
    if (next != model_.layers)
      error(place + ".stages", "end at layer {} of {}. The last stage must end at {}.", next, model_.layers,
            model_.layers);
  }

  // first: the same ranks' first chunk, for the later ones.
  void check_stage(const Stage& stage, int dp, const std::string& place, const Stage* first) {
    if (stage.tp < 1) error(place + ".tp", "= {} must be at least 1.", stage.tp);
    if (stage.tp > model_.kv_heads && stage.tp % model_.kv_heads != 0) {
      error(place + ".tp", "= {} is above kv_heads = {} and not a multiple of it. Use {}", stage.tp, model_.kv_heads,
            working_degrees(model_.kv_heads));
    }
    const i64 needed = static_cast<i64>(dp) * stage.tp;
    if (static_cast<i64>(stage.ranks.size()) != needed) {
      error(place + ".ranks", "lists {} ranks, but dp = {} times tp = {} needs {}.", stage.ranks.size(), dp, stage.tp,
            needed);
    }
    if (first && (stage.ranks != first->ranks || stage.tp != first->tp))
      error(place, "is a further chunk of the stage with ranks [{}] and tp = {}. Give it the same.",
            fmt::join(first->ranks, ", "), first->tp);
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
      if (cut.parts < 1) error(fmt::format("{}.cuts[{}].parts", place, i), "= {} must be at least 1.", cut.parts);
      parts = std::min(parts * cut.parts, i64{1} << 31);
    }
    std::string degrees;
    for (const Group& group : strategy_.groups) {
      for (const Stage& stage : group.stages) {
        if (stage.tp % parts == 0) return;
        degrees += fmt::format("{}{}", degrees.empty() ? "" : ", ", stage.tp);
      }
    }
    error(place,
          "cuts {} into {} parts, which divides the tp of no stage ({}). The product of the parts must divide tp.",
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
  return schedule == ScheduleKind::interleaved || schedule == ScheduleKind::zb_v ? 2 : 1;
}

schedule::Placement Strategy::placement() const {
  if (!order.order.empty()) return order.placement;
  return schedule == ScheduleKind::zb_v ? schedule::Placement::v : schedule::Placement::loop;
}

bool Strategy::splits_gradients() const {
  if (order.order.empty()) return schedule == ScheduleKind::zero_bubble || schedule == ScheduleKind::zb_v;
  return std::ranges::any_of(order.order, [](const std::vector<schedule::Item>& items) {
    return std::ranges::any_of(items, [](const schedule::Item& item) { return item.what == 'W'; });
  });
}

int Strategy::replicas() const {
  int count = 0;
  for (const Group& group : groups) count += group.dp;
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

Degrees degrees_from_spec(std::string_view spec) {
  std::array<i64, 3> degrees{};
  std::string_view rest = spec;
  const auto skip_blanks = [&] {
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  };
  bool good = true;
  for (size_t i = 0; i < degrees.size() && good; ++i) {
    skip_blanks();
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), degrees[i]);
    good = error == std::errc() && degrees[i] >= 1;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    skip_blanks();
    if (i + 1 == degrees.size()) {
      good = good && rest.empty();
    } else {
      good = good && !rest.empty() && rest.front() == ',';
      if (good) rest.remove_prefix(1);
    }
  }
  if (!good)
    user_error("strategy \"{}\" is not \"dp,tp,pp\". Write three numbers of at least 1, such as \"1,4,2\".", spec);
  return {degrees[0], degrees[1], degrees[2]};
}

void cut_by_spec(Strategy& strategy, std::string_view spec, int ranks, i64 layers) {
  const auto [dp, tp, pp] = degrees_from_spec(spec);
  const auto most = [&](i64 degree) { return degree > ranks; };
  if (most(dp) || most(tp) || most(pp) || dp * tp > ranks || dp * tp * pp > ranks) {
    user_error(
        "strategy \"{}\" needs {} x {} x {} ranks, but the run has {}. Use degrees whose product is at most {}, or "
        "raise run.ranks.",
        spec, dp, tp, pp, ranks, ranks);
  }
  const int chunks = std::max(1, strategy.chunk_count());
  if (chunks > 1 && pp * chunks > layers) {
    user_error(
        "strategy \"{}\" has {} pipeline stages of {} chunks, but the model has {} layers. Use {} chunks or fewer "
        "stages.",
        spec, pp, chunks, layers, std::max<i64>(1, layers / pp));
  }
  if (pp > layers) {
    user_error("strategy \"{}\" has {} pipeline stages, but the model has {} layers. Use pp of at most {}.", spec, pp,
               layers, layers);
  }
  Group group{.dp = static_cast<int>(dp), .stages = {}};
  int layer = 0;
  const int positions = static_cast<int>(pp) * chunks;
  for (int position = 0; position < positions; ++position) {
    Stage stage;
    stage.tp = static_cast<int>(tp);
    const int first =
        schedule::stage_of(strategy.placement(), static_cast<int>(pp), position) * static_cast<int>(dp * tp);
    for (int i = 0; i < dp * tp; ++i) stage.ranks.push_back(first + i);
    stage.first_layer = layer;
    layer += static_cast<int>(layers / positions + (position < layers % positions ? 1 : 0));
    stage.end_layer = layer;
    group.stages.push_back(std::move(stage));
  }
  strategy.groups = {std::move(group)};
}

Strategy strategy_from_spec(std::string_view spec, int ranks, i64 layers, const StrategySettings& settings) {
  Strategy strategy{settings, "", {}, {}, {}};
  const auto [dp, tp, pp] = degrees_from_spec(spec);
  strategy.name = fmt::format("{},{},{}", dp, tp, pp);
  strategy.chunks = strategy.chunk_count();
  cut_by_spec(strategy, spec, ranks, layers);
  return strategy;
}

void validate(const Strategy& strategy, const ModelConfig& model, int ranks) {
  check(model.kv_heads >= 1, "validate: the model has no key/value heads yet");
  Validator(strategy, model, ranks).run();
}

std::string_view name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
  }
  throw InternalError("name_of: unknown recomputation");
}

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
  }
  throw InternalError("name_of: unknown schedule");
}

}  // namespace switchyard::config
