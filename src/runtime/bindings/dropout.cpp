#include "kernels/dropout.hpp"

#include <ATen/ops/arange.h>

#include "ir/operators/dropout.hpp"
#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {

void run_dropout(KernelCall& call) {
  const auto& op = call.op<ir::Dropout>();
  const layout::Box& box = call.box(call.instr.out[0]);
  const i64 rows = call.out[0].size(0), unit = ir::token_unit(call.stage.replica, call.feeds.T);
  const at::Tensor columns = at::arange(box.lo[1], box.hi[1], call.feeds.keys.options());
  kernels::dropout_choice(call.out[1], call.feeds.keys.narrow(0, box.lo[0] * unit, rows), columns, op.site(), op.p());
  kernels::dropout(call.out[0], call.in[0], call.out[1], op.p());
}

void run_dropout_dx(KernelCall& call) {
  kernels::dropout(call.out[0], call.in[0], call.in[1], call.op<ir::DropoutDx>().p());
}

}  // namespace switchyard::runtime
