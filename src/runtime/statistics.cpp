#include "runtime/statistics.hpp"

#include "comm/collectives.hpp"

namespace switchyard::runtime {

StatisticRanks::StatisticRanks(const KernelCall& call) : call_(call), channel_{call.replica.channel.id, {}} {
  const auto sums = ir::statistic_sums(call.stage, call.instr);
  if (!sums) return;
  const layout::Layout& cut = call.stage.buffers[static_cast<size_t>(call.instr.in[sums->cut])].layout;
  for (const int peer : call.stage.replica.peers(call.position, cut.split[sums->dim]))
    channel_.ranks.push_back(call.replica.channel.ranks[static_cast<size_t>(peer)]);
}

void StatisticRanks::reduce(const std::string& name, at::Tensor& statistics, bool maximum) const {
  at::Tensor host = statistics.is_cpu() ? statistics : statistics.cpu();
  const i64 row = ++*call_.replica.row;
  const auto all_reduce = maximum ? comm::all_reduce_max : comm::all_reduce;
  all_reduce(*call_.replica.fabric, channel_, name, row, host.data_ptr(), host.numel(), call_.state);
  if (!statistics.is_cpu()) statistics.copy_(host);
}

}  // namespace switchyard::runtime
