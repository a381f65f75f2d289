// Costs of a hot switch of a model: the figures by which switch planners are compared.
#pragma once

#include <vector>

#include "cluster/cluster.hpp"
#include "compiler/placement.hpp"
#include "switching/plan.hpp"

namespace switchyard::compiler {

/// A model's parameters before and after a switch. compute_copy: home's copies in compute precision, empty if they are
/// no source.
struct SwitchMaps {
  std::vector<switching::UnitMaps> units;
  std::vector<layout::ShardMap> from, compute_copy, to;
};

/// `graph` may be forward only. home: the strategy that anchors home; nullptr: the copies of `from` are the only
/// source.
SwitchMaps switch_maps(const ir::Graph& graph, const config::Strategy& from, const config::Strategy& to,
                       const config::Strategy* home);

/// Bytes at compute precision. max_*: bytes of the rank that sends or receives most. *_bound: lower bound on what any
/// plan sends between hosts. layers_*: the same for the transformer layers alone, without embedding, last norm and
/// head, as in published figures. layer_bytes: parameters of one layer. messages: those between different ranks.
struct SwitchFigures {
  i64 inter_host_bytes = 0, intra_host_bytes = 0, inter_host_bound_bytes = 0, max_send_bytes = 0, max_receive_bytes = 0;
  i64 layers_inter_host_bytes = 0, layers_inter_host_bound_bytes = 0;
  i64 layer_bytes = 0, messages = 0;
};
SwitchFigures switch_figures(const ir::Graph& graph, const SwitchMaps& maps, const switching::MovePlan& plan,
                             const cluster::Cluster& cluster);

}  // namespace switchyard::compiler
