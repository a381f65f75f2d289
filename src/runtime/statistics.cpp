#include "runtime/statistics.hpp"

#include <ATen/ops/amax.h>
#include <ATen/ops/sum.h>

#include <algorithm>

#include "comm/collectives.hpp"
#include "runtime/tensors.hpp"
#include "runtime/transfer.hpp"

namespace switchyard::runtime {

StatisticRanks::StatisticRanks(const KernelCall& call) : call_(call), channel_{call.replica.channel.id, {}} {
  const auto sums = ir::statistic_sums(call.stage, call.instr);
  if (!sums) return;
  const layout::Layout& cut = call.stage.buffers[static_cast<size_t>(call.instr.in[sums->cut])].layout;
  for (const int peer : call.stage.replica.peers(call.position, cut.split[sums->dim]))
    channel_.ranks.push_back(call.replica.channel.ranks[static_cast<size_t>(peer)]);
}

void StatisticRanks::reduce(const std::string& name, at::Tensor& statistics, bool maximum) const {
  const i64 number = ++*call_.replica.number;
  if (!statistics.is_cpu()) return reduce_on_device(name, statistics, maximum, number);
  const auto all_reduce = maximum ? comm::all_reduce_max : comm::all_reduce;
  all_reduce(*call_.replica.fabric, channel_, name, number, statistics.data_ptr(), statistics.numel(), call_.state);
}

// Each rank reduces a part of the statistics, and all bring the parts together.
void StatisticRanks::reduce_on_device(const std::string& name, at::Tensor& statistics, bool maximum, i64 number) const {
  comm::Fabric& fabric = *call_.replica.fabric;
  const std::vector<int>& peers = channel_.ranks;
  const at::Tensor flat = statistics.view({statistics.numel()});
  const auto part = [&](i64 i) {
    return flat.slice(0, flat.numel() * i / std::ssize(peers), flat.numel() * (i + 1) / std::ssize(peers));
  };
  const i64 mine = std::ranges::find(peers, fabric.rank()) - peers.begin();
  const at::Tensor own = part(mine), all = empty({std::ssize(peers), own.numel()}, call_.state, own.device());
  Transfer reduction, gather;
  reduction.local(all.select(0, mine), own, false);
  for (i64 i = 0; i < std::ssize(peers); ++i) {
    if (i == mine) continue;
    const int peer = peers[static_cast<size_t>(i)];
    reduction.send(peer, part(i));
    reduction.receive(peer, all.select(0, i), false);
    gather.send(peer, own);
    gather.receive(peer, part(i), false);
  }
  reduction.run(fabric, channel_, name, number);
  own.copy_(maximum ? at::amax(all, 0) : at::sum(all, 0));
  gather.run(fabric, channel_, name, number);
}

}  // namespace switchyard::runtime
