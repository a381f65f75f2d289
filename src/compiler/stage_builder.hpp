// Layout propagation through one stage: graph calls become instructions on local buffers, with reshards where layouts
// differ.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.hpp"

namespace switchyard::compiler {

class StageBuilder {
 public:
  /// gathered: parameters that are brought into their usual layout for use. hosts: the patterns in which replicas lie
  /// on hosts, as in ir::StageCode::hosts; empty: all ranks are on one host.
  StageBuilder(const ir::Graph& graph, const config::Strategy& strategy, const layout::StageMesh& mesh, int first_unit,
               int end_unit, std::vector<std::vector<int>> hosts = {}, std::set<int> gathered = {},
               std::shared_ptr<KnownExchanges> exchanges = std::make_shared<KnownExchanges>());
  /// Forward and backward segments, without recomputation, drops and events. The result is valid only if there are no
  /// misfits.
  ir::StageCode build();
  /// Parameters with cuts that an operator can't compute with: they must be gathered, too.
  const std::set<int>& misfits() const { return misfits_; }

 private:
  using Key = std::pair<int, std::string>;  // value, its layout as text

  bool here(const ir::Call& call) const { return call.unit >= stage_.first_unit && call.unit < stage_.end_unit; }
  void add_call(const ir::Call& call);
  bool fits(const ir::LayoutQuery& query, const ir::LayoutRule& rule) const;
  void misfit(const ir::Call& call);
  layout::Layout use_layout(int param) const;
  RoleLayout role_layout(layout::Role role, const ir::Type& type) const;
  int in_role(int buffer, layout::Role role, int unit, Pass pass);
  void gather_params(const ir::Call& call);
  std::vector<int> inputs_of(const ir::Call& call, const ir::LayoutRule& rule);
  ir::LayoutQuery query_of(const ir::Call& call);
  int current(int value);
  int buffer(int value, const layout::Layout& layout);
  int new_buffer(int value, const layout::Layout& layout);
  int resharded(int from, const layout::Layout& to, int unit, Pass pass);
  void add_reshard(int from, int to, int unit, Pass pass);
  KnownExchanges::List exchanges(const ir::Buffer& from, const ir::Buffer& to);
  void produce(const ir::Call& call, const ir::LayoutRule& rule, ir::Instr& instr);
  void record_gradient(const ir::Call& call, int param, const layout::Layout& grad);
  void find_boundaries();
  ir::Segment& segment(Pass pass) { return pass == Pass::F ? stage_.forward : stage_.backward; }

  const ir::Graph& graph_;
  const config::Strategy& strategy_;
  std::set<int> gathered_, misfits_;
  ir::StageCode stage_;
  std::vector<bool> needed_;  // per call
  std::vector<int> primary_;  // buffer of each value; -1: none yet
  std::map<Key, int> by_layout_;
  std::shared_ptr<KnownExchanges> exchanges_;
  std::string replica_;  // mesh and hosts, as text
  std::map<std::pair<const ir::Segment*, int>, int>
      copies_;  // buffer with the gathered copy of a parameter's value in a segment
};

/// Marks the calls whose results are needed: accumulators, the loss with its gradients, or the last call of a forward
/// graph.
std::vector<bool> needed_calls(const ir::Graph& graph);
/// Makes the given buffers adjacent in one allocation, if none of them has a root yet.
void make_adjacent(ir::StageCode& stage, const std::vector<int>& members);

}  // namespace switchyard::compiler
