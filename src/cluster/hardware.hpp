// What hosts, devices and links can do: the constants of a cluster file as plain values. Rates are peaks; curves say
// which share of a peak a call or message of some size reaches.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "cluster/cluster.hpp"
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
  /// A measured point beyond the last one. The share is lowered to at most 1 and where a bigger call would take less
  /// time.
  void add(double size, double share);
  /// What is wrong with the points and how to fix it, the first of them being point 1; "" if nothing. Besides ranges
  /// and order: the share must not rise so fast that a bigger call takes less time, size / share; between two points
  /// that is where the rise of the share exceeds the left share times the logarithm of the sizes' ratio.
  std::string error() const;
  bool operator==(const EfficiencyCurve&) const = default;
};

/// What a device does with one data type.
struct Rates {
  FlopsPerSecond matmul{};              // peak of dense products
  BytesPerSecond memory{};              // peak of reading and writing its memory
  EfficiencyCurve matmul_curve{};       // by flops of one product
  FlopsPerSecond attention{};           // of fused attention's products, forward; 0: as other products
  FlopsPerSecond attention_backward{};  // the same of its gradients
  bool operator==(const Rates&) const = default;
};

struct Device {
  std::string name{};
  Bytes memory{};
  Bytes reserve{};                 // of the memory: what no plan may fill
  Seconds launch{};                // from one kernel to the next beyond the work itself
  Seconds host_launch{};           // until the host has issued an operator or a collective
  bool host_waits = false;         // the host issues nothing before the device is done with what came before
  std::map<DType, Rates> rates{};  // of the data types it computes in
  EfficiencyCurve width_curve{};   // of products, by the narrowest of m, n, k in elements; multiplies matmul_curve
  EfficiencyCurve memory_curve{};  // by bytes that a kernel moves
  // Fraction of undisturbed speed the slowest rank keeps, by compute seconds between synchronizations.
  EfficiencyCurve lockstep_curve{};
  double alone_speedup = 1;  // how much quicker it computes while the other devices of its host rest
  std::map<DType, std::map<std::string, OperatorTable>>
      operators{};  // by name; rates and curves stand for those that aren't there

  /// The memory that tensors may fill.
  Bytes usable() const { return {memory.count - reserve.count}; }

  /// The table of an operator, or nothing.
  const OperatorTable* measured(DType type, const std::string& name) const;

  /// UserError if the cluster file has no rates for `type`; says which section to add.
  const Rates& rates_of(DType type) const;
  bool operator==(const Device&) const = default;
};

/// One kind of link. A port carries `bandwidth` in each direction at once; devices of a host that share a port (a NIC)
/// divide it.
struct LinkClass {
  Seconds latency{};            // until the first byte arrives
  BytesPerSecond bandwidth{};   // of a port and direction
  int shared_by = 1;            // devices of a host with one port, in order: devices 0 .. shared_by-1 have the first
  EfficiencyCurve curve{};      // by bytes of one message
  double sum_share = 1;         // fraction of bandwidth achieved when the receiver accumulates
  double overlap_slowdown = 0;  // of transfers beside computing, as Hardware's; 0: Hardware's
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

  int ranks() const { return hosts * devices_per_host; }
  /// Ranks in order of hosts.
  Cluster placement() const;
  /// InternalError for Link::local and for a class that isn't there.
  const LinkClass& link(Link link) const;
  /// Fraction of compute throughput lost during a transfer on this link: overlap_slowdown - 1; 1 for local copies.
  double device_share(Link link) const;
  bool operator==(const Hardware&) const = default;
};

}  // namespace switchyard::cluster
