// One instruction on one rank, without a program around it.
#pragma once

#include <memory>

#include "../tiny_job.hpp"
#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {

struct OneCall {
  ir::Instr instr{};
  ir::StageCode stage{};
  int position = 0;
  std::vector<at::Tensor> in{}, out{};
  MicroBatchFeeds feeds{};
  RopeTables rope{10000, {}};
  ReplicaLink replica{};

  explicit OneCall(std::shared_ptr<const ir::Operator> op) {
    instr.op = std::move(op);
    instr.first_partial = {true, false};
  }
  /// Adds a buffer whose part on this rank begins at `first_row`; cut: split along dim 0 over a replica of two
  /// ranks. Returns its number.
  int buffer(const at::Tensor& t, i64 first_row = 0, bool cut = false) {
    ir::Buffer b;
    b.type.dtype = DType::f64;
    b.layout = layout::replicated(static_cast<int>(t.dim()));
    if (cut) {
      stage.replica = {{{"outer", 2}}, {0, 1}};
      if (replica.fabric) position = replica.fabric->rank();
      b.layout.split[0] = {0};
    }
    layout::Box box{static_cast<int>(t.dim()), {}, {}};
    for (i64 d = 0; d < t.dim(); ++d) box.hi[static_cast<size_t>(d)] = t.size(d);
    box.lo[0] += first_row;
    box.hi[0] += first_row;
    b.box.assign(2, box);
    stage.buffers.push_back(b);
    return static_cast<int>(stage.buffers.size()) - 1;
  }
  /// Calls the kernel bound to the operator's name.
  void run() {
    KernelCall call{instr, stage, position, in, out, feeds, rope, replica, DType::f64};
    find_kernel(instr.op->name())(call);
  }
};

inline at::Tensor nothing(const std::vector<i64>& size) { return zeros(size, DType::f64, at::kCPU); }

inline at::Tensor integers(const std::vector<i64>& values) {
  at::Tensor t = empty({static_cast<i64>(values.size())}, DType::i64, at::kCPU);
  std::copy(values.begin(), values.end(), t.data_ptr<i64>());
  return t;
}

}  // namespace switchyard::runtime
