#include "compiler/print.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <span>

#include "base/text.hpp"
#include "base/units.hpp"
#include "base/wrapped_text.hpp"
#include "compiler/memory.hpp"

namespace switchyard::compiler {
namespace {

constexpr size_t kMostBoxes = 32;

std::string numbers(const std::vector<i64>& list) { return fmt::format("{}", fmt::join(list, ",")); }

// "alignment 32", "alignment 128,128 (dim 1)"; "" where every element may be cut off.
std::string alignment_text(const ir::Param& param) {
  std::string text;
  for (size_t d = 0; d < param.shape.alignment.size(); ++d)
    if (!param.shape.alignment[d].empty())
      text += fmt::format("{}alignment {}{}", text.empty() ? "" : " ", numbers(param.shape.alignment[d]),
                          d == 0 ? "" : fmt::format(" (dim {})", d));
  return text;
}

std::string shape_text(const ir::Param& param) {
  const std::string alignment = alignment_text(param);
  return "[" + numbers(param.shape.size) + "]" + (alignment.empty() ? "" : " " + alignment);
}

// "8192", "67.1M", "70.6B": three digits, and all of a number below ten thousand.
std::string elements_text(i64 elements) {
  constexpr i64 kExact = 10000;
  if (elements < kExact) return fmt::format("{}", elements);
  double number = static_cast<double>(elements) / 1000;
  std::string_view units = "kMBT";
  for (; number >= 999.5 && units.size() > 1; units.remove_prefix(1)) number /= 1000;
  return fmt::format("{:.{}f}{}", number, number < 9.995 ? 2 : number < 99.95 ? 1 : 0, units.front());
}

// " [64,64]  4096  alignment 32,16; group qkv", in columns.
std::string parameter_row(const ir::Param& param) {
  std::string notes = alignment_text(param);
  if (!param.group.empty())
    notes += fmt::format("{}group {}", notes.empty() ? "" : "; ", param.group.substr(param.group.rfind('.') + 1));
  const std::string row = fmt::format(" {:<13} {:>5} {}", "[" + numbers(param.shape.size) + "]",
                                      elements_text(param.shape.elements()), notes);
  return row.substr(0, row.find_last_not_of(' ') + 1);
}

std::string unit_name(const ir::Graph& graph, int unit) {
  if (unit == 0) return "embedding";
  return unit + 1 == graph.units() ? "norm and head" : fmt::format("layer {}", unit - 1);
}

/// The text of a unit: a line per parameter, without its name.
struct UnitText {
  std::vector<int> params;
  std::vector<std::string> lines;
};

// Units in order, each under its heading; consecutive units with equal text are printed once. columns: of the names.
std::string units_text(const ir::Graph& graph, const std::vector<UnitText>& units, size_t columns = 0) {
  std::string text;
  for (size_t first = 0; first < units.size();) {
    size_t end = first + 1;
    while (end < units.size() && units[end].lines == units[first].lines) ++end;
    text += fmt::format("u{} {}", first, unit_name(graph, static_cast<int>(first)));
    if (end - first == 2) text += fmt::format("; u{} the same", first + 1);
    if (end - first > 2) text += fmt::format("; u{}..u{} the same", first + 1, end - 1);
    text += "\n";
    for (size_t i = 0; i < units[first].lines.size(); ++i)
      text += fmt::format("  {:<{}}{}\n", graph.param(units[first].params[i]).name, columns, units[first].lines[i]);
    first = end;
  }
  return text;
}

std::vector<UnitText> units_of(const ir::Graph& graph) {
  std::vector<UnitText> units;
  for (const switching::UnitMaps& unit : unit_maps(graph)) units.push_back({unit.tensors, {}});
  return units;
}

// "0,1:[0,16)x[0,64) 2,3:[16,32)x[0,64)"; "copies on 0..3" where every rank holds the whole tensor.
std::string boxes_text(const layout::ShardMap& map) {
  std::vector<std::pair<layout::Box, std::vector<int>>> holders;  // in order of first appearance
  std::map<std::pair<std::array<i64, layout::kMaxDims>, std::array<i64, layout::kMaxDims>>, size_t> place;
  for (const layout::Shard& shard : map.shards) {
    const auto [known, fresh] = place.try_emplace({shard.box.lo, shard.box.hi}, holders.size());
    if (fresh) holders.push_back({shard.box, {}});
    holders[known->second].second.push_back(shard.rank);
  }
  for (auto& [box, ranks] : holders) std::sort(ranks.begin(), ranks.end());
  if (holders.size() == 1 && holders[0].first.elements() == map.shape.elements())
    return (holders[0].second.size() > 1 ? "copies on " : "on ") + ranks_text(holders[0].second);
  std::string text;
  size_t listed = 0;
  for (const auto& [box, ranks] : holders) {
    if (box.empty() || ++listed > kMostBoxes) continue;
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", ranks_text(ranks), layout::to_string(box));
  }
  return listed > kMostBoxes ? text + fmt::format(" ... {} boxes", listed) : text;
}

class PlanPrinter {
 public:
  explicit PlanPrinter(const Plans& plans) : plans_(plans), graph_(plans.graph()) {}

  std::string print() {
    std::string text;
    for (size_t s = 0; s < plans_.strategies().size(); ++s) text += strategy_text(static_cast<int>(s));
    std::vector<UnitText> units = units_of(graph_);
    for (size_t u = 0; u < units.size(); ++u) {
      if (u > 0 && same_text(units[u - 1].params, units[u].params)) {
        units[u].lines = units[u - 1].lines;
        continue;
      }
      for (const int param : units[u].params) units[u].lines.push_back(param_text(param));
    }
    return text + units_text(graph_, units) + holdings_text();
  }

 private:
  const CompiledStrategy& strategy(int s) const { return plans_.strategies()[static_cast<size_t>(s)]; }

  // "A", "A.s1", "A.g0.s1": only what distinguishes the stages of a strategy.
  std::string stage_name(int s, size_t group, size_t stage) const {
    const auto& groups = strategy(s).groups;
    return letter_of(s) + (groups.size() > 1 ? fmt::format(".g{}", group) : "") +
           (groups[group].stages.size() > 1 ? fmt::format(".s{}", stage) : "");
  }

  layout::Mesh mesh_of(int s, size_t group, size_t stage) const {
    return stage_mesh(strategy(s).strategy.groups[group].stages[stage],
                      strategy(s).groups[group].stages[stage].replica);
  }

  std::string strategy_text(int s) const {
    const config::Strategy& chosen = strategy(s).strategy;
    std::string text = fmt::format("{} \"{}\": schedule {}, recompute {}, sequence parallel {}\n", letter_of(s),
                                   chosen.name, config::name_of(chosen.schedule), config::name_of(chosen.recompute),
                                   chosen.sequence_parallel ? "on" : "off");
    for (size_t g = 0; g < strategy(s).groups.size(); ++g)
      for (size_t st = 0; st < strategy(s).groups[g].stages.size(); ++st) {
        const layout::Mesh mesh = mesh_of(s, g, st);
        std::string axes;
        for (const layout::Axis& axis : mesh.axes)
          if (axis.size > 1) axes += fmt::format("{}{}={}", axes.empty() ? "" : " ", axis.name, axis.size);
        const ir::StageCode& code = strategy(s).groups[g].stages[st];
        text += fmt::format("  mesh {} [{}] {}  u{}..u{}\n", stage_name(s, g, st), axes, fmt::join(mesh.ranks, " "),
                            code.first_unit, code.end_unit - 1);
      }
    return text;
  }

  std::string param_text(int param) const {
    const ir::Param& p = graph_.param(param);
    std::string text = " " + shape_text(p);
    for (int s = 0; s < static_cast<int>(plans_.strategies().size()); ++s) {
      const layout::ShardMap& stored = strategy(s).maps.stored[static_cast<size_t>(param)];
      text += fmt::format("\n    {}  {}  {}  {}", letter_of(s), layouts_text(s, param), boxes_text(stored),
                          gradient_text(s, param));
    }
    return text + "\n    home  " + home_text(param);
  }

  // The distinct layouts of the parameter in the stages that use it; "stage:layout" where they differ between stages.
  std::string layouts_text(int s, int param) const {
    std::vector<std::string> texts;
    each_use(s, param, [&](const layout::Mesh& replica, const ir::ParamUse& use) {
      const std::string text = layout::to_string(replica, use.used);
      if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
    });
    return fmt::format("{}", fmt::join(texts, " or "));
  }

  std::string gradient_text(int s, int param) const {
    std::vector<std::string> axes;
    int uses = 0;
    const auto add = [&](const std::string& axis) {
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
    };
    for (const layout::StageAxis axis : layout::axes_outside_code())
      for (const config::Group& group : strategy(s).strategy.groups)
        if (group.stages.front().mesh[axis] > 1) add(std::string(layout::info_of(axis).name));
    each_use(s, param, [&](const layout::Mesh& replica, const ir::ParamUse& use) {
      ++uses;
      for (const int axis : use.grad.partial) add(replica.axes[static_cast<size_t>(axis)].name);
    });
    if (uses > 1) axes.push_back(fmt::format("{} uses", uses));
    return axes.empty() ? "grad same" : fmt::format("grad partial {{{}}}", fmt::join(axes, ","));
  }

  template <class Visit>
  void each_use(int s, int param, Visit&& visit) const {
    for (const ir::GroupCode& group : strategy(s).groups)
      for (const ir::StageCode& stage : group.stages)
        for (const ir::ParamUse& use : stage.params)
          if (use.param == param) visit(stage.replica, use);
  }

  std::string home_text(int param) const {
    const layout::ShardMap& home = plans_.home()[static_cast<size_t>(param)];
    for (int s = 0; s < static_cast<int>(plans_.strategies().size()); ++s)
      if (strategy(s).maps.stored[static_cast<size_t>(param)].shards == home.shards) return "= " + letter_of(s);
    return boxes_text(home);
  }

  // Whether the same text would be printed for both units; compares only what is expensive to print.
  bool same_text(const std::vector<int>& a, const std::vector<int>& b) const {
    const auto same = [&](int x, int y) {
      const size_t i = static_cast<size_t>(x), j = static_cast<size_t>(y);
      const auto same_use = [&](const CompiledStrategy& s) {
        return s.maps.stored[i] == s.maps.stored[j] && s.maps.grad[i] == s.maps.grad[j];
      };
      return graph_.param(x).shape == graph_.param(y).shape && plans_.home()[i] == plans_.home()[j] &&
             std::ranges::all_of(plans_.strategies(), same_use);
    };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
  }

  std::string holdings_text() const {
    const Precision precision = graph_.precision();
    const i64 state = size_of(precision.state), compute = size_of(precision.compute);
    std::string text;
    for (int rank = 0; rank < plans_.cluster().ranks(); ++rank) {
      const Holdings holdings(plans_, rank);
      i64 home = 0;
      each_unit([&](int unit) { home += holdings.home_elements(unit); });
      text += fmt::format("rank {} holds: home {}, compute copy {}", rank, 4 * state * home,
                          precision.compute == precision.state ? 0 : compute * home);
      for (int s = 0; s < static_cast<int>(plans_.strategies().size()); ++s) {
        i64 working = 0, gradients = 0;
        each_unit([&](int unit) {
          working += holdings.working_elements(s, -1, unit);
          for (const std::vector<int>& group : holdings.groups(unit)) gradients += holdings.gradient_elements(s, group);
        });
        text += fmt::format(", {0} {1}, grad {0} {2}", letter_of(s), compute * working, state * gradients);
      }
      text += " bytes\n";
    }
    return text;
  }

  template <class Visit>
  void each_unit(const Visit& visit) const {
    for (int unit = 0; unit < static_cast<int>(plans_.units().size()); ++unit) visit(unit);
  }

  const Plans& plans_;
  const ir::Graph& graph_;
};

}  // namespace

std::string letter_of(int strategy) {
  return strategy < 26 ? std::string(1, static_cast<char>('A' + strategy)) : fmt::format("S{}", strategy);
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (size_t first = 0; first < ranks.size();) {
    size_t end = first + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - first < 3) end = first + 1;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[first]);
    if (end - first > 1) text += fmt::format("..{}", ranks[end - 1]);
    first = end;
  }
  return text;
}

std::string print_model(const ir::Graph& graph, const batch::WorkModel& work, i64 context) {
  std::vector<UnitText> units = units_of(graph);
  const Precision precision = graph.precision();
  std::vector<i64> elements;  // by unit
  for (UnitText& unit : units) {
    elements.push_back(0);
    for (const int p : unit.params) {
      const ir::Param& param = graph.param(p);
      unit.lines.push_back(parameter_row(param));
      elements.back() += param.shape.elements();
    }
  }
  const i64 total = std::accumulate(elements.begin(), elements.end(), i64{0});
  std::string text =
      fmt::format("{:<28}{:>18}{:>14}{:>10}\n", "", "parameters", switchyard::name_of(precision.compute), "share");
  const auto row = [&](const std::string& what, i64 number, i64 times) {
    const double share = static_cast<double>(number * times) / static_cast<double>(total);
    text += fmt::format("{:<28}{:>18}{:>14}{:>9.1f}%\n", what, elements_text(number),
                        format_bytes(bytes_of(Elements{number}, precision.compute)), 100 * share);
  };
  for (size_t first = 0, end = 0; first < units.size(); first = end) {
    for (end = first + 1; end < units.size() && units[end].lines == units[first].lines;) ++end;
    const std::string name = unit_name(graph, static_cast<int>(first));
    const auto count = static_cast<i64>(end - first);
    row(count == 1 ? name : fmt::format("{} to {}, each", name, first + end - first - 2), elements[first], count);
  }
  row("all", total, 1);
  const double T = static_cast<double>(context);
  text += fmt::format(
      "A token takes {} flops in the forward pass, and {} of attention in a document of {} tokens;\n"
      "twice as many in the backward pass\n\n",
      format_count(work.linear), format_count(work.quadratic * T), context);
  constexpr size_t kNames = 46;  // columns
  return text + units_text(graph, units, kNames) +
         fmt::format("{} units, {} parameters of {} elements, {} in {}\n", graph.units(), graph.params().size(),
                     elements_text(total), format_bytes(bytes_of(Elements{total}, precision.compute)),
                     switchyard::name_of(precision.compute));
}

std::string print_plan(const Plans& plans) { return PlanPrinter(plans).print(); }

namespace {

// The part of the step that a task belongs to: the bucket whose documents are in work.
std::string when(int task, const ir::Program& program, const batch::StepPlan& plan) {
  if (task < 0) return "the start";
  const int phase = program.tasks[static_cast<size_t>(task)].phase;
  return phase < 0 ? "the update" : fmt::format("bucket {}", plan.phases[static_cast<size_t>(phase)].strategy);
}

}  // namespace

std::string print_memory(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans) {
  // Ranks with equal columns share one.
  std::vector<std::pair<std::vector<std::string>, std::vector<int>>> columns;
  const std::vector<MemoryPeak> peaks = predict_all(program, plan, plans);
  for (int rank = 0; rank < plans.cluster().ranks(); ++rank) {
    const MemoryPeak& peak = peaks[static_cast<size_t>(rank)];
    std::vector<std::string> cells;
    for (const i64 bytes : peak.bytes) cells.push_back(bytes == 0 ? "-" : format_bytes(Bytes{bytes}));
    cells.push_back(format_bytes(Bytes{peak.total}));
    cells.push_back(when(peak.task, program, plan));
    const auto known = std::ranges::find(columns, cells, &decltype(columns)::value_type::first);
    if (known == columns.end())
      columns.push_back({cells, {rank}});
    else
      known->second.push_back(rank);
  }
  constexpr size_t kColumns = 5, kWidth = 14;  // beside each other
  const bool named =
      std::ranges::any_of(columns, [](const auto& column) { return ranks_text(column.second).size() >= kWidth; });
  std::string text;
  for (size_t first = 0; first < columns.size(); first += kColumns) {
    const std::span shown = std::span(columns).subspan(first, std::min(kColumns, columns.size() - first));
    std::string head;
    for (size_t i = 0; i < shown.size(); ++i)
      head +=
          fmt::format("{:>{}}", named ? fmt::format("group {}", first + i + 1) : ranks_text(shown[i].second), kWidth);
    text += fmt::format("{:<28}{}\n", "ranks", head);
    for (size_t row = 0; row < kMemoryClasses + 2; ++row) {
      std::string line;
      for (const auto& [cells, ranks] : shown) line += fmt::format("{:>{}}", cells[row], kWidth);
      const bool none = std::ranges::all_of(shown, [&](const auto& column) { return column.first[row] == "-"; });
      if (none) continue;
      text += fmt::format("{:<28}{}\n",
                          row < kMemoryClasses    ? name_of(static_cast<MemoryClass>(row))
                          : row == kMemoryClasses ? "all, at the peak"
                                                  : "reached in",
                          line);
    }
  }
  for (size_t i = 0; named && i < columns.size(); ++i)
    text += wrapped(fmt::format("group {}: ranks {}", i + 1, ranks_text(columns[i].second))) + "\n";
  return text;
}

}  // namespace switchyard::compiler
