#include "comm/sockets.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>

namespace switchyard::comm {
namespace {

in_addr address(const char* text) {
  in_addr value{};
  EXPECT_EQ(::inet_pton(AF_INET, text, &value), 1);
  return value;
}

const std::vector<Interface> kThree{
    {"lo", address("127.0.0.1")}, {"eth0", address("10.1.2.3")}, {"ib0", address("192.168.7.9")}};

TEST(Sockets, AnInterfaceIsFoundByItsNameOrItsNetwork) {
  const auto found = [](const std::string& wanted) {
    const auto at = find_interface(wanted, kThree);
    return at ? text_of(*at) : "none";
  };
  EXPECT_EQ(found("eth0"), "10.1.2.3");
  EXPECT_EQ(found("ib0"), "192.168.7.9");
  EXPECT_EQ(found("10.0.0.0/8"), "10.1.2.3");
  EXPECT_EQ(found("192.168.0.0/16"), "192.168.7.9");
  EXPECT_EQ(found("192.168.7.9/32"), "192.168.7.9");
  EXPECT_EQ(found("0.0.0.0/0"), "127.0.0.1");
  for (const char* wrong : {"eth", "eth1", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "10.0.0.0/8x", "172.16.0.0/12", ""})
    EXPECT_EQ(found(wrong), "none") << wrong;
}

TEST(Sockets, AddressesHaveTheirUsualText) {
  EXPECT_EQ(text_of(Endpoint{address("10.1.2.3"), 29500}), "10.1.2.3:29500");
  EXPECT_EQ(text_of(kThree), "lo (127.0.0.1), eth0 (10.1.2.3), ib0 (192.168.7.9)");
  EXPECT_EQ(text_of(std::vector<Interface>{}), "none");
  EXPECT_TRUE(is_loopback(address("127.0.1.1")));
  EXPECT_FALSE(is_loopback(address("10.127.0.1")));
}

TEST(Sockets, ThisHostHasItsLoopbackInterface) {
  const auto at = find_interface("lo", interfaces());
  ASSERT_TRUE(at);
  EXPECT_TRUE(is_loopback(*at));
}

int connected(const Opened& opened) {
  if (opened.error != 0) return opened.error;
  pollfd entry{opened.socket.fd(), POLLOUT, 0};
  EXPECT_EQ(::poll(&entry, 1, 60000), 1);
  return connect_error(opened.socket);
}

TEST(Sockets, TheTwoEndsOfAConnectionNameEachOther) {
  const in_addr here = address("127.0.0.1");
  Opened listener = listen_on({here, 0});
  ASSERT_EQ(listener.error, 0);
  const Endpoint at = local_end(listener.socket);
  EXPECT_EQ(listen_on(at).error, EADDRINUSE);
  const Opened opened = start_connecting(at, address("127.0.0.3"));
  EXPECT_EQ(connected(opened), 0);
  EXPECT_EQ(remote_end(opened.socket), at);
  EXPECT_EQ(text_of(local_end(opened.socket).address), "127.0.0.3");
  listener.socket = Descriptor();
  EXPECT_EQ(connected(start_connecting(at, {})), ECONNREFUSED);
  EXPECT_EQ(listen_on({address("203.0.113.1"), 0}).error, EADDRNOTAVAIL);
}

// What is written next waits for no more than this.
TEST(Sockets, TheKernelHasFewBytesThatItHasNotSent) {
  const Opened listener = listen_on({address("127.0.0.1"), 0});
  const Opened opened = start_connecting(local_end(listener.socket), {});
  ASSERT_EQ(connected(opened), 0);
  tune(opened.socket);
  int unsent = 0;
  socklen_t size = sizeof unsent;
  ASSERT_EQ(::getsockopt(opened.socket.fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, &size), 0);
  EXPECT_EQ(unsent, kUnsentBytes);
}

// While nobody listens, the kernel may choose the wanted port as the source, and the socket connects to itself.
TEST(Sockets, ASocketThatMeetsItselfIsRefused) {
  Opened listener = listen_on({address("127.0.0.1"), 0});
  const Endpoint at = local_end(listener.socket);
  listener.socket = Descriptor();
  Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in self{};
  self.sin_family = AF_INET;
  self.sin_addr = at.address;
  self.sin_port = htons(static_cast<std::uint16_t>(at.port));
  ASSERT_EQ(::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&self), sizeof self), 0);
  ASSERT_EQ(::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&self), sizeof self), 0);
  EXPECT_EQ(connect_error(socket), ECONNREFUSED);
}

}  // namespace
}  // namespace switchyard::comm
