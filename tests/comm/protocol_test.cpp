#include "comm/protocol.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/errors.hpp"
#include "comm/thread_fabric.hpp"

namespace switchyard::comm {
namespace {

using Kind = Op::Kind;

struct Memory {
  std::vector<std::byte> bytes = std::vector<std::byte>(100);
  Block at(i64 offset, i64 size) { return contiguous(bytes.data() + offset, size); }
};

std::string fault_of(const Op& op) {
  try {
    check_transaction(1, {4, {0, 1, 2}}, {"x", 7, {op}});
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(Protocol, RefusesOperationsThatCanNotBe) {
  Memory m;
  EXPECT_EQ(fault_of({Kind::send, 2, m.at(0, 8), {}, false, DType::f32}), "");
  EXPECT_EQ(fault_of({Kind::recv, 0, {}, {}, false, DType::f32}), "");
  EXPECT_EQ(fault_of({Kind::send, 1, m.at(0, 8), {}, false, DType::f32}),
            "rank 1: \"x\" operation 0: rank 1 is not another member of channel 4 (0, 1, 2)");
  EXPECT_EQ(fault_of({Kind::recv, 3, m.at(0, 8), {}, false, DType::f32}),
            "rank 1: \"x\" operation 0: rank 3 is not another member of channel 4 (0, 1, 2)");
  EXPECT_EQ(fault_of({Kind::local, -1, m.at(0, 8), m.at(8, 4), false, DType::f32}),
            "rank 1: \"x\" operation 0: local of 8 bytes from 4 bytes");
  EXPECT_EQ(fault_of({Kind::send, 2, {m.bytes.data(), 2, 8, 4}, {}, false, DType::f32}),
            "rank 1: \"x\" operation 0: rows of 8 bytes, 4 apart");
  EXPECT_EQ(fault_of({Kind::send, 2, {nullptr, 1, 8, 8}, {}, false, DType::f32}),
            "rank 1: \"x\" operation 0: rows of 8 bytes, 8 apart");
}

TEST(Protocol, OnlyAReceiveWhoseMemoryNobodyUsedBeforeMayArriveEarly) {
  Memory m;
  const Transaction t{"x",
                      0,
                      {{Kind::recv, 0, m.at(0, 8), {}, false, DType::f32},
                       {Kind::recv, 0, m.at(0, 8), {}, true, DType::f32},  // adds
                       {Kind::local, -1, m.at(16, 8), m.at(24, 8), false, DType::f32},
                       {Kind::recv, 0, m.at(20, 8), {}, false, DType::f32},  // written by the local before
                       {Kind::recv, 0, m.at(28, 8), {}, false, DType::f32},  // read by it
                       {Kind::recv, 0, m.at(40, 8), {}, false, DType::f32},
                       {Kind::send, 0, m.at(48, 8), {}, false, DType::f32}}};
  std::vector<bool> early;
  for (size_t i = 0; i < t.ops.size(); ++i) early.push_back(may_arrive_early(t, i));
  EXPECT_EQ(early, (std::vector<bool>{true, false, false, false, false, true, false}));
  poison_receives(t);
  for (size_t i = 0; i < 100; ++i)
    EXPECT_EQ(m.bytes[i], i < 8 || (i >= 40 && i < 48) ? std::byte{0xFF} : std::byte{0}) << i;
}

TEST(Protocol, MessagesNameRankHostTransactionAndPeer) {
  cluster::Cluster cluster{{0, 0, 1}, {"a", "b"}};
  EXPECT_EQ(rank_label(2, cluster), "rank 2 (host b)");
  cluster.names.clear();
  EXPECT_EQ(rank_label(2, cluster), "rank 2 (host 1)");
  const Transaction t{"layer12.qkv", 3, {}};
  EXPECT_EQ(
      heard_nothing("rank 5 (host b)", t, 6, std::chrono::seconds(30)),
      "rank 5 (host b): \"layer12.qkv\" heard nothing from rank 6 for 30 s. See its log, or raise fabric.timeout.");
  EXPECT_EQ(not_ended("rank 5 (host b)", "rank 6 (host a)", std::chrono::milliseconds(200)),
            "rank 5 (host b): all work is done, but rank 6 (host a) has not ended for 0.2 s. See its log.");
  EXPECT_EQ(not_exchanged("rank 5 (host b)", "x", {6}, std::chrono::seconds(30)),
            "rank 5 (host b): \"x\" has exchanged nothing with rank 6 for 30 s. See its log, or raise fabric.timeout.");
  EXPECT_EQ(device_failed("rank 5 (host b)", "x", {4, 6}, "invalid usage"),
            "rank 5 (host b): \"x\" with ranks 4, 6 failed on the device: invalid usage. See the logs of all ranks; "
            "NCCL_DEBUG=WARN says more.");
  EXPECT_EQ(device_failed("rank 5 (host b)", "channel 7", {}, "invalid usage"),
            "rank 5 (host b): \"channel 7\" failed on the device: invalid usage. See the logs of all ranks; "
            "NCCL_DEBUG=WARN says more.");
}

TEST(Protocol, AReasonNamesTheRankThatFailed) {
  EXPECT_EQ(reason_of("rank 5 (host b)", "std::bad_alloc"), "rank 5 (host b): std::bad_alloc");
  EXPECT_EQ(reason_of("rank 5 (host b)", "rank memory: none"), "rank 5 (host b): rank memory: none");
  EXPECT_EQ(reason_of("rank 5 (host b)", "rank 6: its device has no memory"), "rank 6: its device has no memory");
}

TEST(Protocol, AnErrorThatEndedTheJobIsToldFromThoseThatFollowIt) {
  const auto fabrics = thread_fabrics(2, {{0, 1}, {"a", "b"}}, {});
  const std::runtime_error cause("std::bad_alloc"), named("rank 1: it is unwell");
  EXPECT_FALSE(ended_the_job(*fabrics[1], cause));
  fabrics[1]->abort(cause.what());
  EXPECT_TRUE(ended_the_job(*fabrics[1], cause));
  EXPECT_FALSE(ended_the_job(*fabrics[0], cause)) << "its own failed allocation came later";
  EXPECT_FALSE(ended_the_job(*fabrics[1], named));
  EXPECT_FALSE(ended_the_job(*fabrics[1], std::runtime_error(stopped("rank 1 (host b)", "x", *fabrics[1]->failure()))));
  const auto others = thread_fabrics(2, {{0, 1}, {"a", "b"}}, {});
  others[1]->abort(named.what());
  EXPECT_TRUE(ended_the_job(*others[1], named));
}

TEST(Protocol, TrafficCountsSendsByLinkClass) {
  Memory m;
  const Transaction t{"x",
                      0,
                      {{Kind::send, 0, m.at(0, 8), {}, false, DType::f32},
                       {Kind::send, 2, m.at(0, 20), {}, false, DType::f32},
                       {Kind::recv, 2, m.at(30, 40), {}, false, DType::f32},
                       {Kind::local, -1, m.at(80, 8), m.at(0, 8), false, DType::f32}}};
  Traffic traffic{1, 1, 1};
  count_traffic(traffic, 1, t, {{0, 0, 1}, {}});
  EXPECT_EQ(traffic, (Traffic{1, 9, 21}));
}

}  // namespace
}  // namespace switchyard::comm
