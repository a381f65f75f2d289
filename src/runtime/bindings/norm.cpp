#include "kernels/norm.hpp"

#include "ir/operators/norm.hpp"
#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {
namespace {

at::Tensor optional_input(const KernelCall& call, size_t index) {
  return index < call.in.size() ? call.in[index] : at::Tensor();
}

// The kernels expect statistics with one column as vectors.
at::Tensor column(const at::Tensor& statistics) {
  return statistics.size(1) == 1 ? statistics.select(1, 0) : statistics;
}

}  // namespace

void run_rms_norm(KernelCall& call) {
  kernels::rms_norm(call.out[0], call.out[1], call.in[0], call.in[1], call.op<ir::RmsNorm>().eps());
}

void run_rms_norm_dx(KernelCall& call) {
  kernels::rms_norm_dx(call.out[0], call.in[0], call.in[1], call.in[2], call.in[3], optional_input(call, 4));
}

void run_rms_norm_dw(KernelCall& call) { kernels::rms_norm_dw(call.out[0], call.in[0], call.in[1], call.in[2]); }

void run_layer_norm(KernelCall& call) {
  at::Tensor mean = column(call.out[1]), rstd = column(call.out[2]);
  kernels::layer_norm(call.out[0], mean, rstd, call.in[0], call.in[1], call.in[2], call.op<ir::LayerNorm>().eps());
}

void run_layer_norm_dx(KernelCall& call) {
  kernels::layer_norm_dx(call.out[0], call.in[0], call.in[1], call.in[2], column(call.in[3]), column(call.in[4]),
                         optional_input(call, 5));
}

void run_layer_norm_dw(KernelCall& call) {
  kernels::layer_norm_dw(call.out[0], call.out[1], call.in[0], call.in[1], column(call.in[2]), column(call.in[3]));
}

}  // namespace switchyard::runtime
