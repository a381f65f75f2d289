#include "base/errors.hpp"
#include "runtime/kernel_call.hpp"

namespace switchyard::runtime {

Kernel find_kernel(const std::string& name) {
  static const std::map<std::string, Kernel> kKernels = {{"linear", run_linear},
                                                         {"linear_dx", run_linear_dx},
                                                         {"linear_dw", run_linear_dw},
                                                         {"bias_dw", run_bias_dw},
                                                         {"rms_norm", run_rms_norm},
                                                         {"rms_norm_dx", run_rms_norm_dx},
                                                         {"rms_norm_dw", run_rms_norm_dw},
                                                         {"layer_norm", run_layer_norm},
                                                         {"layer_norm_dx", run_layer_norm_dx},
                                                         {"layer_norm_dw", run_layer_norm_dw},
                                                         {"rope", run_rope},
                                                         {"attention", run_attention},
                                                         {"attention_dx", run_attention_dx},
                                                         {"swiglu", run_swiglu},
                                                         {"swiglu_dx", run_swiglu_dx},
                                                         {"gelu", run_gelu},
                                                         {"gelu_dx", run_gelu_dx},
                                                         {"add", run_add},
                                                         {"embedding", run_embedding},
                                                         {"embedding_dw", run_embedding_dw},
                                                         {"head", run_head_forward},
                                                         {"head_loss", run_head_loss},
                                                         {"head_loss_dx", run_head_loss_dx},
                                                         {"unfused_attention", run_unfused_attention},
                                                         {"unfused_attention_dx", run_unfused_attention_dx},
                                                         {"dropout", run_dropout},
                                                         {"dropout_dx", run_dropout_dx}};
  const auto it = kKernels.find(name);
  check(it != kKernels.end(), "operator {} has no kernel", name);
  return it->second;
}

}  // namespace switchyard::runtime
