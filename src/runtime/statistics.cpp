#include "runtime/statistics.hpp"

#include <ATen/ops/amax.h>
#include <ATen/ops/sum.h>

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
  const i64 row = ++*call_.replica.row;
  if (!statistics.is_cpu()) return reduce_on_device(name, statistics, maximum, row);
  const auto all_reduce = maximum ? comm::all_reduce_max : comm::all_reduce;
  all_reduce(*call_.replica.fabric, channel_, name, row, statistics.data_ptr(), statistics.numel(), call_.state);
}

// All ranks bring all statistics together and reduce them alike.
void StatisticRanks::reduce_on_device(const std::string& name, at::Tensor& statistics, bool maximum, i64 row) const {
  const auto ranks = static_cast<i64>(channel_.ranks.size());
  const at::Tensor own = statistics.view({statistics.numel()}),
                   all = empty({ranks, own.numel()}, call_.state, own.device());
  Transfer transfer;
  for (i64 i = 0; i < ranks; ++i) {
    const int peer = channel_.ranks[static_cast<size_t>(i)];
    if (peer == call_.replica.fabric->rank()) {
      transfer.local(all.select(0, i), own, false);
    } else {
      transfer.send(peer, own);
      transfer.receive(peer, all.select(0, i), false);
    }
  }
  transfer.run(*call_.replica.fabric, channel_, name, row);
  own.copy_(maximum ? at::amax(all, 0) : at::sum(all, 0));
}

}  // namespace switchyard::runtime
