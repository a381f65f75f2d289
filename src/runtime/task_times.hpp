// When the tasks of a rank worked, waited, and exchanged messages. On a device, times are those at which its streams
// got there, not those at which the host gave them the work.
#pragma once

#include <vector>

#include "ir/program.hpp"
#include "runtime/flight.hpp"

namespace switchyard::runtime {

/// A span of time in which a task of the Program worked, in seconds from the step's start on this rank, without what it
/// waited for other tasks. communication: a transfer, or a collective inside a run; counts from when this rank was
/// ready for it, so it may wait for its peers within.
struct TaskSpan {
  int task = 0;
  bool communication = false;
  double begin = 0, end = 0;
};

/// Seconds of this rank's streams in one step. On a device, what ends after the last time that the host waits in a step
/// counts for the next one.
struct StepTimes {
  double total = 0, compute = 0, waiting = 0;  // waiting: of the compute stream, for anything
  double parameters = 0;                       // part of waiting: for parameters of a switch
  double switching = 0, reducing = 0;          // busy time of these streams
  double communication = 0,
         hidden = 0;  // in which any stream transferred, but for what only came from another stage; part of it in which
                      // the compute stream worked, too
};

/// Adds the communication of spans of one rank, all of a step's, in any order.
void add_communication(const std::vector<TaskSpan>& spans, StepTimes& sums);

/// Times of one task, by the thread that performs it.
class TaskTimes {
 public:
  /// The thread of this rank has nothing before it.
  TaskTimes(int id, const ir::Task& task, int rank, const at::Device& device);
  /// Called when all that the task waits for is done.
  void start();
  /// Within, it waits for a unit's parameters, and goes on when they are there.
  void pause();
  void resume();
  /// Within, it takes part in a collective of all ranks, for the last of which it waits.
  void begin_collective();
  void end_collective();
  /// Adds an exchange beside the task's work, for which the task has waited.
  void exchanged(const Flight::Times& times);
  void end();

  /// Whether all of it is known by now.
  bool reached() const { return end_.reached(); }
  /// Whether it only takes what another stage sends. It is ready for that long before, so the sender's time counts.
  bool receives() const { return receives_; }
  /// Adds all but communication, of which tasks may have some at the same time.
  void add_to(StepTimes& sums) const;
  /// The task's spans, in order of their begin.
  std::vector<TaskSpan> spans(const Instant& step_start) const;

 private:
  struct Stretch {
    Instant begin, end;
  };

  int id_;
  ir::Queue queue_;
  bool communication_, receives_;
  at::Device device_;
  Instant arrived_, started_, at_, end_;
  std::vector<Stretch> work_, pauses_, collectives_;
  std::vector<Flight::Times> exchanges_;
};

}  // namespace switchyard::runtime
