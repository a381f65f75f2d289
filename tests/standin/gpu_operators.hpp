// Operators for which libtorch has kernels for GPUs only, for the stand-in device.
#pragma once

#include <cstdint>

namespace switchyard::standin {

/// From the first call on, these operators have CPU kernels, which the stand-in device uses as it uses all others. They
/// refuse what those for GPUs refuse, and leave NaN where those leave memory as it was.
void register_gpu_operators();
/// How often each of flash attention, and of cuDNN's attention, was called since the process began.
struct FlashAttentionCalls {
  std::int64_t forward = 0, backward = 0;
};
FlashAttentionCalls flash_attention_calls();
FlashAttentionCalls padded_attention_calls();

}  // namespace switchyard::standin
