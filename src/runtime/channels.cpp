#include "runtime/channels.hpp"

#include "compiler/order.hpp"

namespace switchyard::runtime {
namespace {

constexpr int kFirstOfTasks = kFirstChannel + static_cast<int>(Within::ring) + 1;

}  // namespace

comm::Channel channel_of(const ir::Task& transfer) {
  return {kFirstOfTasks + compiler::queue_number(transfer), transfer.ranks};
}

comm::Channel channel_within(const ir::Task& run, Within who) {
  return {kFirstChannel + static_cast<int>(who), run.ranks};
}

}  // namespace switchyard::runtime
