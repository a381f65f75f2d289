// Zero-bubble schedules: the gradient of a stage's input (B) is sent on at once, the gradient of its weights (W) fills
// idle time.
#pragma once

#include <vector>

#include "schedule/replay.hpp"
#include "schedule/schedule.hpp"

namespace switchyard::schedule {

/// One chunk per stage; no stage holds activations of more than `cap` micro-batches, from F to W. cap = stages is the
/// memory of 1F1B ("ZB-H1"), 2 * stages - 1 or more gives the least idle time ("ZB-H2").
/// devices  costs on each kind of device that the schedule may run on: with those of one device alone, an order may be
///          chosen that takes 1.7 times as long as 1F1B on another
/// idle     with F = B = W and no send: max(0, 2 stages - 1 - cap) times F on the worst stage, where stages <= cap and
///          mbs >= 2 stages - 1
/// method   list scheduling of all stages under a few rules of choice (list_scheduler.hpp), with the costs of each
///          device, this cap, and smaller ones as long as each shortens the step. The candidate with the shortest
///          makespan is taken, as the optimizer waits for the last gradient of all stages (the global norm needs them);
///          then that with the shortest longest_stage(), then the first. What is compared are means over the devices,
///          each as a share of its lower bound (least_length()). More than `stages` activations are held only where
///          that shortens the step by 0.5%. Where BW saves time (ItemTimes::saved), the gradients of this
///          candidate, and those of 1F1B with B and W apart, are then joined in several ways (join_gradients.hpp); the
///          best of these and of 1F1B is taken.
/// never    longer on any of the devices than 1F1B where cap >= stages (it is a candidate), nor than with a smaller cap
///          that is at least `stages`
/// source   arXiv 2401.10241
/// errors   InternalError for stages < 1, mbs < 0, cap < 1, no devices, or costs that aren't those of `stages`
///          positions
Schedule zero_bubble(int stages, int mbs, int cap, const std::vector<Costs>& devices);

/// Two chunks per stage in a V: the last stage's forward turns back at once, and the first stage begins and ends the
/// forward pass. No stage holds more than `cap` activations of a chunk; 2 * stages is the memory of 1F1B. `devices`
/// have the times of the 2 * stages positions. Method and errors as zero_bubble, but the best order with
/// BW alone that a few rules give stands in place of 1F1B; cap must be at least 2.
/// never    longer on any of the devices than with a smaller cap that is at least 2 * stages
/// source   arXiv 2401.10241, section 6, and arXiv 2405.15362
Schedule zero_bubble_v(int stages, int mbs, int cap, const std::vector<Costs>& devices);

}  // namespace switchyard::schedule
