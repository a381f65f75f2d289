#include "comm/tcp_mesh.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/errors.hpp"
#include "comm/host_names.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// What a rank says of itself; rank 0 sends all of them to all.
struct Hello {
  std::array<char, 8> magic{'s', 'w', 'i', 't', 'c', 'h', 'y', '1'};
  int rank = 0, size = 0;
  in_addr address{};         // as rank 0 saw it
  std::uint16_t port = 0;    // where this rank listens
  std::array<char, 256> host{};
};

struct Rendezvous {
  const Launch& launch;
  std::chrono::milliseconds timeout;
  Clock::time_point deadline;

  std::string where() const { return fmt::format("{}:{}", launch.master_address, launch.master_port); }
  [[noreturn]] void fail(const std::string& what) const {
    cluster_error("rank {}: joining {} ranks at {}: {}", launch.rank, launch.size, where(), what);
  }
  [[noreturn]] void fail_late(const std::string& what) const {
    fail(fmt::format("{} for {:g} s. See the logs of the other ranks, or raise fabric.timeout.", what,
                     static_cast<double>(timeout.count()) / 1000));
  }
};

void wait_for(int fd, short event, const Rendezvous& meeting, const char* what) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(meeting.deadline - Clock::now()).count();
  pollfd entry{fd, event, 0};
  if (left <= 0 || ::poll(&entry, 1, static_cast<int>(left)) == 0) meeting.fail_late(what);
}

void tune(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void send_all(int fd, const void* data, size_t bytes, const Rendezvous& meeting) {
  for (const auto* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t n = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (n > 0) at += n, bytes -= static_cast<size_t>(n);
    else if (errno == EAGAIN) wait_for(fd, POLLOUT, meeting, "could not send");
    else meeting.fail(fmt::format("a rank closed its connection ({}). See its log.", std::strerror(errno)));
  }
}

void receive_all(int fd, void* data, size_t bytes, const Rendezvous& meeting) {
  for (auto* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t n = ::recv(fd, at, bytes, 0);
    if (n > 0) at += n, bytes -= static_cast<size_t>(n);
    else if (n < 0 && errno == EAGAIN) wait_for(fd, POLLIN, meeting, "heard nothing");
    else meeting.fail("a rank closed its connection. See its log.");
  }
}

Descriptor listen_on(int port, const Rendezvous& meeting) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(socket.fd(), 1024) != 0)
    meeting.fail(fmt::format("can't listen on port {}: {}. Choose another MASTER_PORT.", port, std::strerror(errno)));
  tune(socket.fd());
  return socket;
}

std::uint16_t port_of(const Descriptor& listener) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

std::optional<Descriptor> try_connect(const sockaddr_in& address) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return std::nullopt;
  tune(socket.fd());
  return socket;
}

Descriptor connect_to(const sockaddr_in& address, const Rendezvous& meeting, const std::string& whom) {
  for (;;) {
    if (auto socket = try_connect(address)) return std::move(*socket);
    if (Clock::now() >= meeting.deadline) meeting.fail_late(fmt::format("no connection to {}", whom));
    std::this_thread::sleep_for(20ms);
  }
}

sockaddr_in master_address(const Rendezvous& meeting) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  const int code = ::getaddrinfo(meeting.launch.master_address.c_str(), nullptr, &hints, &found);
  if (code != 0) meeting.fail(fmt::format("MASTER_ADDR is unknown: {}. Set it to the host of rank 0.", ::gai_strerror(code)));
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  ::freeaddrinfo(found);
  address.sin_port = htons(static_cast<std::uint16_t>(meeting.launch.master_port));
  return address;
}

// The next who connects and says Hello in our words; others are turned away.
std::pair<Descriptor, Hello> accept_one(const Descriptor& listener, const Rendezvous& meeting) {
  for (;;) {
    wait_for(listener.fd(), POLLIN, meeting, "not all ranks came");
    sockaddr_in from{};
    socklen_t length = sizeof from;
    Descriptor socket(::accept4(listener.fd(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC));
    if (socket.fd() < 0) continue;
    tune(socket.fd());
    Hello hello;
    receive_all(socket.fd(), &hello, sizeof hello, meeting);
    if (hello.magic != Hello{}.magic) continue;
    hello.address = from.sin_addr;
    return {std::move(socket), hello};
  }
}

Hello own_hello(const Launch& launch, std::uint16_t port) {
  Hello hello;
  hello.rank = launch.rank, hello.size = launch.size, hello.port = port;
  if (launch.host.empty()) ::gethostname(hello.host.data(), hello.host.size() - 1);
  else launch.host.copy(hello.host.data(), hello.host.size() - 1);
  return hello;
}

// Rank 0 hears all others and tells all of them where everybody listens.
std::vector<Hello> meet_as_first(const Rendezvous& meeting, std::vector<Descriptor>& sockets) {
  const int size = meeting.launch.size;
  const Descriptor listener = listen_on(meeting.launch.master_port, meeting);
  std::vector<Hello> everybody(static_cast<size_t>(size));
  everybody[0] = own_hello(meeting.launch, 0);
  for (int heard = 1; heard < size; ++heard) {
    auto [socket, hello] = accept_one(listener, meeting);
    if (hello.size != size)
      meeting.fail(fmt::format("rank {} was started for WORLD_SIZE {}, rank 0 for {}.", hello.rank, hello.size, size));
    if (hello.rank <= 0 || hello.rank >= size || sockets[static_cast<size_t>(hello.rank)].fd() >= 0)
      meeting.fail(fmt::format("two processes have RANK {}. Each needs its own, from 0 to {}.", hello.rank, size - 1));
    everybody[static_cast<size_t>(hello.rank)] = hello;
    sockets[static_cast<size_t>(hello.rank)] = std::move(socket);
  }
  for (int r = 1; r < size; ++r)
    send_all(sockets[static_cast<size_t>(r)].fd(), everybody.data(), everybody.size() * sizeof(Hello), meeting);
  return everybody;
}

// The others say Hello to rank 0, connect to the ranks below and hear those above.
std::vector<Hello> meet_as_other(const Rendezvous& meeting, std::vector<Descriptor>& sockets) {
  const auto size = static_cast<size_t>(meeting.launch.size), mine = static_cast<size_t>(meeting.launch.rank);
  const Descriptor listener = listen_on(0, meeting);
  const Hello hello = own_hello(meeting.launch, port_of(listener));
  const sockaddr_in master = master_address(meeting);
  sockets[0] = connect_to(master, meeting, "rank 0");
  send_all(sockets[0].fd(), &hello, sizeof hello, meeting);
  std::vector<Hello> everybody(size);
  receive_all(sockets[0].fd(), everybody.data(), size * sizeof(Hello), meeting);
  for (size_t r = 1; r < mine; ++r) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr = everybody[r].address;
    address.sin_port = htons(everybody[r].port);
    sockets[r] = connect_to(address, meeting, fmt::format("rank {}", r));
    send_all(sockets[r].fd(), &hello, sizeof hello, meeting);
  }
  for (size_t heard = mine + 1; heard < size; ++heard) {
    auto [socket, theirs] = accept_one(listener, meeting);
    const auto rank = static_cast<size_t>(theirs.rank);
    if (rank <= mine || rank >= size) meeting.fail(fmt::format("unexpected connection of rank {}.", theirs.rank));
    sockets[rank] = std::move(socket);
  }
  return everybody;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Mesh tcp_mesh(const Launch& launch, std::chrono::milliseconds timeout) {
  const Rendezvous meeting{launch, timeout, Clock::now() + timeout};
  Mesh mesh;
  mesh.sockets.resize(static_cast<size_t>(launch.size));
  const std::vector<Hello> everybody =
      launch.rank == 0 ? meet_as_first(meeting, mesh.sockets) : meet_as_other(meeting, mesh.sockets);
  std::vector<std::string> names;
  for (const Hello& hello : everybody) names.emplace_back(hello.host.data());
  mesh.cluster = cluster_of_names(names);
  return mesh;
}

}  // namespace switchyard::comm
