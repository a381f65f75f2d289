#include "comm/sockets.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <memory>

namespace switchyard::comm {
namespace {

sockaddr_in socket_address(const Endpoint& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = endpoint.address;
  address.sin_port = htons(static_cast<std::uint16_t>(endpoint.port));
  return address;
}

Endpoint endpoint_of(const sockaddr_in& address) { return {address.sin_addr, ntohs(address.sin_port)}; }

int bind_to(const Descriptor& socket, const Endpoint& at) {
  const sockaddr_in address = socket_address(at);
  return ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

// "10.0.0.0/8" as (network, mask), both in network order.
std::optional<std::pair<std::uint32_t, std::uint32_t>> network_of(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  in_addr network{};
  int bits = -1;
  const auto [end, error] = std::from_chars(text.data() + slash + 1, text.data() + text.size(), bits);
  if (::inet_pton(AF_INET, text.substr(0, slash).c_str(), &network) != 1 || error != std::errc{} ||
      end != text.data() + text.size() || bits < 0 || bits > 32)
    return std::nullopt;
  const std::uint32_t mask = htonl(bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits));
  return std::pair{network.s_addr & mask, mask};
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::string text_of(in_addr address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address, text.data(), text.size());
  return text.data();
}

std::string text_of(const Endpoint& endpoint) { return fmt::format("{}:{}", text_of(endpoint.address), endpoint.port); }

bool is_loopback(in_addr address) { return ntohl(address.s_addr) >> 24 == 127; }

std::vector<Interface> interfaces() {
  std::vector<Interface> all;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next)
    if (at->ifa_addr != nullptr && at->ifa_addr->sa_family == AF_INET && (at->ifa_flags & IFF_UP) != 0)
      all.push_back({at->ifa_name, reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr});
  return all;
}

std::string text_of(const std::vector<Interface>& all) {
  std::vector<std::string> texts;
  for (const Interface& one : all) texts.push_back(fmt::format("{} ({})", one.name, text_of(one.address)));
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

std::optional<in_addr> find_interface(const std::string& wanted, const std::vector<Interface>& all) {
  const auto network = network_of(wanted);
  for (const Interface& one : all)
    if (network ? (one.address.s_addr & network->second) == network->first : one.name == wanted) return one.address;
  return std::nullopt;
}

void allow_all_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

Opened listen_on(const Endpoint& at) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (socket.fd() < 0 || bind_to(socket, at) != 0 || ::listen(socket.fd(), 1024) != 0) return {Descriptor(), errno};
  return {std::move(socket), 0};
}

Opened start_connecting(const Endpoint& to, in_addr from) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0 || (from.s_addr != 0 && bind_to(socket, {from, 0}) != 0)) return {Descriptor(), errno};
  const sockaddr_in address = socket_address(to);
  if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno != EINPROGRESS)
    return {Descriptor(), errno};
  tune(socket);
  return {std::move(socket), 0};
}

int connect_error(const Descriptor& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  if (error == 0 && local_end(socket) == remote_end(socket)) return ECONNREFUSED;
  return error;
}

void tune(const Descriptor& socket) {
  const int on = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof kUnsentBytes);
  ::fcntl(socket.fd(), F_SETFL, ::fcntl(socket.fd(), F_GETFL) | O_NONBLOCK);
}

Endpoint local_end(const Descriptor& socket) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  return endpoint_of(address);
}

Endpoint remote_end(const Descriptor& socket) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  return endpoint_of(address);
}

}  // namespace switchyard::comm
