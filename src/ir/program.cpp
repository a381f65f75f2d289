#include "ir/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/errors.hpp"
#include "base/fingerprint.hpp"

namespace switchyard::ir {
namespace {

static_assert(std::variant_size_v<AnyTask> == static_cast<size_t>(TaskKind::update) + 1);
static_assert(std::is_same_v<std::variant_alternative_t<static_cast<size_t>(TaskKind::gather), AnyTask>, Gather>);

constexpr auto kReplica = [](const auto& of) -> decltype(&of.replica) { return &of.replica; };
constexpr auto kGroup = [](const auto& of) -> decltype(&of.group) { return &of.group; };
constexpr auto kStage = [](const auto& of) -> decltype(&of.stage) { return &of.stage; };
constexpr auto kMicroBatch = [](const auto& of) -> decltype(&of.micro_batch) { return &of.micro_batch; };
constexpr auto kPass = [](const auto& of) -> decltype(&of.pass) { return &of.pass; };
constexpr auto kPiece = [](const auto& of) -> decltype(&of.piece) { return &of.piece; };
constexpr auto kUnit = [](const auto& of) -> decltype(&of.unit) { return &of.unit; };
constexpr auto kRound = [](const auto& of) -> decltype(&of.round) { return &of.round; };

// The member to which `get` points; null if the task's kind doesn't have it.
template <class Value, class Get>
const Value* find(const Task& task, const Get& get) {
  return std::visit(
      [&](const auto& of) -> const Value* {
        if constexpr (requires { get(of); })
          return get(of);
        else
          return nullptr;
      },
      task.what);
}

template <class Value, class Get>
Value value_of(const Task& task, const char* name, const Get& get) {
  const Value* found = find<Value>(task, get);
  check(found != nullptr, "{} has no {}", task, name);
  return *found;
}

template <class Value, class Get>
Value value_or(const Task& task, const Get& get, Value other) {
  const Value* found = find<Value>(task, get);
  return found ? *found : other;
}

}  // namespace

int Task::replica() const { return value_of<int>(*this, "replica", kReplica); }
int Task::group() const { return value_of<int>(*this, "group", kGroup); }
int Task::stage() const { return value_of<int>(*this, "stage", kStage); }
int Task::micro_batch() const { return value_of<int>(*this, "micro-batch", kMicroBatch); }
Pass Task::pass() const { return value_of<Pass>(*this, "pass", kPass); }
int Task::piece() const { return value_of<int>(*this, "piece", kPiece); }
int Task::unit() const { return value_of<int>(*this, "unit", kUnit); }
int Task::round() const { return value_of<int>(*this, "round", kRound); }

std::array<int, 8> numbers_of(const Task& task) {
  return {value_or(task, kReplica, -1),   value_or(task, kGroup, -1),
          value_or(task, kStage, -1),     value_or(task, kMicroBatch, -1),
          value_or(task, kUnit, -1),      value_or(task, kRound, -1),
          value_or(task, kPiece, kWhole), static_cast<int>(value_or(task, kPass, Pass::F))};
}

int stage_of_queue(const Task& task) {
  return task.queue == Queue::forward || task.queue == Queue::backward ? task.stage() : 0;
}

std::uint64_t Program::fingerprint() const {
  Fingerprint hash;
  for (const Task& t : tasks) {
    hash.add(static_cast<i64>(t.kind()));
    hash.add(static_cast<i64>(t.queue));
    hash.add(t.phase);
    for (const int number : numbers_of(t)) hash.add(number);
    for (const size_t size : {t.ranks.size(), t.after.size(), t.messages.size()}) hash.add(static_cast<i64>(size));
    hash.add(t.bytes);
    for (const i64 number : {static_cast<i64>(t.encoding.codec), t.encoding.smallest, i64{t.encoding.between_hosts},
                             i64{t.encoding.feedback}})
      hash.add(number);
    for (const int rank : t.ranks) hash.add(rank);
    for (const Wait& wait : t.after) {
      hash.add(wait.task);
      hash.add(wait.unit);
    }
    for (const layout::Msg& m : t.messages) {
      hash.add(m.src);
      hash.add(m.dst);
      hash.add(m.tensor);
      for (int d = 0; d < m.box.dims; ++d) {
        hash.add(m.box.lo[static_cast<size_t>(d)]);
        hash.add(m.box.hi[static_cast<size_t>(d)]);
      }
    }
  }
  return hash.value();
}

void verify(const Program& program) {
  std::vector<size_t> listed(program.of_rank.size(), 0);  // by rank: its tasks so far
  std::vector<size_t> last(program.of_rank.size(), 0);    // by rank: behind the last task of which it is a member
  // Members of a task whose messages pass between them, by list of messages.
  std::map<std::pair<const layout::MessagePattern*, const std::vector<int>*>, const std::vector<int>*> passed_among;
  for (size_t id = 0; id < program.tasks.size(); ++id) {
    const Task& task = program.tasks[id];
    check(!task.ranks.empty(), "task {} {} has no ranks", id, task);
    for (const int rank : task.ranks) {
      const auto& list = program.of_rank.at(static_cast<size_t>(rank));
      size_t& at = listed[static_cast<size_t>(rank)];
      check(at < list.size() && list[at] == static_cast<int>(id), "task {} is missing in the list of rank {}", id,
            rank);
      ++at;
      last[static_cast<size_t>(rank)] = id + 1;
    }
    const auto is_member = [&](int rank) {
      return static_cast<size_t>(rank) < last.size() && last[static_cast<size_t>(rank)] == id + 1;
    };
    for (const Wait& wait : task.after) {
      check(wait.task >= 0 && static_cast<size_t>(wait.task) < id,
            "task {} {} waits for task {}, which does not come before it", id, task, wait.task);
      check(std::ranges::any_of(program.tasks[static_cast<size_t>(wait.task)].ranks, is_member),
            "task {} {} waits for task {} of other ranks", id, task, wait.task);
    }
    if (task.messages.empty()) continue;
    // Units of equal cuts share their lists.
    const auto [known, fresh] =
        passed_among.try_emplace({task.messages.pattern().get(), task.messages.ranks().get()}, &task.ranks);
    if (!fresh && *known->second == task.ranks) continue;
    const layout::Names& names = task.messages.ranks();
    const auto named = [&](int rank) { return names ? (*names)[static_cast<size_t>(rank)] : rank; };
    for (const layout::Msg& m : task.messages.pattern()->messages())
      check(is_member(named(m.src)) && is_member(named(m.dst)),
            "task {} {}: message {} > {} between ranks that are not members", id, task, named(m.src), named(m.dst));
  }
  for (size_t rank = 0; rank < listed.size(); ++rank)
    check(listed[rank] == program.of_rank[rank].size(), "a rank's tasks are out of order");
}

bool is_transfer(TaskKind kind) {
  return kind == TaskKind::move || kind == TaskKind::send || kind == TaskKind::gather ||
         kind == TaskKind::reduce_scatter || kind == TaskKind::reduce || kind == TaskKind::broadcast ||
         kind == TaskKind::norm;
}

DType type_of(TaskKind transfer, const Precision& precision) {
  const bool gradients =
      transfer == TaskKind::reduce_scatter || transfer == TaskKind::reduce || transfer == TaskKind::broadcast;
  return gradients ? precision.state : precision.compute;
}

namespace {

std::string piece_text(const Task& task) {
  return task.piece() == kWhole ? "" : fmt::format(" piece {}", task.piece());
}

}  // namespace

std::string name_of(const Task& task) {
  switch (task.kind()) {
    case TaskKind::allocate:
      return fmt::format("allocate phase {} u{}", task.phase, task.unit());
    case TaskKind::move:
      return fmt::format("move phase {} u{} r{}", task.phase, task.unit(), task.round());
    case TaskKind::run:
      return fmt::format("run phase {} replica {} stage {} {} mb{}{}", task.phase, task.replica(), task.stage(),
                         name_of(task.pass()), task.micro_batch(), piece_text(task));
    case TaskKind::send:
      return fmt::format("send {} phase {} replica {} stage {} mb{}", task.forward() ? "act" : "grad", task.phase,
                         task.replica(), task.stage(), task.micro_batch());
    case TaskKind::zero_fill:
      return fmt::format(
          "zero-fill phase {} replica {} stage {}{}{}", task.phase, task.replica(), task.stage(),
          task.micro_batch() < 0 ? "" : fmt::format(" {} mb{}", name_of(task.pass()), task.micro_batch()),
          piece_text(task));
    case TaskKind::gather:
    case TaskKind::reduce_scatter:
      return fmt::format("{} phase {} stage {} {} mb{} u{} r{}",
                         task.kind() == TaskKind::gather ? "gather" : "reduce-scatter", task.phase, task.stage(),
                         name_of(task.pass()), task.micro_batch(), task.unit(), task.round());
    case TaskKind::reduce:
      return fmt::format("reduce phase {} u{} r{}", task.phase, task.unit(), task.round());
    case TaskKind::broadcast:
      return fmt::format("broadcast u{} r{}", task.unit(), task.round());
    case TaskKind::norm:
      return "norm";
    case TaskKind::update:
      return fmt::format("update u{}", task.unit());
  }
  throw InternalError("name_of: unknown task");
}

}  // namespace switchyard::ir
