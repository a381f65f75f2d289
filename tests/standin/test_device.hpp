// The device on which tests compute.
#pragma once

#include <c10/core/Device.h>

namespace switchyard::standin {

/// By the environment variable SWITCHYARD_TEST_DEVICE: standin, the stand-in device; cuda, the first GPU; unset, the
/// CPU. With the stand-in, each test starts with nothing on its way, and what was freed or changed too early fails it.
at::Device test_device();

}  // namespace switchyard::standin
