#include "comm/tcp_mesh.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "base/errors.hpp"
#include "free_port.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Launch launch_of(int rank, int size, int port) { return {true, rank, size, rank, Via::tcp, "127.0.0.1", port, rank < 2 ? "a" : "b"}; }

std::vector<std::string> errors_of(const std::vector<Launch>& launches, std::chrono::milliseconds timeout) {
  std::vector<std::string> errors(launches.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < launches.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        tcp_mesh(launches[i], timeout);
      } catch (const ClusterError& error) {
        errors[i] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(TcpMesh, EverySocketLeadsToTheRankOfItsIndex) {
  const int port = free_port(), size = 4;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([=] {
      const Mesh mesh = tcp_mesh(launch_of(r, size, port), 10s);
      EXPECT_EQ(mesh.cluster.host, (std::vector<int>{0, 0, 1, 1}));
      EXPECT_EQ(mesh.cluster.names, (std::vector<std::string>{"a", "b"}));
      for (int peer = 0; peer < size; ++peer) {
        if (peer == r) continue;
        const int fd = mesh.sockets[static_cast<size_t>(peer)].fd();
        const std::array<int, 2> mine{r, peer};
        ::send(fd, mine.data(), sizeof mine, MSG_NOSIGNAL);
        std::array<int, 2> theirs{};
        while (::recv(fd, theirs.data(), sizeof theirs, 0) < 0) std::this_thread::sleep_for(1ms);
        EXPECT_EQ(theirs, (std::array<int, 2>{peer, r}));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(TcpMesh, MissingRanksAreReportedWithTheAddress) {
  const int port = free_port();
  const auto errors = errors_of({launch_of(0, 2, port)}, 200ms);
  EXPECT_EQ(errors[0], fmt::format("rank 0: joining 2 ranks at 127.0.0.1:{}: not all ranks came for 0.2 s. See the logs of the other "
                                   "ranks, or raise fabric.timeout.", port));
  EXPECT_THAT(errors_of({launch_of(1, 2, port)}, 200ms)[0], HasSubstr("no connection to rank 0 for 0.2 s."));
}

TEST(TcpMesh, TwoProcessesOfOneRankAndDifferentSizesAreRefused) {
  const int port = free_port();
  EXPECT_THAT(errors_of({launch_of(0, 3, port), launch_of(1, 3, port), launch_of(1, 3, port)}, 5s)[0],
              HasSubstr("two processes have RANK 1. Each needs its own, from 0 to 2."));
  EXPECT_THAT(errors_of({launch_of(0, 2, port), launch_of(1, 3, port)}, 5s)[0],
              HasSubstr("rank 1 was started for WORLD_SIZE 3, rank 0 for 2."));
}

TEST(TcpMesh, APortInUseAndAnUnknownAddressAreRefused) {
  const int port = free_port();
  const auto errors = errors_of({launch_of(0, 2, port), launch_of(0, 2, port)}, 300ms);
  EXPECT_THAT(errors, ::testing::Contains(
                          HasSubstr(fmt::format("can't listen on port {}: Address already in use. Choose another MASTER_PORT.", port))));
  Launch lost = launch_of(1, 2, port);
  lost.master_address = "no-such-host.invalid";
  EXPECT_THAT(errors_of({lost}, 300ms)[0], HasSubstr("MASTER_ADDR is unknown: "));
}

}  // namespace
}  // namespace switchyard::comm
