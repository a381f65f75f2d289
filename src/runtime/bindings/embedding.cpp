#include "kernels/embedding.hpp"

#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {

void run_embedding(KernelCall& call) {
  kernels::embedding(call.out[0], call.in[0], call.in[1], call.first_row(call.instr.in[1]));
}
void run_embedding_dw(KernelCall& call) {
  kernels::embedding_dw(call.out[0], call.in[0], call.in[1], call.first_row(call.instr.out[0]));
}

}  // namespace switchyard::runtime
