#include "kernels/activation.hpp"

#include "ir/operators/gelu.hpp"
#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {

void run_swiglu(KernelCall& call) { kernels::swiglu(call.out[0], call.in[0], call.in[1]); }
void run_swiglu_dx(KernelCall& call) {
  kernels::swiglu_dx(call.out[0], call.out[1], call.in[0], call.in[1], call.in[2]);
}
void run_gelu(KernelCall& call) { kernels::gelu(call.out[0], call.in[0], call.op<ir::Gelu>().tanh_form()); }
void run_gelu_dx(KernelCall& call) {
  kernels::gelu_dx(call.out[0], call.in[0], call.in[1], call.op<ir::GeluDx>().tanh_form());
}
void run_add(KernelCall& call) { kernels::add(call.out[0], call.in[0], call.in[1]); }

}  // namespace switchyard::runtime
