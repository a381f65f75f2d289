// Sockets between all ranks of a launch, found through rank 0's address.
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "cluster/cluster.hpp"
#include "comm/launch.hpp"

namespace switchyard::comm {

/// A file descriptor, closed at the end.
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

struct Mesh {
  std::vector<Descriptor> sockets;  // per rank, non-blocking; the own one is empty
  cluster::Cluster cluster;
};

/// Connects all ranks pairwise. ClusterError with the address if rank 0's port is taken, the others don't come within
/// `timeout`, two claim one rank, or their sizes differ.
Mesh tcp_mesh(const Launch& launch, std::chrono::milliseconds timeout);

}  // namespace switchyard::comm
