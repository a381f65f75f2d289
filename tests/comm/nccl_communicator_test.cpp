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
  ranks.a.issue({&send, 1}, device_a.native_stream());
  EXPECT_FALSE(ranks.a.ready());
  await(ranks.a);
  ranks.b.issue({&recv, 1}, device_b.native_stream());
  await(ranks.b);
  device_a.synchronise(), device_b.synchronise();
  EXPECT_EQ(to, from);
  EXPECT_EQ(ranks.a.ready_if_free(), true);
  ranks.a.finalize(), ranks.b.finalize();
  ranks.a.close(), ranks.b.close();
  EXPECT_EQ(ranks.a.ready_if_free(), std::nullopt);
}

TEST(NcclCommunicator, AnAbortEndsMessagesAndAllLaterCalls) {
  TwoRanks ranks;
  await(ranks.a), await(ranks.b);
  const StreamDevice device;
  float x = 1;
  const NcclMessage send{false, 1, reinterpret_cast<std::byte*>(&x), 4};
  ranks.a.issue({&send, 1}, device.native_stream());
  await(ranks.a);
  ranks.a.abort();
  device.synchronise();
  EXPECT_THAT(
      [&] {
        ranks.a.issue({&send, 1}, device.native_stream());
      },
      ThrowsMessage<NcclError>(StrEq("the communicator was aborted")));
}

TEST(NcclCommunicator, GivesTheWordsOfTheLibrary) {
  TwoRanks ranks;
  await(ranks.a), await(ranks.b);
  const StreamDevice device;
  float x = 1;
  const NcclMessage send{true, 1, reinterpret_cast<std::byte*>(&x), 4};
  const NcclFault fault("send");
  EXPECT_THAT(
      [&] {
        ranks.a.issue({&send, 1}, device.native_stream());
      },
      ThrowsMessage<NcclError>(StrEq("ncclSend: invalid argument: send on purpose")));
}

}  // namespace
}  // namespace switchyard::comm
