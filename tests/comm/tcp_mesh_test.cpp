#include "comm/tcp_mesh.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/errors.hpp"
#include "comm/greeting.hpp"
#include "free_port.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Launch launch_of(int rank, int size, int port, const std::string& address = "127.0.0.1") {
  return {.distributed = true,
          .rank = rank,
          .size = size,
          .via = Via::tcp,
          .master_address = address,
          .master_port = port,
          .host = rank < 2 ? "a" : "b"};
}

FabricOptions patient(std::chrono::milliseconds timeout = 60s) { return {.timeout = timeout}; }

// Ranks of one job as threads, each of which joins when the test says so.
class Job {
 public:
  Job(int size, FabricOptions options, const std::string& address = "127.0.0.1")
      : port(free_port()),
        meshes(static_cast<size_t>(size)),
        errors(meshes.size()),
        size_(size),
        address_(address),
        options_(std::move(options)) {
    options_.say = [this](const std::string& text) {
      std::lock_guard lock(mutex_);
      said_.push_back(text);
    };
  }
  ~Job() { wait(); }

  void start(int rank) { start(launch_of(rank, size_, port, address_), options_); }
  void start(const Launch& launch, const FabricOptions& options) {
    threads_.emplace_back([this, launch, options] {
      std::string& error = errors[static_cast<size_t>(launch.rank)];
      try {
        meshes[static_cast<size_t>(launch.rank)] = tcp_mesh(launch, options);
      } catch (const std::exception& caught) {
        error = caught.what();
      }
    });
  }
  void wait() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  std::vector<std::string> said() {
    std::lock_guard lock(mutex_);
    return said_;
  }

  const int port;
  std::vector<Mesh> meshes;
  std::vector<std::string> errors;

 private:
  const int size_;
  const std::string address_;
  FabricOptions options_;
  std::mutex mutex_;
  std::vector<std::string> said_;
  std::vector<std::thread> threads_;
};

void write(int fd, const void* data, size_t bytes) {
  ASSERT_EQ(::send(fd, data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
}

// A whole T from a peer; nothing if the connection ends before.
template <class T>
std::optional<T> read(int fd) {
  T value;
  for (size_t at = 0; at < sizeof value;) {
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, 60000) <= 0) return std::nullopt;
    const ssize_t n = ::recv(fd, reinterpret_cast<char*>(&value) + at, sizeof value - at, 0);
    if (n <= 0) return std::nullopt;
    at += static_cast<size_t>(n);
  }
  return value;
}

sockaddr_in loopback(int port, const char* address = "127.0.0.1") {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr = *find_interface(address, {{address, {htonl(INADDR_LOOPBACK + (std::string(address) == "127.0.0.2"))}}});
  return to;
}

int connect_result(const Descriptor& socket, const sockaddr_in& to) {
  return ::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 ? 0 : errno;
}

// A connection to rank 0 from a process that is not a rank, once rank 0 listens.
Descriptor stranger(int port) {
  for (;;) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
    if (connect_result(socket, loopback(port)) == 0 && !(local_end(socket) == remote_end(socket))) return socket;
    std::this_thread::sleep_for(5ms);
  }
}

Hello hello_of(int rank, int size, Phase phase = Phase::join) {
  Hello hello;
  hello.phase = phase, hello.rank = rank, hello.size = size, hello.port = 9;
  hello.host = {'x'};
  return hello;
}

// The answer of rank 0 to a stranger who sends this.
Verdict answer_to(int fd, Hello hello, const std::string& token = "") {
  const auto challenge = read<Challenge>(fd);
  EXPECT_TRUE(challenge);
  prove(hello, key_of(token), *challenge);
  write(fd, &hello, sizeof hello);
  const auto verdict = read<Verdict>(fd);
  EXPECT_TRUE(verdict);
  return verdict.value_or(Verdict{});
}

// Checks that two ranks join although a stranger was at rank 0's port before rank 1. Returns what rank 0 reported.
std::vector<std::string> meet_despite(const std::function<Descriptor(int)>& stranger_at,
                                      const std::string& token = "") {
  Job job(2, {.timeout = 60s, .token = token});
  job.start(0);
  const Descriptor open = stranger_at(job.port);
  job.start(1);
  job.wait();
  EXPECT_THAT(job.errors, Each(""));
  return job.said();
}

TEST(TcpMesh, HasASocketToEachRankAlsoUnderALowLimitOfOpenFiles) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int size = 12;
  rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(100, before.rlim_max);  // the ranks are threads, with 132 sockets together
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  Job job(size, patient());
  for (int r = 0; r < size; ++r) job.start(r);
  job.wait();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(job.errors, Each(""));
}

TEST(TcpMesh, EverySocketLeadsToTheRankOfItsIndex) {
  const int size = 4;
  Job job(size, patient());
  for (int r = 0; r < size; ++r) job.start(r);
  job.wait();
  EXPECT_THAT(job.errors, Each(""));
  EXPECT_THAT(job.said(), IsEmpty());
  for (int r = 0; r < size; ++r) {
    EXPECT_EQ(job.meshes[static_cast<size_t>(r)].cluster.host, (std::vector<int>{0, 0, 1, 1}));
    EXPECT_EQ(job.meshes[static_cast<size_t>(r)].cluster.names, (std::vector<std::string>{"a", "b"}));
    for (int peer = 0; peer < size; ++peer) {
      if (peer == r) continue;
      const std::array<int, 2> mine{r, peer};
      write(job.meshes[static_cast<size_t>(r)].sockets[static_cast<size_t>(peer)].fd(), mine.data(), sizeof mine);
    }
  }
  for (int r = 0; r < size; ++r)
    for (int peer = 0; peer < size; ++peer) {
      if (peer == r) continue;
      const auto theirs =
          read<std::array<int, 2>>(job.meshes[static_cast<size_t>(r)].sockets[static_cast<size_t>(peer)].fd());
      EXPECT_EQ(theirs, (std::array<int, 2>{peer, r}));
    }
}

// ---- peers that are not a rank, or not the one that they claim to be ----

TEST(TcpMesh, ConnectionsThatCloseResetOrStaySilentEndNothing) {
  EXPECT_THAT(meet_despite([](int port) {
                const Descriptor socket = stranger(port);
                EXPECT_TRUE(read<Challenge>(socket.fd()));  // closing with unread bytes sends a reset
                return Descriptor();
              }),
              ElementsAre(HasSubstr("it closed the connection.")));
  EXPECT_THAT(meet_despite([](int port) {
                const Descriptor socket = stranger(port);
                const linger at_once{1, 0};
                ::setsockopt(socket.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
                return Descriptor();
              }),
              ElementsAre(HasSubstr("Connection reset by peer.")));
  EXPECT_THAT(meet_despite([](int port) { return stranger(port); }), IsEmpty());
}

TEST(TcpMesh, HalfAHelloAndManySilentConnectionsEndNothing) {
  EXPECT_THAT(meet_despite([](int port) {
                Descriptor socket = stranger(port);
                const Hello hello = hello_of(1, 2);
                write(socket.fd(), &hello, sizeof hello / 2);
                return socket;
              }),
              IsEmpty());
  Job job(2, patient());
  job.start(0);
  std::vector<Descriptor> crowd;
  for (int i = 0; i < 270; ++i) crowd.push_back(stranger(job.port));
  job.start(1);
  job.wait();
  EXPECT_THAT(job.errors, Each(""));
  EXPECT_THAT(job.said(), Contains(HasSubstr("too many connections wait, and it said nothing.")));
}

TEST(TcpMesh, GarbageIsTurnedAway) {
  EXPECT_THAT(meet_despite([](int port) {
                Descriptor socket = stranger(port);
                write(socket.fd(), "GET / HTTP/1.0\r\n\r\n", 18);
                return socket;
              }),
              ElementsAre(HasSubstr("not a rank of this version of Switchyard.")));
}

TEST(TcpMesh, AHelloOfAnotherSizeOrRankIsRefusedWithTheReason) {
  const auto refuse = [](const Hello& hello, const std::string& here, const std::string& there) {
    EXPECT_THAT(meet_despite([&](int port) {
                  Descriptor socket = stranger(port);
                  const Verdict verdict = answer_to(socket.fd(), hello);
                  EXPECT_EQ(verdict.accepted, 0);
                  EXPECT_EQ(text_of(verdict.reason), there);
                  return socket;
                }),
                ElementsAre(HasSubstr(here)));
  };
  refuse(hello_of(1, 3), "RANK 1 on host x was started for WORLD_SIZE 3, this rank for 2.",
         "WORLD_SIZE is 3 here and 2 there. Give all ranks the same");
  for (const int rank : {0, 2, -1})
    refuse(hello_of(rank, 2), fmt::format("RANK {} on host x is not one of the ranks that it awaits, 1 to 1.", rank),
           fmt::format("RANK {} is not one of the ranks that it awaits, 1 to 1", rank));
  refuse(hello_of(1, 2, Phase::data), "it has not joined.", "this rank has not joined");
  refuse(hello_of(1, 2, static_cast<Phase>(7)), "it has not joined.", "this rank has not joined");
}

TEST(TcpMesh, ATakenRankIsRefusedAndTheFirstOneStays) {
  Job job(3, patient());
  job.start(0);
  const Descriptor first = stranger(job.port), second = stranger(job.port);
  EXPECT_EQ(answer_to(first.fd(), hello_of(1, 3)).accepted, 1);
  const Verdict verdict = answer_to(second.fd(), hello_of(1, 3));
  EXPECT_EQ(verdict.accepted, 0);
  EXPECT_EQ(text_of(verdict.reason),
            "RANK 1 has joined already, from host x. Each process needs a rank of its own, from 0 to 2");
  EXPECT_THAT(job.said(), ElementsAre(HasSubstr("RANK 1 on host x has joined already, from host x.")));
  ::shutdown(first.fd(), SHUT_RDWR);  // the first one leaves, and the real ranks join
  job.start(1);
  job.start(2);
  job.wait();
  EXPECT_THAT(job.said(), Contains("rank 0: rank 1 on host x left before all had joined: it closed the connection."));
}

TEST(TcpMesh, AProcessThatIsRefusedSaysWhy) {
  Job job(2, patient(1s));
  job.start(0);
  job.start(launch_of(1, 3, job.port), patient());
  job.wait();
  EXPECT_EQ(job.errors[1], fmt::format("rank 1: joining 3 ranks at 127.0.0.1:{0}: rank 0 (127.0.0.1:{0}) refused this "
                                       "rank: WORLD_SIZE is 3 here and 2 "
                                       "there. Give all ranks the same.",
                                       job.port));
  EXPECT_THAT(job.errors[0], HasSubstr("heard nothing from rank 1 for 1 s (refused meanwhile: 127.0.0.1:"));
  EXPECT_THAT(job.errors[0], HasSubstr("RANK 1 on host a was started for WORLD_SIZE 3, this rank for 2.)"));
}

// ---- the token ----

TEST(TcpMesh, AnotherTokenIsRefusedAndNeverShown) {
  const auto said = meet_despite(
      [](int port) {
        Descriptor socket = stranger(port);
        const Verdict verdict = answer_to(socket.fd(), hello_of(1, 2), "gu3ss");
        EXPECT_EQ(verdict.accepted, 0);
        EXPECT_EQ(text_of(verdict.reason),
                  "fabric.token (or torchrun's run id) differs between here and there. Give all ranks the same");
        return socket;
      },
      "s3cret");
  EXPECT_THAT(said, ElementsAre(HasSubstr("it has a different fabric.token, or belongs to another run.")));
  EXPECT_THAT(said, Each(Not(HasSubstr("s3cret"))));
  EXPECT_THAT(said, Each(Not(HasSubstr("gu3ss"))));
}

TEST(TcpMesh, AHelloThatWasOverheardServesNobodyElse) {
  Job job(2, {.timeout = 60s, .token = "s3cret"});
  job.start(0);
  const Descriptor heard = stranger(job.port), again = stranger(job.port);
  Hello hello = hello_of(1, 2);
  prove(hello, key_of("s3cret"), *read<Challenge>(heard.fd()));
  ASSERT_TRUE(read<Challenge>(again.fd()));
  write(again.fd(), &hello, sizeof hello);
  EXPECT_EQ(read<Verdict>(again.fd())->accepted, 0);
  job.start(1);
  job.wait();
  EXPECT_THAT(job.errors, Each(""));
}

// Listens as rank 0 would; `serve` gets the first connection.
std::string error_at(const std::function<void(int)>& serve, const FabricOptions& options) {
  const int port = free_port();
  const Opened listener = listen_on({loopback(port).sin_addr, port});
  EXPECT_EQ(listener.error, 0);
  Job job(2, options);
  job.start(launch_of(1, 2, port), options);
  pollfd entry{listener.socket.fd(), POLLIN, 0};
  ::poll(&entry, 1, 60000);
  {
    const Descriptor taken(::accept(listener.socket.fd(), nullptr, nullptr));
    serve(taken.fd());
  }
  job.wait();
  return job.errors[1];
}

TEST(TcpMesh, AnImpostorInPlaceOfRank0IsFoundOut) {
  const auto impostor = [](const std::string& token) {
    return [token](int fd) {
      const Challenge challenge = make_challenge();
      write(fd, &challenge, sizeof challenge);
      const auto hello = read<Hello>(fd);
      ASSERT_TRUE(hello);
      const Verdict verdict = accepting(key_of(token), *hello);
      write(fd, &verdict, sizeof verdict);
    };
  };
  const FabricOptions options{.timeout = 60s, .token = "s3cret"};
  EXPECT_THAT(error_at(impostor(""), options),
              HasSubstr("does not know this job's fabric.token. Choose another MASTER_PORT."));
  EXPECT_THAT(error_at(impostor("s3cret"), options),
              HasSubstr("lost rank 0 (127.0.0.1:"));  // the impostor was accepted, and then left
  EXPECT_THAT(error_at([](int fd) { write(fd, "SSH-2.0-OpenSSH\r\n", 17); }, options),
              HasSubstr("is not rank 0 of this version of Switchyard."));
}

TEST(TcpMesh, RanksWithTheSameTokenMeetAndTwoTokensDoNot) {
  Job job(2, {.timeout = 1s, .token = "s3cret"});
  job.start(0);
  job.start(launch_of(1, 2, job.port), {.timeout = 60s, .token = "other"});
  job.wait();
  EXPECT_THAT(job.errors[1],
              HasSubstr("refused this rank: fabric.token (or torchrun's run id) differs between here and there."));
  EXPECT_THAT(job.errors[0], HasSubstr("heard nothing from rank 1 for 1 s (refused meanwhile: "));
}

// ---- waits end ----

TEST(TcpMesh, MissingRanksAreNamedAndThoseThatCameHearOfIt) {
  Job job(4, patient(500ms));
  job.start(0);
  job.start(2);
  job.wait();
  const std::string missing = fmt::format(
      "rank 0: joining 4 ranks at 127.0.0.1:{}: heard nothing from ranks 1, 3 for 0.5 s. See the logs of the other "
      "ranks, or raise "
      "fabric.timeout.",
      job.port);
  EXPECT_EQ(job.errors[0], missing);
  EXPECT_THAT(job.errors[2], HasSubstr("stopped by rank 0: " + missing));
  Job alone(2, patient(200ms));
  alone.start(1);
  alone.wait();
  EXPECT_THAT(alone.errors[1],
              HasSubstr(fmt::format("no connection to rank 0 (127.0.0.1:{}) for 0.2 s, last: Connection refused.",
                                    alone.port)));
}

TEST(TcpMesh, ASilentListenerAndOneThatClosesAreReportedAtTheDeadline) {
  EXPECT_THAT(error_at([](int) { std::this_thread::sleep_for(400ms); }, patient(200ms)),
              HasSubstr("took the connection, but did not answer for 0.2 s. Something else may listen there."));
  EXPECT_THAT(error_at([](int fd) { ::shutdown(fd, SHUT_RDWR); }, patient(200ms)), HasSubstr("for 0.2 s"));
}

TEST(TcpMesh, APortInUseAndAnUnknownAddressAreRefused) {
  const int port = free_port();
  const Opened listener = listen_on({loopback(port).sin_addr, port});
  Job job(2, patient());
  job.start(launch_of(0, 2, port), patient());
  job.start(launch_of(1, 2, port, "no-such-host.invalid"), patient());
  job.wait();
  EXPECT_THAT(job.errors[0],
              HasSubstr(fmt::format("can't listen on 127.0.0.1:{}: Address already in use. Choose another MASTER_PORT.",
                                    port)));
  EXPECT_THAT(job.errors[1], HasSubstr("MASTER_ADDR can't be resolved to an IPv4 address: "));
}

// ---- interfaces ----

// Addresses on which sockets of this process listen.
std::vector<std::string> listening_addresses() {
  std::vector<std::string> addresses;
  for (int fd = 0; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t length = sizeof listens;
    sockaddr_in at{};
    socklen_t size = sizeof at;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0 && at.sin_family == AF_INET)
      addresses.push_back(text_of(at.sin_addr));
  }
  return addresses;
}

TEST(TcpMesh, RanksListenOnTheMastersAddressAlone) {
  Job job(3, patient());
  job.start(0);
  job.start(1);
  const Descriptor waiting = stranger(job.port);  // rank 0 listens
  const Descriptor other(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(connect_result(other, loopback(job.port, "127.0.0.2")), ECONNREFUSED);
  while (listening_addresses().size() < 2) std::this_thread::sleep_for(5ms);  // rank 1 listens too
  EXPECT_THAT(listening_addresses(), Each("127.0.0.1"));
  job.start(2);
  job.wait();
  EXPECT_THAT(job.errors, Each(""));
}

std::optional<Interface> outward_interface() {
  for (const Interface& one : interfaces())
    if (!is_loopback(one.address)) return one;
  return std::nullopt;
}

void expect_data_on(const std::string& interface, const std::string& master, in_addr expected) {
  Job job(3, {.timeout = 60s, .interface = interface}, master);
  for (int r = 0; r < 3; ++r) job.start(r);
  job.wait();
  EXPECT_THAT(job.errors, Each(""));
  for (const Mesh& mesh : job.meshes)
    for (const Descriptor& socket : mesh.sockets) {
      if (socket.fd() < 0) continue;
      EXPECT_EQ(text_of(local_end(socket).address), text_of(expected)) << interface << " with " << master;
      EXPECT_EQ(text_of(remote_end(socket).address), text_of(expected)) << interface << " with " << master;
    }
}

TEST(TcpMesh, DataTakesTheInterfaceThatIsNamed) {
  const in_addr here{htonl(INADDR_LOOPBACK)};
  expect_data_on("lo", "127.0.0.1", here);
  expect_data_on("127.0.0.0/8", "localhost", here);
  const auto outward = outward_interface();
  if (!outward) GTEST_SKIP() << "this host has no interface but lo";
  expect_data_on("lo", text_of(outward->address), here);         // joined there, data here
  expect_data_on(outward->name, "127.0.0.1", outward->address);  // the host's own name may be a loopback address
  expect_data_on("", text_of(outward->address), outward->address);
}

TEST(TcpMesh, AnInterfaceOrMasterAddressOfAnotherHostIsRefused) {
  Job job(2, {.timeout = 60s, .interface = "nonesuch0"});
  job.start(0);
  job.start(launch_of(1, 2, job.port), {.timeout = 60s, .interface = "203.0.113.0/24"});
  job.wait();
  EXPECT_THAT(
      job.errors[0],
      StartsWith("fabric.interface = \"nonesuch0\" is not an interface of this host, which has lo (127.0.0.1)"));
  EXPECT_THAT(job.errors[1],
              StartsWith("fabric.interface = \"203.0.113.0/24\" is not an interface of this host, which has "));
  Job elsewhere(2, patient(), "203.0.113.1");
  elsewhere.start(0);
  elsewhere.wait();
  EXPECT_THAT(elsewhere.errors[0],
              StartsWith("MASTER_ADDR = 203.0.113.1 is not an address of rank 0's host, which has lo (127.0.0.1)"));
}

}  // namespace
}  // namespace switchyard::comm
