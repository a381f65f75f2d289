// Signs that a device works: it may have much to do after its host has given it everything.
#pragma once

#include <memory>

#include "comm/fabric.hpp"

namespace switchyard::comm {

/// A fabric that hands everything on to `inner`. Of the signs of work that a rank gives while it gives work to its
/// device, some are given once more when the device gets there: so no rank counts as silent whose device computes.
/// works() is called on threads that use the device. `inner` and `device` outlive the fabric.
std::unique_ptr<Fabric> with_device_work(Fabric& inner, const BlockDevice& device);

}  // namespace switchyard::comm
