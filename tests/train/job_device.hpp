// run.device for the device on which tests compute.
#pragma once

#include "../standin/test_device.hpp"
#include "config/job.hpp"
#include "train/host_share.hpp"

namespace switchyard::train {

/// cuda where it is no CPU, and from now on stands for that device.
inline cluster::DeviceType job_device() {
  const at::Device device = standin::test_device();
  if (device.is_cpu()) return cluster::DeviceType::cpu;
  gpu_type() = device.type();
  return cluster::DeviceType::cuda;
}

}  // namespace switchyard::train
