// What hosts, devices and links can do: the constants of a cluster file as plain values. Rates are peaks; curves say
// which share of a peak a call or message of some size reaches.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "cluster/cluster.hpp"
#include "cluster/device_type.hpp"
#include "cluster/operator_table.hpp"

namespace switchyard::cluster {

/// Share of a peak by size. The unit of sizes is that of the quantity: flops of one product, bytes of one message or
/// kernel, elements, seconds.
/// formula  linear in log(size) between neighbours, constant outside the outermost points; without points 1 everywhere
struct EfficiencyCurve {
  struct Point {
    double size = 0;   // above 0
    double share = 1;  // above 0, at most 1
    bool operator==(const Point&) const = default;
  };
  std::vector<Point> points{};  // sizes rise

  double at(double size) const;
  /// Appends a measured point beyond the last one. The share is lowered to at most 1, and until the larger call does
  /// not take less time than the one before.
  void add(double size, double share);
  /// Describes what is wrong with the points (counted from 1) and how to fix it; "" if nothing. Besides ranges and
  /// order, it checks that the share does not rise so fast that a larger call takes less time (size / share): between
  /// two points, the rise may be at most the left share times the logarithm of the ratio of the sizes.
  std::string error() const;
  bool operator==(const EfficiencyCurve&) const = default;
};

/// What a device does with one data type.
struct Rates {
  FlopsPerSecond matmul{};              // peak of dense products
  BytesPerSecond memory{};              // peak of reading and writing its memory
  EfficiencyCurve matmul_curve{};       // by flops of one product
  FlopsPerSecond attention{};           // products of fused attention, forward; 0: like other products
  FlopsPerSecond attention_backward{};  // the same in the backward pass
  bool operator==(const Rates&) const = default;
};

/// What a device does with a codec: bytes of elements as they lie in memory, and what each message takes besides, both
/// to encode and to decode it.
struct CodecRates {
  BytesPerSecond encode{};
  BytesPerSecond decode{};  // and add
  Seconds message{};
  bool operator==(const CodecRates&) const = default;
};

struct Device {
  std::string name{};
  DeviceType type = DeviceType::cpu;
  bool torch_elements = false;  // norms, activations, the loss: libtorch's operators, which convert bf16 to fp32
  Bytes memory{};
  Bytes reserve{};                 // memory that every plan keeps free
  Seconds launch{};                // each kernel's time beyond its work
  Seconds host_launch{};           // host time to issue an operator or a collective
  bool host_waits = false;         // the host waits for the device before it issues the next call
  std::map<DType, Rates> rates{};  // one for each data type it computes in
  EfficiencyCurve width_curve{};   // products, by the narrowest of m, n, k in elements; multiplies matmul_curve
  EfficiencyCurve memory_curve{};  // by bytes that a kernel moves
  // Fraction of undisturbed speed the slowest rank keeps, by compute seconds between synchronizations.
  EfficiencyCurve lockstep_curve{};
  double alone_speedup = 1;  // speedup while the other devices of its host are idle
  std::map<DType, std::map<std::string, OperatorTable>>
      operators{};                             // by name; operators that are not listed use rates and curves
  std::map<std::string, CodecRates> codecs{};  // by name; others read and write memory

  /// The memory that tensors may fill.
  Bytes usable() const { return {memory.count - reserve.count}; }

  /// The table of an operator, or nothing.
  const OperatorTable* measured(DType type, const std::string& name) const;

  /// UserError if the cluster file has no rates for `type`; says which section to add.
  const Rates& rates_of(DType type) const;
  bool operator==(const Device&) const = default;
};

/// One kind of link. A port carries `bandwidth` in each direction at once; devices of a host that share a port (a NIC)
/// divide it. Where two devices have links of their own (a host without a switch), what a device reaches grows with the
/// number of its peers: min(bandwidth, peers * pair_bandwidth).
struct LinkClass {
  Seconds latency{};            // until the first byte arrives
  BytesPerSecond bandwidth{};   // per port and direction
  int shared_by = 1;            // devices of a host with one port, in order: devices 0 .. shared_by-1 have the first
  EfficiencyCurve curve{};      // by bytes of one message
  double sum_share = 1;         // fraction of bandwidth achieved when the receiver accumulates
  double overlap_slowdown = 0;  // transfers beside computing, same as Hardware's; 0: Hardware's
  BytesPerSecond pair_bandwidth{};  // from one device to one other, at most `bandwidth`; 0: `bandwidth`

  BytesPerSecond pair_rate() const { return pair_bandwidth.count > 0 ? pair_bandwidth : bandwidth; }
  bool operator==(const LinkClass&) const = default;
};

struct Hardware {
  std::string name{};
  int hosts = 1;
  int devices_per_host = 1;               // that take part; one rank each
  std::vector<std::string> host_names{};  // empty, or one for each host
  Device device{};
  LinkClass intra_host{};
  std::optional<LinkClass> inter_host{};  // there if hosts > 1
  double overlap_slowdown = 1;            // slowdown when compute and transfer overlap: 1 none, 2 serialized
  bool overlaps_collectives = true;       // same as Cluster's

  int ranks() const { return hosts * devices_per_host; }
  /// Ranks in order of hosts.
  Cluster placement() const;
  /// InternalError for Link::local and for a class that this hardware lacks.
  const LinkClass& link(Link link) const;
  /// Fraction of compute throughput lost during a transfer on this link: overlap_slowdown - 1; 1 for local copies.
  double device_share(Link link) const;
  bool operator==(const Hardware&) const = default;
};

}  // namespace switchyard::cluster
