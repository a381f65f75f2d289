// The channels of this layer. What exchanges messages at the same time as others has one of its own.
#pragma once

#include "runtime/channels.hpp"

namespace switchyard::train {

/// Where a channel's messages belong to steps, their transactions have the numbers of these, from 1; what is said once
/// before them has this.
inline constexpr i64 kBeforeTheFirstStep = 0;

enum ChannelId : int {
  kAgreementChannel = 1,     // ranks agree before they go on
  kVerificationChannel = 2,  // what `verify` compares
  kPlanChannel = 3,          // the batch plan of each step
  kTimelineChannel = 4,      // when the tasks of a step worked
  kMeasurementChannel = 5,   // exchanges of ranks that measure together
  kLinkChannel = 6,          // pairs of ranks whose link is measured
  kFileChannel = 7,          // joint work on files
  kHostChannel = 8,          // what each host has
  kSwitchBenchChannel = 9,
  kFigureChannel = 10,      // figures of each step
  kStartChannel = 11,       // what is reported before the first step, and room for the copies of checkpoints
  kCheckpointChannel = 12,  // joint work on checkpoints while training goes on
  kValidationChannel = 13,
  kDraftChannel = 14,   // joint work on the choice of a step's buckets
  kStopChannel = 15,    // whether a rank was asked to stop during a validation
  kSearchChannel = 16,  // joint work on the plan of a job without strategies
};
static_assert(kSearchChannel < runtime::kFirstChannel, "an executor's channels follow");

}  // namespace switchyard::train
