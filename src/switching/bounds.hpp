// The traffic of a move plan, and a lower bound for any plan.
#pragma once

#include <vector>

#include "switching/plan.hpp"

namespace switchyard::switching {

/// Bytes between devices of one host, and between hosts.
struct LinkBytes {
  i64 intra_host = 0, inter_host = 0;
  bool operator==(const LinkBytes&) const = default;
};

/// Bytes of a plan: per link class, and of the rank that sends or receives most (local copies count 0).
struct Traffic {
  LinkBytes links;
  i64 max_send = 0, max_receive = 0;
  bool operator==(const Traffic&) const = default;
};
Traffic traffic(const MovePlan& plan, const cluster::Cluster& cluster, i64 element_size);

/// Bytes that any switch must send between hosts: each element once for every host that wants it and has it on none of
/// its ranks, in `from` or `compute_copy`. Lists as in plan_switch.
i64 inter_host_bound_bytes(const std::vector<layout::ShardMap>& from, const std::vector<layout::ShardMap>& compute_copy,
                           const std::vector<layout::ShardMap>& to, const cluster::Cluster& cluster, i64 element_size);

}  // namespace switchyard::switching
