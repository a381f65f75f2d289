// The channels of this layer. What exchanges messages at the same time as others has one of its own.
#pragma once

#include "runtime/channels.hpp"

namespace switchyard::train {

enum ChannelId : int {
  kAgreementChannel = 1,     // ranks agree before they go on
  kVerificationChannel = 2,  // what `verify` compares
  kStepChannel = 3,          // batch plans and figures of steps
  kTimelineChannel = 4,
  kMeasurementChannel = 5,   // meetings of ranks that measure together
  kLinkChannel = 6,          // pairs of ranks whose link is measured
  kFileChannel = 7,          // joint work on files
  kHostChannel = 8,          // what each host has
  kSwitchBenchChannel = 9,
};
static_assert(kSwitchBenchChannel < runtime::kFirstChannel, "an executor's channels follow");

}  // namespace switchyard::train
