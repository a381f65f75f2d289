// A stage that turns a (T, H) value from one layout to another, and nothing else.
#pragma once

#include <memory>
#include <vector>

#include "runtime/kernel_call.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {

inline constexpr i64 kT = 12, kH = 4;

/// host: of each rank of the replica.
struct OneReshard {
  OneReshard(const layout::Layout& from, const layout::Layout& to, const std::vector<int>& host) {
    const int ranks = static_cast<int>(host.size());
    const layout::Shape units{{ranks, kH}, {{}, {}}};  // tokens in units of T / ranks
    stage.replica = {{{"tp", ranks}}, {}};
    for (int rank = 0; rank < ranks; ++rank) stage.replica.ranks.push_back(rank);
    stage.hosts = {host};
    for (const layout::Layout* l : {&from, &to}) {
      ir::Buffer b;
      b.name = "stream";
      b.type = {DType::f64, {{ir::kTokens, kH}, {{}, {}}}};
      b.layout = *l;
      for (int position = 0; position < ranks; ++position)
        b.box.push_back(layout::shard_box(stage.replica, *l, units, position));
      stage.buffers.push_back(b);
    }
    instr.queue = ir::Queue::collective;
    instr.exchanges = {std::make_shared<const layout::Exchange>(layout::quickest_exchange(
        layout::expand(stage.replica, from, units), layout::expand(stage.replica, to, units), host))};
    instr.in = {0};
    instr.out = {1};
    feeds.T = kT;
  }
  at::Tensor output(int rank) const {
    return empty(ir::local_size(stage.buffers[1], rank, stage.replica.size(), {kT}), DType::f64, at::kCPU);
  }
  /// number: of the last transaction.
  KernelCall call(comm::Fabric& fabric, const at::Tensor& in, const at::Tensor& out, i64& number) {
    replica = {.fabric = &fabric,
               .channel = {},
               .number = nullptr,
               .collectives = {5, stage.replica.ranks},
               .collective_number = &number,
               .pattern = 0,
               .stream = nullptr};
    return {instr, stage, fabric.rank(), {in}, {out}, feeds, rope, replica, DType::f64};
  }

  ir::StageCode stage;
  ir::Instr instr;
  MicroBatchFeeds feeds;
  RopeTables rope{10000, {}};
  ReplicaLink replica;
};

}  // namespace switchyard::runtime
