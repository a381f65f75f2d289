// IPv4 sockets and the interfaces of this host.
#pragma once

#include <netinet/in.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace switchyard::comm {

/// A file descriptor, closed by the destructor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// Lets the process have as many files open as the system allows it: the usual limit of 1024 is fewer than the sockets
/// of a rank of a large job.
void allow_all_files();

/// An IPv4 address and a port.
struct Endpoint {
  in_addr address{};
  int port = 0;
  bool operator==(const Endpoint& other) const { return address.s_addr == other.address.s_addr && port == other.port; }
};
std::string text_of(in_addr address);
/// "10.0.0.2:29500".
std::string text_of(const Endpoint& endpoint);
bool is_loopback(in_addr address);

struct Interface {
  std::string name;
  in_addr address{};
};
/// Interfaces of this host that are up, in the kernel's order, one entry for each IPv4 address.
std::vector<Interface> interfaces();
/// "lo (127.0.0.1), eth0 (10.0.0.2)".
std::string text_of(const std::vector<Interface>& all);
/// The address of the interface with this name, or of the first one inside a network such as "10.0.0.0/8"; nothing if
/// there is none.
std::optional<in_addr> find_interface(const std::string& wanted, const std::vector<Interface>& all);

/// A socket, or the value of errno if it could not be opened.
struct Opened {
  Descriptor socket;
  int error = 0;
};
/// A listening socket that does not block. Port 0: any free one.
Opened listen_on(const Endpoint& at);

/// A socket that is connecting to `to`: it becomes writable once it is connected or has failed (connect_error). `from`:
/// the source address; 0: the kernel's choice.
Opened start_connecting(const Endpoint& to, in_addr from);
/// 0 once connected, otherwise errno's value. A socket that is connected to itself (possible on one host, while nobody
/// listens on a port of the kernel's ephemeral range) counts as refused.
int connect_error(const Descriptor& socket);

constexpr int kUnsentBytes = 512 << 10;
/// Disables the delay of small messages (TCP_NODELAY), makes calls non-blocking, and lets the kernel have kUnsentBytes
/// that it hasn't sent yet, and no more (TCP_NOTSENT_LOWAT): what is written next waits for these only.
void tune(const Descriptor& socket);
Endpoint local_end(const Descriptor& socket);
Endpoint remote_end(const Descriptor& socket);

}  // namespace switchyard::comm
