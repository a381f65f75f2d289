#include "comm/tcp_fabric.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "comm/outbox.hpp"
#include "comm/tcp_mesh.hpp"
#include "fabric_suite.hpp"
#include "ops.hpp"
#include "tcp_ranks.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(TcpFabric, RandomTransactionsOnFiveConcurrentChannelsGiveWhatPlainLoopsGive) {
  for (const int ranks : {2, 3, 5})
    EXPECT_THAT(run_tcp(ranks, {120s, true}, [](Fabric& fabric) { suite::concurrent_channels(fabric, 15, 7, 0); }),
                Each(""))
        << ranks;
}

TEST(TcpFabric, CollectivesAgreeBitForBitWithBruteForce) {
  EXPECT_THAT(run_tcp(4, {120s, true}, [](Fabric& fabric) { suite::collectives(fabric, 0, 11, 1); }), Each(""));
}

TEST(TcpFabric, EncodedMessagesAreDecodedInTheirTurn) {
  EXPECT_THAT(run_tcp(3, {120s, true}, [](Fabric& fabric) { suite::encoded_messages(fabric, 0, 1); }), Each(""));
}

TEST(TcpFabric, AnEncodedMessageIsNoLongerThanItMayBe) {
  EXPECT_THAT(run_tcp(2, {120s, true}, [](Fabric& fabric) { suite::too_long_message(fabric, 0, 1); })[1],
              HasSubstr("expects transaction 1, 100 bytes, u8 from rank 0, which sends transaction 1, 101 bytes, u8"));
}

TEST(TcpFabric, LargeMessagesArriveWholeAndAreCountedByLinkClass) {
  EXPECT_THAT(
      run_tcp(3, {120s, true},
              [](Fabric& fabric) {
                std::vector<double> x(3 << 18, static_cast<double>(fabric.rank() + 1));
                all_reduce(fabric, {0, {0, 1, 2}}, "sum", 1, x.data(), static_cast<i64>(x.size()), DType::f64);
                for (const double value : x) suite::expect(value == 6, "sum of 1, 2, 3");
                const i64 part = 8 << 18;  // hosts a a b
                const Traffic expected = fabric.rank() < 2 ? Traffic{0, 2 * part, 2 * part} : Traffic{0, 0, 4 * part};
                suite::expect(fabric.traffic() == expected, "bytes per link class");
              }),
      Each(""));
}

TEST(TcpFabric, ASilentRankIsNamedAndItsPeersStopWithTheSameReason) {
  const auto ends = run_tcp(3, {300ms, false}, [](Fabric& fabric) {
    std::vector<float> x(4);
    if (fabric.rank() == 1) fabric.run({0, {0, 1, 2}}, {"layer12.qkv", 3, {recv(0, x)}});
    std::this_thread::sleep_for(1s);
    fabric.run({0, {0, 1, 2}}, {"next", 4, {}});
  });
  const std::string reason =
      "rank 1 (host a): \"layer12.qkv\" heard nothing from rank 0 for 0.3 s. See its log, or raise fabric.timeout.";
  EXPECT_EQ(ends[1], reason);
  EXPECT_EQ(ends[2], "rank 2 (host b): \"next\" stopped: " + reason);
}

TEST(TcpFabric, ARankThatComputesIsNotSilent) {
  EXPECT_THAT(run_tcp(4, {suite::kShortTimeout, true}, [](Fabric& fabric) { suite::late_work(fabric, 0, 1); }),
              Each(""));
}

TEST(TcpFabric, AbortWakesSendersOfLargeDataAndReceivers) {
  const auto start = std::chrono::steady_clock::now();
  const auto ends = run_tcp(3, {20s, false}, [](Fabric& fabric) {
    auto x = std::make_unique<std::vector<float>>(1 << 20);  // freed as the exception passes
    const Channel channel{0, {0, 1, 2}};
    if (fabric.rank() == 0) fabric.run(channel, {"send", 1, {send(2, *x)}});
    if (fabric.rank() == 1) fabric.run(channel, {"recv", 1, {recv(2, *x)}});
    if (fabric.rank() == 2) {
      std::this_thread::sleep_for(100ms);
      fabric.abort("disk full");
      fabric.run(channel, {"late", 1, {}});
    }
  });
  EXPECT_EQ(ends[0], "rank 0 (host a): \"send\" stopped: rank 2 (host b): disk full");
  EXPECT_EQ(ends[1], "rank 1 (host a): \"recv\" stopped: rank 2 (host b): disk full");
  EXPECT_EQ(ends[2], "rank 2 (host b): \"late\" stopped: rank 2 (host b): disk full");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(TcpFabric, RanksThatDisagreeSayHowForSmallAndLargeMessages) {
  for (const size_t elements : {size_t{4}, size_t{1} << 20}) {
    const auto ends = run_tcp(2, {20s, false}, [&](Fabric& fabric) {
      std::vector<float> x(elements), y(elements + 1);
      if (fabric.rank() == 0)
        fabric.run({0, {0, 1}}, {"t", 7, {send(1, x), recv(1, y)}});
      else
        fabric.run({0, {0, 1}}, {"t", 8, {recv(0, y)}});
    });
    const std::string reason =
        fmt::format("expects transaction 8, {} bytes, f32 from rank 0, which sends transaction 7, {} bytes, f32",
                    4 * elements + 4, 4 * elements);
    EXPECT_THAT(ends[1], HasSubstr(reason));
    EXPECT_THAT(ends[0], HasSubstr("\"t\" stopped: rank 1 (host b): \"t\" " + reason));
  }
}

// Rank 1 of a mesh by hand: what it writes and reads of the connection to rank 0.
class ByHand {
 public:
  explicit ByHand(int port) : mesh_(tcp_mesh(launch_of(1, 2, port, "b"), {})) {
    const int fd = mesh_.sockets[0].fd();
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  }
  void write(const Frame& frame, const std::vector<std::byte>& body = {}) {
    const int fd = mesh_.sockets[0].fd();
    suite::expect(::send(fd, &frame, sizeof frame, MSG_NOSIGNAL) == sizeof frame, "a header");
    suite::expect(::send(fd, body.data(), body.size(), MSG_NOSIGNAL) == std::ssize(body), "a body");
  }
  Frame read() {
    Frame frame;
    suite::expect(::recv(mesh_.sockets[0].fd(), &frame, sizeof frame, MSG_WAITALL) == sizeof frame, "a header");
    std::vector<std::byte> body(static_cast<size_t>(frame.body));
    suite::expect(body.empty() || ::recv(mesh_.sockets[0].fd(), body.data(), body.size(), MSG_WAITALL) == frame.body,
                  "a body");
    return frame;
  }

 private:
  Mesh mesh_;
};

// The timeout is for silence, and a large message on a slow link is none.
TEST(TcpFabric, AMessageMayTakeLongerThanTheTimeoutWhileItsPartsMove) {
  constexpr std::chrono::milliseconds kTimeout = 1s, kPause = 200ms;
  constexpr int kParts = 10;
  const int port = free_port();
  std::string end;
  std::thread slow([&] {
    try {
      ByHand peer(port);
      const Envelope envelope{.number = 3, .bytes = kParts * kPartBytes, .dtype = DType::f32};
      peer.write({.kind = Frame::Kind::ask, .id = 7, .envelope = envelope});
      suite::expect(peer.read().kind == Frame::Kind::grant, "a place for it");
      for (int part = 0; part < kParts; ++part) {
        std::this_thread::sleep_for(kPause);
        peer.write({.kind = Frame::Kind::part, .id = 7, .body = kPartBytes}, std::vector<std::byte>(kPartBytes));
      }
      peer.write({.kind = Frame::Kind::goodbye});
      while (peer.read().kind != Frame::Kind::goodbye) continue;
    } catch (const std::exception& error) {
      end = error.what();
    }
  });
  std::vector<float> x(static_cast<size_t>(kParts * kPartBytes / 4));
  EXPECT_NO_THROW(
      tcp_fabric(launch_of(0, 2, port), {kTimeout, false})->run({0, {0, 1}}, {"layer12.qkv", 3, {recv(1, x)}}));
  slow.join();
  EXPECT_EQ(end, "");
}

TEST(TcpFabric, ARankThatIsKilledIsMissedAtOnce) {
  const int port = free_port();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto fabric = tcp_fabric(launch_of(1, 2, port, "b"), {20s, false});
    ::kill(::getpid(), SIGKILL);
  }
  const auto start = std::chrono::steady_clock::now();
  const auto fabric = tcp_fabric(launch_of(0, 2, port), {20s, false});
  std::vector<float> x(4);
  try {
    fabric->run({0, {0, 1}}, {"recv", 1, {recv(1, x)}});
    ADD_FAILURE() << "heard from a dead rank";
  } catch (const ClusterError& error) {
    EXPECT_THAT(error.what(), HasSubstr("stopped: rank 0 (host a): rank 1 (host b) is gone ("));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  ::waitpid(child, nullptr, 0);
}

TEST(TcpFabric, ARankThatNeverEndsIsNotWaitedForForever) {
  const int port = free_port();
  std::atomic<bool> ended = false;
  std::string said;
  std::thread first([&] {
    FabricOptions options{.timeout = 500ms};
    options.say = [&](const std::string& text) { said = text; };
    tcp_fabric(launch_of(0, 2, port), options);
    ended = true;
  });
  const auto late = tcp_fabric(launch_of(1, 2, port, "b"), {.timeout = 20s});
  while (!ended) std::this_thread::sleep_for(5ms);
  first.join();
  EXPECT_EQ(said, "rank 0 (host a): all work is done, but rank 1 (host b) has not ended for 0.5 s. See its log.");
}

TEST(TcpFabric, ARankThatAnExceptionEndsTellsTheOthers) {
  const auto ends = run_tcp(2, {20s, false}, [](Fabric& fabric) {
    std::vector<float> x(4);
    if (fabric.rank() == 1) throw std::runtime_error("out of memory");
    fabric.run({0, {0, 1}}, {"recv", 1, {recv(1, x)}});
  });
  EXPECT_EQ(ends[1], "out of memory");
  EXPECT_EQ(ends[0],
            "rank 0 (host a): \"recv\" stopped: rank 1 (host b) was ended by an error of its own. See its log.");
}

}  // namespace
}  // namespace switchyard::comm
