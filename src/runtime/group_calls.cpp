#include "runtime/group_calls.hpp"

#include <algorithm>
#include <set>

#include "runtime/channels.hpp"

namespace switchyard::runtime {
namespace {

std::vector<int> named(const std::vector<int>& positions, const std::vector<int>& ranks) {
  std::vector<int> names;
  for (const int position : positions) names.push_back(ranks[static_cast<size_t>(position)]);
  return names;
}

// Groups of which either all have communicators or none, as they come: those of one collective.
class Chosen {
 public:
  explicit Chosen(int ranks) : of_rank_(static_cast<size_t>(ranks)) {}

  void add(int channel, const std::vector<std::vector<int>>& groups) {
    std::set<comm::Channel> fresh;
    for (const std::vector<int>& ranks : groups)
      if (comm::Channel group{channel, ranks}; !known_.contains(group)) fresh.insert(std::move(group));
    std::vector<int> of_rank = of_rank_;
    for (const comm::Channel& group : fresh)
      for (const int rank : group.ranks)
        if (++of_rank[static_cast<size_t>(rank)] > kMostGroups) return;
    of_rank_ = std::move(of_rank);
    list_.insert(list_.end(), fresh.begin(), fresh.end());
    known_.merge(fresh);
  }
  std::vector<comm::Channel> list() && { return std::move(list_); }

 private:
  std::vector<int> of_rank_;
  std::set<comm::Channel> known_;
  std::vector<comm::Channel> list_;
};

template <class Visit>
void each_exchange(const ir::StageCode& stage, size_t pattern, const Visit& visit) {
  for (const ir::Segment* segment : stage.segments()) {
    const int channel = channel_within({}, collectives_of(*segment)).id;
    for (const ir::Instr& instr : segment->code)
      if (!instr.op) visit(*instr.exchanges[pattern], channel);
  }
}

void add_reshards(Chosen& chosen, const compiler::Plans& plans, bool with_sums) {
  for (const compiler::CompiledStrategy& s : plans.strategies())
    for (int replica = 0; replica < static_cast<int>(s.replicas.size()); ++replica) {
      const auto& stages = s.groups[static_cast<size_t>(s.replicas[static_cast<size_t>(replica)].group)].stages;
      for (int at = 0; at < static_cast<int>(stages.size()); ++at)
        for (int ring = 0; ring < s.ring_ranks(replica); ++ring) {
          const ir::StageCode& stage = stages[static_cast<size_t>(at)];
          const std::vector<int> ranks = s.code_ranks(replica, at, ring);
          const size_t pattern = ir::pattern_of(stage, ranks, plans.cluster());
          each_exchange(stage, pattern, [&](const layout::Exchange& exchange, int channel) {
            for (const layout::Stretch& stretch : exchange.stretches) {
              if (sums(stretch.groups[0].call) && !with_sums) continue;
              std::vector<std::vector<int>> groups;
              for (const layout::GroupCollective& group : stretch.groups) groups.push_back(named(group.ranks, ranks));
              chosen.add(channel, groups);
            }
          });
        }
    }
}

// The channel does not depend on which task of the kind it is.
int channel_of_kind(ir::TaskKind kind) {
  switch (kind) {
    case ir::TaskKind::gather:
      return channel_of({.what = ir::Gather{}, .queue = ir::Queue::gather}).id;
    case ir::TaskKind::move:
      return channel_of({.what = ir::Move{}, .queue = ir::Queue::switching}).id;
    default:
      return channel_of({.what = ir::Reduce{}, .queue = ir::Queue::bulk}).id;
  }
}

void add_transfers(Chosen& chosen, const compiler::Plans& plans, bool with_sums) {
  for (const compiler::UnitTransfer& transfer : compiler::unit_transfers(plans))
    for (const auto& [param, collectives] : compiler::collectives_of(transfer, plans).of_param) {
      if (sums(collectives[0].call) && !with_sums) continue;
      std::vector<std::vector<int>> groups;
      for (const layout::GroupCollective& group : collectives) groups.push_back(group.ranks);
      chosen.add(channel_of_kind(transfer.kind), groups);
    }
}

}  // namespace

std::vector<comm::Channel> collective_groups(const compiler::Plans& plans, bool with_sums) {
  Chosen chosen(plans.cluster().ranks());
  add_reshards(chosen, plans, with_sums);
  add_transfers(chosen, plans, with_sums);
  return std::move(chosen).list();
}

ServedStretches served_stretches(const ir::StageCode& stage, size_t pattern, const std::vector<int>& ranks,
                                 int position, const comm::Fabric& fabric) {
  ServedStretches all;
  if (!fabric.serves_any()) return all;
  each_exchange(stage, pattern, [&](const layout::Exchange& exchange, int channel) {
    const auto [entry, fresh] = all.try_emplace(&exchange);
    for (size_t i = 0; fresh && i < exchange.stretches.size(); ++i) {
      const layout::Stretch& stretch = exchange.stretches[i];
      ServedStretch served{.stretch = &stretch, .group = nullptr, .ranks = {}};
      bool serves = true;
      for (const layout::GroupCollective& group : stretch.groups) {
        std::vector<int> names = named(group.ranks, ranks);
        serves = serves && fabric.serves(channel, group.call, names);
        const auto place = std::ranges::find(group.ranks, position);
        if (place == group.ranks.end()) continue;
        served.group = &group;
        served.ranks = std::move(names);
        served.place = static_cast<size_t>(place - group.ranks.begin());
      }
      if (serves && served.group) entry->second.push_back(std::move(served));
    }
  });
  return all;
}

const compiler::UnitCollectives& ServedTransfers::of(const ir::Task& task, const batch::StepPlan& plan,
                                                     const compiler::Plans& plans) {
  static const compiler::UnitCollectives kNone;
  if (!fabric_.serves_any() || task.encoding.codec != codecs::Codec::none) return kNone;
  const compiler::UnitTransfer transfer = compiler::unit_transfer_of(task, plan, plans);
  const int channel = channel_of(task).id;
  const std::lock_guard lock(mutex_);
  const auto [entry, fresh] = known_.try_emplace({&plans, transfer});
  if (!fresh) return entry->second;
  entry->second = compiler::collectives_of(transfer, plans);
  std::erase_if(entry->second.of_param, [&](const auto& of_param) {
    return !std::ranges::all_of(of_param.second, [&](const layout::GroupCollective& group) {
      return fabric_.serves(channel, group.call, group.ranks);
    });
  });
  return entry->second;
}

}  // namespace switchyard::runtime
