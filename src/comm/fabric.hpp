// Fabric: how ranks talk. One primitive - a transaction of block messages on a channel - carries every pattern:
// point to point, switches, reductions, and (comm/collectives.hpp) all-gather, reduce-scatter, all-reduce, all-to-all.
// Implementations: ranks as threads of one process (thread_fabric), processes under MPI or over TCP (mpi_fabric,
// tcp_fabric), and ranks with a device each on top of one of these (nccl_fabric).
// Reductions add in the order in which the transaction lists them, so that all fabrics give equal bits.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/group_call.hpp"
#include "cluster/cluster.hpp"

namespace switchyard::comm {

class BlockDevice;

/// Rows of equal length in memory: a box of a row-major matrix. Bytes. device: whose memory it is; null: the host's.
struct Block {
  std::byte* data = nullptr;
  i64 rows = 0, row_bytes = 0, stride = 0;
  const BlockDevice* device = nullptr;
  i64 bytes() const { return rows * row_bytes; }
};
Block contiguous(void* data, i64 bytes);

/// One operation of a transaction, seen from this rank.
///   send   `block` to `peer`
///   recv   from `peer` into `block`          (add: block += what came, elements of `dtype`)
///   local  from `source` into `block`        (add: block += source)
/// Receives and locals take effect in the order of the list. Sends between the same two ranks on one channel are
/// matched with receives in order; sizes must agree.
struct Op {
  enum class Kind { send, recv, local } kind = Kind::send;
  int peer = -1;
  Block block{}, source{};
  bool add = false;
  DType dtype = DType::f32;
  // Set for a receive whose message is encoded: called with what came, in its turn, in place of copying or adding. The
  // message has `encoded` bytes, or, if at_most, no more than these: its sender says how many.
  std::function<void(std::span<const std::byte>)> decode{};
  i64 encoded = 0;
  bool at_most = false;
};

/// A collective of a group of ranks, seen from one of them. Pieces have equal bytes, and are in the order of `ranks`.
///   all_gather      in: this rank's piece              out: all pieces
///   reduce_scatter  in: all pieces of its partial      out: the sum of its own piece     (add: out += the sum)
///   all_reduce      in: its partial                    out: the sum                      (add: out += the sum)
/// `out` may be `in` where all_gather puts it, and all_reduce; else they share no byte. Sums are of `dtype`, in any
/// order.
struct Collective {
  GroupCall call = GroupCall::all_gather;
  std::vector<int> ranks{};
  std::vector<Block> in{}, out{};
  bool add = false;
  DType dtype = DType::f32;
};

/// A FIFO between any two of `ranks` (global numbers), who run what they both take part in in one order. Other ranks
/// may use the same id for theirs. Channels of two ids never wait for each other.
struct Channel {
  int id = 0;
  std::vector<int> ranks;
  auto operator<=>(const Channel&) const = default;
};

/// What a rank runs on a channel: `name` appears in errors. Members compare `number`, which never falls on a
/// channel. collectives: those that the fabric serves there, on blocks that no operation uses.
struct Transaction {
  std::string name;
  i64 number = 0;
  std::vector<Op> ops;
  std::vector<Collective> collectives{};
};

/// A device whose memory a fabric moves. It works asynchronously: each thread of a rank gives its work to a stream of
/// its own, which does it in order; streams are ordered by marks alone. Thread-safe.
class BlockDevice {
 public:
  /// A place in a stream: that which the stream's work had reached when it was made. Of any device of this kind.
  using Mark = std::shared_ptr<const void>;

  virtual ~BlockDevice() = default;
  /// The calling thread works with this device from now on. One that has not said so works with the first device of
  /// the process, which then gives memory for a context of its own: also where it only asks for marks, or drops them.
  virtual void adopt_thread() const noexcept {}
  /// to := from, to += from (elements of `dtype`; bf16 adds in fp32 and rounds to nearest even), every byte of to :=
  /// byte. Geometries may differ, total bytes agree. `from` may lie on another device of this kind. The work is given
  /// to the calling thread's stream, and uses the blocks until that has done it.
  virtual void copy(const Block& to, const Block& from) const = 0;
  virtual void add(const Block& to, const Block& from, DType dtype) const = 0;
  virtual void fill(const Block& to, unsigned char byte) const = 0;
  /// What the calling thread's stream has been given so far.
  virtual Mark mark() const = 0;
  /// What the calling thread's stream is given from now on starts after `mark` is reached. Returns at once.
  virtual void wait_for(const Mark& mark) const = 0;
  /// Whether the mark has been reached.
  virtual bool reached(const Mark& mark) const = 0;
  /// Memory for `bytes` of this device, which the calling thread's stream may use. It may be given back while that
  /// stream still has work with it: another use of it comes after this work.
  virtual std::shared_ptr<std::byte> allocate(i64 bytes) const = 0;
  /// The calling thread's stream as the device's libraries take it (a cudaStream_t).
  virtual void* native_stream() const = 0;
};

/// Bytes sent by this rank since construction, per link class (index: cluster::Link).
using Traffic = std::array<i64, 3>;

/// One rank's end. All members of a transaction call run() for it, in the same order per channel. Thread-safe across
/// channels: different threads of a rank may run transactions of different channels at once.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Blocks until all operations are done and the blocks may be reused; where they lie on a device, until the calling
  /// thread's stream is ordered so: what it is given next comes after the operations, and what it was given before came
  /// first. Throws ClusterError naming rank, transaction and peer when a peer is silent and no rank works for longer
  /// than the timeout, or when it failed, or disagrees in number, size or dtype. What goes wrong on a device after
  /// run() has returned is thrown by later calls.
  virtual void run(const Channel& channel, const Transaction& transaction) = 0;
  /// Says that this rank has computed something, as it does all the while: no rank's wait counts that as silence, since
  /// what it waits for may depend on it. Cheap. Of work that is given to a device it says only that it was given.
  virtual void works() {}
  /// Grows while any rank says so, as far as it is heard here.
  virtual i64 work_heard() const { return 0; }
  /// Informs every rank that this one failed: their waiting and later calls throw ClusterError with `reason`, and with
  /// this rank, unless it begins with one.
  virtual void abort(const std::string& reason) = 0;
  /// The first reason why calls throw from now on, this rank's or another's; empty: none is known here.
  virtual std::optional<std::string> failure() const { return std::nullopt; }
  virtual Traffic traffic() const = 0;
  /// Whether blocks may lie on a device. All blocks of a message lie on devices, or all on hosts.
  virtual bool moves_device_memory() const { return false; }
  /// Whether a library's call does this collective of a group, in this order of ranks, on a channel: the same answer on
  /// all of them. What no fabric serves are messages.
  virtual bool serves(int /*channel*/, GroupCall /*call*/, std::span<const int> /*ranks*/) const { return false; }
  /// Whether it serves any.
  virtual bool serves_any() const { return false; }
  virtual const cluster::Cluster& cluster() const = 0;
};

struct FabricOptions {
  std::chrono::milliseconds timeout{30000};
  bool strict = false;  // poison receive blocks before they are filled; refuse numbers that fall and blocks that are
                        // sent and written at once
  // For ranks that meet over TCP:
  std::string interface = {};  // name, or a network such as "10.0.0.0/8"; empty: that of the master's address
  std::string token = {};      // the job's secret: ranks with another one are refused; empty: none
  std::function<void(const std::string&)> say = {};  // who was refused, and why; empty: nobody hears it
};

}  // namespace switchyard::comm
