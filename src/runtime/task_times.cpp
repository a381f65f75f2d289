#include "runtime/task_times.hpp"

#include <algorithm>
#include <utility>

namespace switchyard::runtime {

void add_communication(const std::vector<TaskSpan>& spans, StepTimes& sums) {
  struct Edge {
    double at = 0;
    bool communication = false;
    int change = 0;  // change of the number of spans that go on
  };
  std::vector<Edge> edges;
  edges.reserve(2 * spans.size());
  for (const TaskSpan& span : spans) {
    edges.push_back({span.begin, span.communication, 1});
    edges.push_back({span.end, span.communication, -1});
  }
  std::ranges::sort(edges, {}, &Edge::at);
  int transferring = 0, computing = 0;
  double last = 0;
  for (const Edge& edge : edges) {
    if (transferring > 0) sums.communication += edge.at - last;
    if (transferring > 0 && computing > 0) sums.hidden += edge.at - last;
    (edge.communication ? transferring : computing) += edge.change;
    last = edge.at;
  }
}

TaskTimes::TaskTimes(int id, const ir::Task& task, int rank, const at::Device& device)
    : id_(id),
      queue_(task.queue),
      communication_(ir::is_transfer(task.kind()) || task.queue == ir::Queue::collective),
      receives_(task.kind() == ir::TaskKind::send &&
                std::ranges::none_of(task.messages, [&](const layout::Msg& m) { return m.src == rank; })),
      device_(device),
      arrived_(Instant::here(device)) {}

void TaskTimes::start() { started_ = at_ = Instant::here(device_); }

void TaskTimes::pause() {
  const Instant now = Instant::here(device_);
  work_.push_back({std::exchange(at_, now), now});
}

void TaskTimes::resume() {
  const Instant now = Instant::here(device_);
  pauses_.push_back({std::exchange(at_, now), now});
}

void TaskTimes::begin_collective() {
  const Instant now = Instant::here(device_);
  collectives_.push_back({now, now});
}

void TaskTimes::end_collective() { collectives_.back().end = Instant::here(device_); }

void TaskTimes::exchanged(const Flight::Times& times) {
  work_.push_back({at_, times.waiting});
  at_ = Instant::here(device_);
  exchanges_.push_back(times);
}

void TaskTimes::end() {
  end_ = Instant::here(device_);
  work_.push_back({at_, end_});
}

void TaskTimes::add_to(StepTimes& sums) const {
  const double worked = end_.seconds_since(started_);
  if (queue_ == ir::Queue::switching) sums.switching += worked;
  if (queue_ == ir::Queue::bulk) sums.reducing += worked;
  if (queue_ != ir::Queue::compute) return;
  const auto seconds_of = [](const std::vector<Stretch>& stretches) {
    double seconds = 0;
    for (const Stretch& stretch : stretches) seconds += stretch.end.seconds_since(stretch.begin);
    return seconds;
  };
  const double paused = seconds_of(pauses_), met = seconds_of(collectives_);
  sums.waiting += started_.seconds_since(arrived_) + paused + met;
  sums.parameters += paused;
  sums.compute += worked - paused - met;
}

std::vector<TaskSpan> TaskTimes::spans(const Instant& step_start) const {
  std::vector<TaskSpan> all;
  const auto add = [&](bool communication, const Instant& begin, const Instant& end) {
    const TaskSpan span{id_, communication, begin.seconds_since(step_start), end.seconds_since(step_start)};
    if (span.end > span.begin) all.push_back(span);
  };
  for (const Stretch& stretch : work_) add(communication_, stretch.begin, stretch.end);
  for (const Flight::Times& times : exchanges_) add(true, times.begin, times.end);
  std::ranges::stable_sort(all, {}, &TaskSpan::begin);
  return all;
}

}  // namespace switchyard::runtime
