#include "comm/nccl_communicator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nccl_ranks.hpp"

namespace switchyard::comm {
namespace {

using ::testing::StrEq;
using ::testing::ThrowsMessage;

void await(NcclCommunicator& communicator) {
  while (!communicator.ready()) std::this_thread::yield();
}

struct TwoRanks {
  NcclLibrary library{STANDIN_NCCL};
  nccl::UniqueId id = [this] {
    nccl::UniqueId made{};
    library.GetUniqueId(&made);
    return made;
  }();
  NcclCommunicator a{library, 2, id, 0, 4}, b{library, 2, id, 1, 4};
};

TEST(NcclCommunicator, MovesBytesInTheOrderOfAStream) {
  TwoRanks ranks;
  await(ranks.a), await(ranks.b);
  const StreamDevice device_a, device_b;
  std::vector<float> from{1, 2, 3}, to(3);
  const auto bytes = [](std::vector<float>& x) { return reinterpret_cast<std::byte*>(x.data()); };
  const NcclMessage send{true, 1, bytes(from), 12}, recv{false, 0, bytes(to), 12};
  ranks.a.issue(std::span(&send, 1), device_a.native_stream());
  EXPECT_FALSE(ranks.a.ready());
  await(ranks.a);
  ranks.b.issue(std::span(&recv, 1), device_b.native_stream());
  await(ranks.b);
  device_a.synchronise(), device_b.synchronise();
  EXPECT_EQ(to, from);
  EXPECT_EQ(ranks.a.ready_if_free(), true);
  ranks.a.finalize(), ranks.b.finalize();
  ranks.a.close(), ranks.b.close();
  EXPECT_EQ(ranks.a.ready_if_free(), std::nullopt);
}

TEST(NcclCommunicator, CollectivesOfAGroupFollowEachOther) {
  TwoRanks ranks;
  await(ranks.a), await(ranks.b);
  const StreamDevice device_a, device_b;
  struct Memory {
    std::vector<float> mine, both = std::vector<float>(2), partial, sum = std::vector<float>(1), all;
  } a{.mine = {1}, .partial = {10, 20}, .all = {0.5F, 3}}, b{.mine = {2}, .partial = {30, 40}, .all = {2.5F, 4}};
  const auto calls = [](Memory& m) {
    const auto in = [](std::vector<float>& x) { return reinterpret_cast<std::byte*>(x.data()); };
    return std::vector<NcclCollective>{{GroupCall::all_gather, in(m.mine), in(m.both), 1, DType::f32},
                                       {GroupCall::reduce_scatter, in(m.partial), in(m.sum), 1, DType::f32},
                                       {GroupCall::all_reduce, in(m.all), in(m.all), 2, DType::f32}};
  };
  const auto of_a = calls(a), of_b = calls(b);
  ranks.a.issue(std::span(of_a), device_a.native_stream());
  await(ranks.a);
  ranks.b.issue(std::span(of_b), device_b.native_stream());
  await(ranks.b);
  device_a.synchronise(), device_b.synchronise();
  for (const Memory* m : {&a, &b}) {
    EXPECT_EQ(m->both, (std::vector<float>{1, 2}));
    EXPECT_EQ(m->all, (std::vector<float>{3, 7}));
  }
  EXPECT_EQ(a.sum[0], 40);
  EXPECT_EQ(b.sum[0], 60);
}

TEST(NcclCommunicator, ACollectiveThatIsRefusedIsNamed) {
  TwoRanks ranks;
  await(ranks.a), await(ranks.b);
  const StreamDevice device;
  std::vector<float> x(2);
  auto* const data = reinterpret_cast<std::byte*>(x.data());
  const NcclFault fault("collective");
  for (const auto& [call, name] :
       {std::pair(GroupCall::all_gather, "ncclAllGather"), std::pair(GroupCall::reduce_scatter, "ncclReduceScatter"),
        std::pair(GroupCall::all_reduce, "ncclAllReduce")}) {
    const NcclCollective collective{call, data, data, 1, DType::f32};
    EXPECT_THAT([&] { ranks.a.issue(std::span(&collective, 1), device.native_stream()); },
                ThrowsMessage<NcclError>(StrEq(std::string(name) + ": invalid argument: collective on purpose")));
  }
}

TEST(NcclCommunicator, AnAbortEndsMessagesAndAllLaterCalls) {
  TwoRanks ranks;
  await(ranks.a), await(ranks.b);
  const StreamDevice device;
  float x = 1;
  const NcclMessage send{false, 1, reinterpret_cast<std::byte*>(&x), 4};
  ranks.a.issue(std::span(&send, 1), device.native_stream());
  await(ranks.a);
  ranks.a.abort();
  device.synchronise();
  EXPECT_THAT([&] { ranks.a.issue(std::span(&send, 1), device.native_stream()); },
              ThrowsMessage<NcclError>(StrEq("the communicator was aborted")));
}

TEST(NcclCommunicator, GivesTheWordsOfTheLibrary) {
  TwoRanks ranks;
  await(ranks.a), await(ranks.b);
  const StreamDevice device;
  float x = 1;
  const NcclMessage send{true, 1, reinterpret_cast<std::byte*>(&x), 4};
  const NcclFault fault("send");
  EXPECT_THAT([&] { ranks.a.issue(std::span(&send, 1), device.native_stream()); },
              ThrowsMessage<NcclError>(StrEq("ncclSend: invalid argument: send on purpose")));
}

}  // namespace
}  // namespace switchyard::comm
