#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "compiler/holdings.hpp"
#include "compiler/order.hpp"
#include "compiler/print.hpp"
#include "compiler/wire.hpp"

namespace switchyard::compiler {
namespace {

using ir::Task;
using ir::TaskKind;

constexpr int kMostColumns = 64;
constexpr size_t kMostPairs = 16;

char queue_letter(ir::Queue queue) {
  switch (queue) {
    case ir::Queue::compute:
      return 'c';
    case ir::Queue::bulk:
      return 'b';
    case ir::Queue::gather:
      return 'g';
    case ir::Queue::switching:
      return 's';
    case ir::Queue::collective:
      return 'x';
    case ir::Queue::forward:
    case ir::Queue::backward:
      break;
  }
  return 'p';
}

// The text of a wait depends on the side to which its unit belongs: the waiter's first use, or the awaited run's last
// write.
std::string waits_text(const Task& task, const std::vector<ir::Wait>& waits) {
  std::map<int, std::vector<int>> by_unit;
  for (const ir::Wait& wait : waits) by_unit[wait.unit].push_back(wait.task);
  std::string text;
  for (const auto& [unit, tasks] : by_unit) {
    std::string list;
    for (const int id : tasks) list += fmt::format("{}{}", list.empty() ? "" : ",", id);
    if (unit >= 0)
      list = task.kind() == TaskKind::run ? fmt::format("u{}:{}", unit, list) : fmt::format("{}.u{}", list, unit);
    text += (text.empty() ? "" : " ") + list;
  }
  return text;
}

class ProgramPrinter {
 public:
  ProgramPrinter(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans)
      : program_(program), plan_(plan), plans_(plans), ranks_(static_cast<int>(program.of_rank.size())) {
    find_rounds();
  }

  std::string print(int only) {
    std::vector<std::array<std::string, 5>> lines;
    std::array<size_t, 5> width{};
    for (size_t id = 0; id < program_.tasks.size(); ++id) {
      const Task& task = program_.tasks[id];
      const bool shown = is_shown(task);
      const std::vector<ir::Wait> waits = waits_left(task, shown);
      const bool wanted = only < 0 || std::binary_search(task.ranks.begin(), task.ranks.end(), only);
      if (!shown || !wanted) continue;
      lines.push_back({std::to_string(id), name(task), members(task), waits_text(task, waits), transfers(task)});
      for (size_t column = 0; column < width.size(); ++column)
        width[column] = std::max(width[column], lines.back()[column].size());
    }
    std::string text;
    for (const auto& line : lines) {
      std::string one = fmt::format("{:>{}} {:<{}} {:<{}} {:<{}} {}", line[0], width[0], line[1], width[1], line[2],
                                    width[2], line[3], width[3], line[4]);
      one.erase(one.find_last_not_of(' ') + 1);
      text += one + "\n";
    }
    return text;
  }

 private:
  // Rounds with transfers of each unit's move, reduce and broadcast; units whose parameters move at all.
  void find_rounds() {
    for (const Task& task : program_.tasks)
      if (task.bytes > 0 &&
          (task.kind() == TaskKind::move || task.kind() == TaskKind::reduce || task.kind() == TaskKind::broadcast))
        rounds_[{task.kind(), task.phase, task.unit()}].insert(task.round());
  }

  int strategy_of(int phase) const { return plan_.phases[static_cast<size_t>(phase)].strategy; }

  // Bytes that the ranks of an allocate task copy from what they hold, views left out.
  i64 copied_bytes(const Task& task) const {
    const int previous = task.phase == 0 ? -1 : strategy_of(task.phase - 1), now = strategy_of(task.phase);
    i64 elements = 0;
    for (const auto& [rank, copied] : copied_elements(plans_, now, previous, task.unit())) elements += copied;
    return elements * size_of(plans_.graph().precision().compute);
  }

  bool is_shown(const Task& task) const {
    if (task.kind() != TaskKind::allocate) return true;
    return !rounds_.contains({TaskKind::move, task.phase, task.unit()}) && copied_bytes(task) > 0;
  }

  // Waits that neither the order within a queue nor a task shown before in the same queue implies. A task that is not
  // shown hands its waits on to the next task of its queue.
  std::vector<ir::Wait> waits_left(const Task& task, bool shown) {
    const auto less = [](const ir::Wait& a, const ir::Wait& b) {
      return std::tie(a.unit, a.task) < std::tie(b.unit, b.task);
    };
    std::set<ir::Wait, decltype(less)> left(less);
    for (const int rank : task.ranks) {
      const QueueKey queue = queue_of(task, rank);
      std::vector<ir::Wait> open = std::move(pending_[queue]);
      pending_[queue].clear();
      for (const ir::Wait& wait : task.after) {
        const Task& awaited = program_.tasks[static_cast<size_t>(wait.task)];
        const bool mine = std::binary_search(awaited.ranks.begin(), awaited.ranks.end(), rank);
        if (mine && queue_of(awaited, rank) != queue && (is_shown(awaited) || awaited.queue != ir::Queue::switching))
          open.push_back(wait);
      }
      if (!shown) {
        pending_[queue] = std::move(open);
        continue;
      }
      for (const ir::Wait& wait : open)
        if (is_last(open, wait, rank) && seen_[queue].insert({wait.task, wait.unit}).second) left.insert(wait);
    }
    return {left.begin(), left.end()};
  }

  // Whether no other wait for the same unit is for a later task of the same queue.
  bool is_last(const std::vector<ir::Wait>& open, const ir::Wait& wait, int rank) const {
    const QueueKey queue = queue_of(program_.tasks[static_cast<size_t>(wait.task)], rank);
    return std::none_of(open.begin(), open.end(), [&](const ir::Wait& other) {
      return other.unit == wait.unit && other.task > wait.task &&
             queue_of(program_.tasks[static_cast<size_t>(other.task)], rank) == queue;
    });
  }

  std::string members(const Task& task) const {
    if (ranks_ > kMostColumns) return fmt::format("{} {}", queue_letter(task.queue), ranks_text(task.ranks));
    std::string columns(static_cast<size_t>(ranks_), '.');
    for (const int rank : task.ranks) columns[static_cast<size_t>(rank)] = queue_letter(task.queue);
    return columns;
  }

  std::string name(const Task& task) const {
    switch (task.kind()) {
      case TaskKind::allocate:
        return fmt::format("allocate {} u{}", change(task), task.unit());
      case TaskKind::move:
        return fmt::format("move {} u{}{}", change(task), task.unit(), round_text(task));
      case TaskKind::run:
        return fmt::format("run {} {}{}{}", stage_text(task), name_of(task.pass()), position(task), piece_text(task));
      case TaskKind::send:
        return fmt::format("send {} {}{}", letter(task), task.forward() ? "act" : "grad", position(task));
      case TaskKind::zero_fill:
        return fmt::format("zero-fill {} replica{}{}{}", stage_text(task), task.replica(), item_text(task),
                           piece_text(task));
      case TaskKind::gather:
        return fmt::format("gather {}{} u{}{}", stage_text(task), item_text(task), task.unit(), item_round_text(task));
      case TaskKind::reduce_scatter:
        return fmt::format("reduce-scatter {}{} u{}{}", stage_text(task), item_text(task), task.unit(),
                           item_round_text(task));
      case TaskKind::reduce:
        return fmt::format("reduce {} u{}{}", letter(task), task.unit(), round_text(task));
      case TaskKind::broadcast:
        return fmt::format("broadcast u{}{}", task.unit(), round_text(task));
      default:
        return ir::name_of(task);
    }
  }

  std::string letter(const Task& task) const { return letter_of(strategy_of(task.phase)); }

  std::string change(const Task& task) const {
    return (task.phase == 0 ? "home" : letter_of(strategy_of(task.phase - 1))) + ">" + letter(task);
  }

  std::string stage_text(const Task& task) const {
    const auto& group =
        plans_.strategies()[static_cast<size_t>(strategy_of(task.phase))].groups[static_cast<size_t>(task.group())];
    return letter(task) + (group.stages.size() > 1 ? fmt::format(".s{}", task.stage()) : "");
  }

  std::string position(const Task& task) const {
    const auto& replicas = plan_.phases[static_cast<size_t>(task.phase)].replica;
    const bool one = replicas[static_cast<size_t>(task.replica())].size() == 1 && replicas.size() > 1;
    return (replicas.size() > 1 ? fmt::format(" replica{}", task.replica()) : "") +
           (one ? "" : fmt::format(" mb{}", task.micro_batch()));
  }

  static std::string piece_text(const Task& task) {
    return task.piece() == ir::kWhole ? "" : fmt::format(" piece{}", task.piece());
  }
  // The item of what the runs of a stage share.
  static std::string item_text(const Task& task) {
    return task.micro_batch() < 0 ? "" : fmt::format(" {} mb{}", name_of(task.pass()), task.micro_batch());
  }
  static std::string item_round_text(const Task& task) {
    return task.round() > 0 ? fmt::format(" r{}", task.round()) : "";
  }

  std::string round_text(const Task& task) const {
    const auto found = rounds_.find({task.kind(), task.phase, task.unit()});
    const bool several = found != rounds_.end() && found->second.size() > 1;
    return several && task.bytes > 0 ? fmt::format(" r{}", task.round()) : "";
  }

  std::string transfers(const Task& task) const {
    if (task.kind() == TaskKind::allocate) return fmt::format("local {}", copied_bytes(task));
    if (task.messages.empty()) return "";
    if (task.bytes == 0) return "local";
    const DType type = ir::type_of(task.kind(), plans_.graph().precision());
    std::map<std::pair<int, int>, i64> pairs;
    for (const layout::Msg& m : task.messages)
      if (m.src != m.dst) pairs[{m.src, m.dst}] += wire_bytes(task, m, type, plans_.cluster());
    if (pairs.size() > kMostPairs) {
      const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
      const auto [least, most] = std::minmax_element(pairs.begin(), pairs.end(), less);
      return fmt::format("{} pairs of {} to {}, together {}", pairs.size(), least->second, most->second, task.bytes);
    }
    std::vector<std::pair<i64, std::string>> sizes;  // in order of first appearance
    for (const auto& [pair, bytes] : pairs) {
      auto same = std::find_if(sizes.begin(), sizes.end(),
                               [&, size = bytes](const auto& entry) { return entry.first == size; });
      if (same == sizes.end()) same = sizes.insert(same, {bytes, ""});
      same->second += fmt::format("{}>{} ", pair.first, pair.second);
    }
    std::string text;
    for (const auto& [bytes, list] : sizes) text += fmt::format("{}{}{}", text.empty() ? "" : "; ", list, bytes);
    return text;
  }

  const ir::Program& program_;
  const batch::StepPlan& plan_;
  const Plans& plans_;
  int ranks_;
  std::map<std::tuple<TaskKind, int, int>, std::set<int>> rounds_;  // kind, phase, unit
  std::map<QueueKey, std::vector<ir::Wait>> pending_;
  std::map<QueueKey, std::set<std::pair<int, int>>> seen_;
};

std::string micro_batch_text(const batch::MicroBatch& mb) {
  std::vector<std::string> ranks;
  for (const auto& shard : mb.shard) {
    std::string& text = ranks.emplace_back();
    for (const batch::Piece& piece : shard) {
      text += text.empty() ? "" : ", ";
      text += piece.doc < 0 ? fmt::format("pad {}", piece.count)
                            : fmt::format("doc{} {}..{}", piece.doc, piece.first, end_of(piece));
    }
  }
  return fmt::format("T={} {{{}}}", fmt::join(mb.T, "+"), fmt::join(ranks, " | "));
}

}  // namespace

std::string print_batch(const batch::StepPlan& plan) {
  std::string text;
  for (const batch::PhasePlan& phase : plan.phases)
    for (size_t replica = 0; replica < phase.replica.size(); ++replica) {
      text += fmt::format("{}/{}", letter_of(phase.strategy), replica);
      if (phase.replica[replica].empty()) text += " none";
      for (size_t mb = 0; mb < phase.replica[replica].size(); ++mb)
        text += fmt::format(" mb{} {}", mb, micro_batch_text(phase.replica[replica][mb]));
      text += "\n";
    }
  return text;
}

std::string print_program(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans, int rank) {
  return ProgramPrinter(program, plan, plans).print(rank);
}

}  // namespace switchyard::compiler
