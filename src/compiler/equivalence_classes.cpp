#include "compiler/equivalence_classes.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/fingerprint.hpp"
#include "base/hash.hpp"
#include "compiler/ring_keys.hpp"
#include "compiler/wire.hpp"

namespace switchyard::compiler {
namespace {

struct Hash {
  size_t operator()(const std::vector<i64>* key) const { return RangeHash()(*key); }
};
struct Equal {
  bool operator()(const std::vector<i64>* a, const std::vector<i64>* b) const { return *a == *b; }
};

constexpr i64 kMostStates = 1 << 20;  // numbers of a rank's states in a task are below

// A fingerprint of the keys that a ring rank at a position receives and sends.
i64 number_of_messages(const RingKeys& keys, int ring, size_t position, const cluster::Cluster& cluster) {
  const batch::KeyExchange& exchange = keys.exchanges[position];
  Fingerprint hash;
  hash.add(exchange.seen[static_cast<size_t>(ring)].rows);
  const auto rank = [&](int other) { return keys.ranks[static_cast<size_t>(other)][position]; };
  const auto add = [&](const std::vector<std::vector<batch::KeyMessage>>& rounds, bool back) {
    for (const std::vector<batch::KeyMessage>& round : rounds) {
      hash.add(-1);
      for (const batch::KeyMessage& message : round)
        if ((back ? message.to : message.from) == ring) {
          hash.add(message.count);
          hash.add(i64{cluster.same_host(rank(message.from), rank(message.to))});
        }
    }
  };
  add(exchange.rounds, false);
  add(exchange.returns, true);
  return static_cast<i64>(hash.value());
}

}  // namespace

EquivalenceClasses::EquivalenceClasses(const ir::Program& program, const batch::StepPlan& plan, const Plans& plans,
                                       const BoxesByRank& boxes, bool with_waits)
    : program_(program),
      plan_(plan),
      plans_(plans),
      boxes_(boxes),
      keys_(static_cast<size_t>(plans.cluster().ranks())) {
  number_groups();
  for (int rank = 0; rank < plans.cluster().ranks(); ++rank) add_holdings(rank);
  last_task_.assign(keys_.size(), -1);
  tasks_before_.assign(keys_.size(), 0);
  // Where copies and gradients of runs take and free memory depends on what is awaited.
  const bool waits = with_waits || std::ranges::any_of(program.tasks, [](const ir::Task& task) {
                       return task.kind() == ir::TaskKind::reduce_scatter;
                     });
  for (const ir::Task& task : program.tasks) {
    add_task(task);
    if (waits) add_waits(task);
  }
  if (std::ranges::any_of(program.tasks,
                          [](const ir::Task& task) { return task.encoding.codec != codecs::Codec::none; }))
    for (int rank = 0; rank < plans.cluster().ranks(); ++rank)
      for (const auto& [queue, bytes] : encoding_rooms(program, rank, plans))
        keys_[static_cast<size_t>(rank)].insert(keys_[static_cast<size_t>(rank)].end(), {-3, bytes});
}

std::vector<int> EquivalenceClasses::first_like() const {
  std::unordered_map<const std::vector<i64>*, int, Hash, Equal> known;
  std::vector<int> first;
  for (const std::vector<i64>& key : keys_)
    first.push_back(known.try_emplace(&key, static_cast<int>(first.size())).first->second);
  return first;
}

void EquivalenceClasses::number_groups() {
  group_of_.resize(plans_.home().size());
  const Holdings any(plans_, boxes_, 0);
  int groups = 0;
  for (int unit = 0; unit < static_cast<int>(plans_.units().size()); ++unit)
    for (const std::vector<int>& group : any.groups(unit)) {
      for (const int p : group) group_of_[static_cast<size_t>(p)] = groups;
      ++groups;
    }
  group_elements_.resize(static_cast<size_t>(groups));
}

// Parameters of a unit at home, each group aligned, as Holdings::home_elements.
void EquivalenceClasses::add_home(int rank, std::vector<i64>& key) {
  const std::vector<BoxesByRank::Entry>& home = boxes_.home[static_cast<size_t>(rank)];
  for (const BoxesByRank::Entry& entry : home)
    group_elements_[static_cast<size_t>(group_of_[static_cast<size_t>(entry.param)])] += entry.box->elements();
  std::map<int, i64> units;
  for (const BoxesByRank::Entry& entry : home)
    units[plans_.graph().param(entry.param).unit] +=
        aligned(std::exchange(group_elements_[static_cast<size_t>(group_of_[static_cast<size_t>(entry.param)])], 0));
  for (const auto& [unit, elements] : units) key.insert(key.end(), {unit, elements});
}

// Holdings' answers about working parameters and accumulators depend on sizes of boxes, and on which of them are equal.
void EquivalenceClasses::add_holdings(int rank) {
  const auto r = static_cast<size_t>(rank);
  std::vector<i64>& key = keys_[r];
  add_home(rank, key);
  key.push_back(-1);
  for (const Residual& residual : plans_.residuals()[r]) key.push_back(residual.box.elements());
  key.push_back(-1);
  std::vector<const layout::Box*> home(plans_.home().size()), before(home.size());
  std::vector<int> pieces(home.size());
  for (const BoxesByRank::Entry& entry : boxes_.home[r]) {
    home[static_cast<size_t>(entry.param)] = entry.box;
    ++pieces[static_cast<size_t>(entry.param)];
  }
  for (const batch::PhasePlan& phase : plan_.phases) {
    const auto strategy = static_cast<size_t>(phase.strategy);
    const auto& stored = boxes_.stored[strategy][r];
    for (const BoxesByRank::Entry& entry : stored) {
      const auto p = static_cast<size_t>(entry.param);
      const bool at_home = pieces[p] == 1 && *home[p] == *entry.box, as_before = before[p] && *before[p] == *entry.box;
      key.insert(key.end(), {entry.param, 4 * entry.box->elements() + 2 * at_home + as_before});
    }
    key.push_back(-1);
    for (const auto* boxes : {&boxes_.grad, &boxes_.used, &boxes_.made}) {
      for (const BoxesByRank::Entry& entry : (*boxes)[strategy][r])
        key.insert(key.end(), {entry.param, entry.box->elements()});
      key.push_back(-1);
    }
    std::ranges::fill(before, nullptr);
    for (const BoxesByRank::Entry& entry : stored) before[static_cast<size_t>(entry.param)] = entry.box;
  }
}

void EquivalenceClasses::add_task(const ir::Task& task) {
  if (task.kind() == ir::TaskKind::run) {
    const int strategy = phase(task.phase).strategy;
    const std::vector<int>& ranks = task.ranks;
    for (size_t first = 0, ring = 0; first < ranks.size(); ++ring) {
      const std::vector<int>& shapes = shapes_of(strategy, task.replica(), task.stage(), static_cast<int>(ring),
                                                 plans_.strategies()[static_cast<size_t>(strategy)]);
      const i64 number = number_of(task, static_cast<int>(ring)) * kMostStates;
      for (size_t i = 0; i < shapes.size(); ++i)
        keys_[static_cast<size_t>(ranks[first + i])].push_back(number + shapes[i]);
      first += shapes.size();
    }
    add_key_rows(task);
  } else if (task.kind() == ir::TaskKind::send) {
    const std::vector<i64>& states = states_of_members(task);
    int known = -1;  // mostly neighbours are of the same ring rank
    i64 number = 0;
    for (size_t i = 0; i < task.ranks.size(); ++i) {
      const int ring = ring_of(task, task.ranks[i]);
      if (ring != known) number = number_of(task, known = ring) * kMostStates;
      keys_[static_cast<size_t>(task.ranks[i])].push_back(number + states[i]);
    }
  } else if (task.kind() == ir::TaskKind::move || task.kind() == ir::TaskKind::gather) {
    const i64 number = number_of(task) * kMostStates;
    const std::vector<i64>& states = states_of_members(task);
    for (size_t i = 0; i < task.ranks.size(); ++i)
      keys_[static_cast<size_t>(task.ranks[i])].push_back(number + states[i]);
  } else {
    const i64 number = number_of(task) * kMostStates;
    for (const int rank : task.ranks) keys_[static_cast<size_t>(rank)].push_back(number);
  }
}

// Where keys come in steps, the memory for them depends on all ring ranks and their hosts; where they are encoded, that
// of messages does.
void EquivalenceClasses::add_key_rows(const ir::Task& run) {
  const CompiledStrategy& strategy = plans_.strategies()[static_cast<size_t>(phase(run.phase).strategy)];
  const bool encodes = strategy.strategy.compression.keys != codecs::Codec::none;
  if ((strategy.strategy.exchange == KeyPassing::gather && !encodes) || strategy.ring_ranks(run.replica()) == 1) return;
  const auto [it, fresh] = key_rows_.try_emplace({run.phase, run.replica(), run.micro_batch(), run.stage()});
  if (fresh) {
    const batch::MicroBatch& mb =
        phase(run.phase).replica[static_cast<size_t>(run.replica())][static_cast<size_t>(run.micro_batch())];
    const RingKeys keys = ring_keys(strategy, run.replica(), run.stage(), mb, plans_.cluster());
    for (size_t ring = 0; ring < keys.ranks.size(); ++ring)
      for (size_t position = 0; position < keys.exchanges.size(); ++position)
        it->second.push_back(encodes ? number_of_messages(keys, static_cast<int>(ring), position, plans_.cluster())
                                     : keys.exchanges[position].seen[ring].rows);
  }
  for (size_t i = 0; i < run.ranks.size(); ++i) keys_[static_cast<size_t>(run.ranks[i])].push_back(it->second[i]);
}

// Tasks of the rank itself, by their places in its list.
void EquivalenceClasses::add_waits(const ir::Task& task) {
  const int id = static_cast<int>(first_place_.size());
  for (const int rank : task.ranks) last_task_[static_cast<size_t>(rank)] = id;
  for (const ir::Wait& wait : task.after) {
    size_t place = first_place_[static_cast<size_t>(wait.task)];
    for (const int rank : program_.tasks[static_cast<size_t>(wait.task)].ranks) {
      std::vector<i64>& key = keys_[static_cast<size_t>(rank)];
      if (last_task_[static_cast<size_t>(rank)] == id) key.insert(key.end(), {-2, places_[place], wait.unit});
      ++place;
    }
  }
  first_place_.push_back(places_.size());
  for (const int rank : task.ranks) places_.push_back(tasks_before_[static_cast<size_t>(rank)]++);
}

int EquivalenceClasses::ring_of(const ir::Task& send, int rank) const {
  const CompiledStrategy& s = plans_.strategies()[static_cast<size_t>(phase(send.phase).strategy)];
  if (s.ring_ranks(send.replica()) == 1) return 0;
  return s.place_of(send.replica(), states_of(send, rank).front().stage, rank).ring;
}

i64 EquivalenceClasses::number_of(const ir::Task& t, int ring) {
  i64 tokens = 0;
  if (t.kind() == ir::TaskKind::run || t.kind() == ir::TaskKind::send) {
    const auto [it, fresh] = micro_batches_.try_emplace({t.phase, t.replica(), t.micro_batch(), ring});
    if (fresh) {
      const batch::MicroBatch& mb =
          phase(t.phase).replica[static_cast<size_t>(t.replica())][static_cast<size_t>(t.micro_batch())];
      const std::span<const batch::Piece> shard = mb.shard[static_cast<size_t>(ring)];
      it->second = numbers_
                       .try_emplace({mb.T[static_cast<size_t>(ring)], batch::squared_lengths(shard),
                                     batch::longest(shard), batch::keys_brought_together(shard)},
                                    static_cast<i64>(numbers_.size()))
                       .first->second;
    }
    tokens = it->second;
  }
  const auto pack = [](std::initializer_list<i64> numbers) {
    i64 packed = 0;
    for (const i64 number : numbers) packed = (packed << 20) + number + 1;
    return packed;
  };
  const auto [replica, group, stage, micro_batch, unit, round, piece, pass] = ir::numbers_of(t);
  const i64 what = (static_cast<i64>(t.kind()) << 8) + (static_cast<i64>(t.queue) << 4) + pass;
  return numbers_
      .try_emplace({pack({what, t.phase, group}), pack({stage, micro_batch, round}), pack({unit, piece}), tokens},
                   static_cast<i64>(numbers_.size()))
      .first->second;
}

// For each member: the shapes that it works on, whether it sends, or what it gets.
const std::vector<i64>& EquivalenceClasses::states_of_members(const ir::Task& t) {
  const auto [replica, group, stage, micro_batch, unit, round, piece, pass] = ir::numbers_of(t);
  const auto [it, fresh] =
      states_.try_emplace({t.messages.pattern().get(), t.messages.ranks().get(), t.phase, replica, stage});
  std::vector<i64>& states = it->second;
  if (!fresh) return states;
  if (t.kind() == ir::TaskKind::move) {
    for (const int rank : t.ranks) states.push_back(t.messages.sends(rank));
    return states;
  }
  if (t.kind() == ir::TaskKind::gather) {
    for (const int rank : t.ranks) {
      std::set<i64> taken;  // groups of which the rank gets parts
      for (const int param : t.messages.received(rank)) taken.insert(group_of_[static_cast<size_t>(param)]);
      const std::vector<i64> groups(taken.begin(), taken.end());
      states.push_back(gathered_.try_emplace(groups, static_cast<i64>(gathered_.size())).first->second);
    }
    return states;
  }
  for (const int rank : t.ranks) {
    i64 number = 0;
    for (const StateKey& state : states_of(t, rank)) number = number * 1024 + 1 + state_number(t, state, rank);
    states.push_back(number);
  }
  return states;
}

// Messages that may be encoded at a position: sizes, and whether they cross hosts.
void EquivalenceClasses::add_sends(const ir::StageCode& code, const ir::Instr& reshard, size_t pattern, int position,
                                   std::vector<i64>& sizes) {
  const std::vector<int>& hosts = code.hosts[pattern];
  for (const layout::Step& step : reshard.exchanges[pattern]->steps) {
    for (const layout::Piece& piece : step.parts[static_cast<size_t>(position)].sends) {
      const bool crosses = hosts[static_cast<size_t>(position)] != hosts[static_cast<size_t>(piece.peer)];
      sizes.push_back(piece.peer == position ? -2 : 2 * piece.box.elements() + crosses);
    }
    sizes.push_back(-1);
  }
}

// A send's states lie at its source, its target, or both.
i64 EquivalenceClasses::state_number(const ir::Task& t, const StateKey& state, int rank) {
  const int strategy = phase(t.phase).strategy;
  const CompiledStrategy& s = plans_.strategies()[static_cast<size_t>(strategy)];
  const RunPlace place = s.place_of(t.replica(), state.stage, rank);
  return 2 * shapes_of(strategy, t.replica(), state.stage, place.ring, s)[static_cast<size_t>(place.position)] +
         (state.stage == t.stage());
}

// Numbers the positions of a stage for replicas with the same placement on hosts: those with local tensors and scratch
// of equal sizes have the same.
const std::vector<int>& EquivalenceClasses::shapes_of(int strategy, int replica, int stage, int ring,
                                                      const CompiledStrategy& s) {
  const int group = s.replicas[static_cast<size_t>(replica)].group;
  const ir::StageCode& code = s.groups[static_cast<size_t>(group)].stages[static_cast<size_t>(stage)];
  const size_t pattern =
      code.hosts.size() == 1 ? 0 : ir::pattern_of(code, s.code_ranks(replica, stage, ring), plans_.cluster());
  std::vector<int>& shapes = shapes_[{strategy, group, stage, pattern}];
  if (!shapes.empty()) return shapes;
  std::map<std::vector<i64>, int>& numbers = shape_numbers_[{strategy, group, stage}];
  for (int position = 0; position < code.replica.size(); ++position) {
    std::vector<i64> sizes;
    for (const ir::Buffer& buffer : code.buffers)
      for (int d = 0; d < buffer.box[static_cast<size_t>(position)].dims; ++d)
        sizes.push_back(buffer.box[static_cast<size_t>(position)].size(d));
    for (const ir::Segment* segment : code.segments())
      for (const ir::Instr& instr : segment->code)
        if (!instr.op) {
          sizes.push_back(ir::scratch_bytes(code, instr, pattern, position, code.replica.size()));
          if (rule_of(s.strategy.compression, instr).codec != codecs::Codec::none)
            add_sends(code, instr, pattern, position, sizes);
        }
    shapes.push_back(numbers.try_emplace(sizes, static_cast<int>(numbers.size())).first->second);
  }
  return shapes;
}

}  // namespace switchyard::compiler
