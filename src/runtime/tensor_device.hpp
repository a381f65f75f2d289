// Devices of libtorch as fabrics use them.
#pragma once

#include <ATen/core/Tensor.h>

#include "comm/fabric.hpp"

namespace switchyard::runtime {

/// The device whose memory blocks of such tensors are; null for CPUs. It lives as long as the process.
const comm::BlockDevice* block_device(const at::Device& device);

/// A tensor's memory. Views have one or two dims and are dense in the last.
comm::Block block_of(const at::Tensor& tensor);

}  // namespace switchyard::runtime
