#include "runtime/channels.hpp"

#include <algorithm>
#include <set>

#include "compiler/order.hpp"

namespace switchyard::runtime {
namespace {

constexpr int kFirstOfTasks = kFirstChannel + static_cast<int>(kWithin);

int id_of(const ir::Task& transfer) { return kFirstOfTasks + compiler::queue_number(transfer); }
int id_of(Within who) { return kFirstChannel + static_cast<int>(who); }

}  // namespace

comm::Channel channel_of(const ir::Task& transfer) { return {id_of(transfer), transfer.ranks}; }

comm::Channel channel_within(const ir::Task& run, Within who) { return {id_of(who), run.ranks}; }

Within collectives_of(const ir::Segment& segment) { return segment.apart ? Within::pieces : Within::collectives; }

std::vector<int> device_channels(const compiler::Plans& plans) {
  using ir::Queue;
  std::set<int> ids = {id_of({.what = ir::Reduce{}, .queue = Queue::bulk}),
                       id_of({.what = ir::Move{}, .queue = Queue::switching})};
  for (const compiler::CompiledStrategy& s : plans.strategies()) {
    if (s.strategy.gathers()) ids.insert(id_of({.what = ir::Gather{}, .queue = Queue::gather}));
    for (const ir::GroupCode& group : s.groups) {
      const int stages = static_cast<int>(group.stages.size());
      for (int stage = 0; stage + 1 < stages; ++stage) {
        ids.insert(id_of({.what = ir::Send{.stage = stage}, .queue = Queue::forward}));
        ids.insert(id_of({.what = ir::Send{.stage = stage + 1}, .queue = Queue::backward}));
      }
    }
    const Within collectives = collectives_of(s.groups.front().stages.front().forward);  // equal in all
    for (size_t replica = 0; replica < s.replicas.size(); ++replica) {
      if (s.ring_ranks(static_cast<int>(replica)) > 1) ids.insert(id_of(Within::ring));
      if (s.code_ranks(static_cast<int>(replica), 0, 0).size() > 1)
        ids.insert({id_of(Within::operators), id_of(collectives)});
    }
  }
  return {ids.begin(), ids.end()};
}

}  // namespace switchyard::runtime
