#include "runtime/channels.hpp"

#include "base/errors.hpp"

namespace switchyard::runtime {
namespace {

constexpr int kWithin = -1;

}  // namespace

Channels::Key Channels::key_of(const ir::Task& transfer) {
  return {static_cast<int>(transfer.queue), ir::stage_of_queue(transfer), transfer.ranks};
}

void Channels::add(const ir::Program& program) {
  const auto number = [&](Key key) {
    const int next = kFirstChannel + static_cast<int>(channels_.size());
    const auto [it, fresh] = channels_.try_emplace(std::move(key));
    if (fresh) it->second.channel = {next, std::get<2>(it->first)};
  };
  for (const ir::Task& task : program.tasks) {
    if (ir::is_transfer(task.kind())) number(key_of(task));
    if (task.kind() == ir::TaskKind::run)
      for (const Within who : {Within::operators, Within::collectives, Within::ring})
        number({kWithin, static_cast<int>(who), task.ranks});
  }
}

const comm::Channel& Channels::of(const ir::Task& task) const {
  const auto known = channels_.find(key_of(task));
  check(known != channels_.end(), "{} has no channel", task);
  return known->second.channel;
}

NumberedChannel& Channels::within(const ir::Task& run, Within who) {
  const auto known = channels_.find({kWithin, static_cast<int>(who), run.ranks});
  check(known != channels_.end(), "{} has no channel", run);
  return known->second;
}

}  // namespace switchyard::runtime
