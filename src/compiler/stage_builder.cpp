#include "compiler/stage_builder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/errors.hpp"
#include "ir/autodiff.hpp"

namespace switchyard::compiler {
namespace {

// Token dims in units of T / positions, so that every cut of T is a whole number of units; pairs of tokens are never
// cut.
layout::Shape unit_shape(const ir::Type& type, int positions) {
  layout::Shape shape = type.shape;
  for (i64& size : shape.size)
    if (size < 0) size = size == ir::kTokens ? positions : 1;
  shape.alignment.resize(shape.size.size());
  return shape;
}

}  // namespace

std::vector<bool> needed_calls(const ir::Graph& graph) {
  std::vector<bool> value_needed(graph.values().size(), false), call_needed(graph.calls().size(), false);
  const bool trained = ir::is_differentiated(graph);
  for (size_t i = graph.calls().size(); i-- > 0;) {
    const ir::Call& call = graph.calls()[i];
    bool needed = !trained && i + 1 == graph.calls().size();
    for (const int v : call.out)
      needed = needed || value_needed[static_cast<size_t>(v)] || graph.value(v).kind == ir::ValueKind::gradient;
    if (!needed) continue;
    call_needed[i] = true;
    for (const int v : call.in) value_needed[static_cast<size_t>(v)] = true;
  }
  return call_needed;
}

void make_adjacent(ir::StageCode& stage, const std::vector<int>& members) {
  for (const int m : members) {
    const ir::Buffer& b = stage.buffers[static_cast<size_t>(m)];
    const bool boundary = m == stage.act_in || m == stage.act_out || m == stage.grad_in || m == stage.grad_out;
    if (b.root >= 0 || b.kind != ir::ValueKind::activation || boundary) return;
  }
  for (size_t slot = 0; slot < members.size(); ++slot) {
    ir::Buffer& b = stage.buffers[static_cast<size_t>(members[slot])];
    b.root = members[0];
    b.root_slot = static_cast<int>(slot);
  }
}

StageBuilder::StageBuilder(const ir::Graph& graph, const config::Strategy& strategy, const layout::StageMesh& mesh,
                           int first_unit, int end_unit, std::vector<std::vector<int>> hosts, std::set<int> gathered,
                           std::shared_ptr<KnownExchanges> exchanges)
    : graph_(graph),
      strategy_(strategy),
      gathered_(std::move(gathered)),
      needed_(needed_calls(graph)),
      primary_(graph.values().size(), -1),
      exchanges_(std::move(exchanges)) {
  stage_.replica = replica_mesh(graph, strategy, mesh, first_unit, end_unit);
  stage_.hosts = hosts.empty() ? std::vector(1, std::vector<int>(stage_.replica.ranks.size(), 0)) : std::move(hosts);
  stage_.first_unit = first_unit;
  stage_.end_unit = end_unit;
  for (const layout::Axis& axis : stage_.replica.axes) replica_ += fmt::format("{} {} ", axis.name, axis.size);
  replica_ += fmt::format("{}", stage_.hosts);
  stage_.forward.pass = Pass::F;
  stage_.backward.pass = Pass::B;
}

ir::StageCode StageBuilder::build() {
  for (const bool forward : {true, false})
    for (size_t i = 0; i < graph_.calls().size(); ++i) {
      const ir::Call& call = graph_.calls()[i];
      if (!here(call) || !needed_[i] || (call.pass == Pass::F) != forward) continue;
      add_call(call);
      if (!misfits_.empty()) return {};
    }
  find_boundaries();
  return std::move(stage_);
}

layout::Layout StageBuilder::use_layout(int param) const {
  return gathered_.contains(param) ? usual_layout(graph_, param, strategy_.sequence_parallel, stage_.replica)
                                   : param_layout(graph_, param, strategy_, stage_.replica);
}

RoleLayout StageBuilder::role_layout(layout::Role role, const ir::Type& type) const {
  return compiler::role_layout(role, type, strategy_.sequence_parallel, stage_.replica);
}

// The value of a buffer in the layout of a role. Sums are made, except those of gradients over axes that only copy the
// value itself: they are made with the weights' gradients.
int StageBuilder::in_role(int buffer, layout::Role role, int unit, Pass pass) {
  if (role == layout::Role::none) return buffer;
  const ir::Buffer& made = stage_.buffers[static_cast<size_t>(buffer)];
  RoleLayout to = role_layout(role, made.type);
  for (const int axis : made.layout.partial)
    if (std::ranges::count(to.copies, axis) > 0) to.layout.partial.push_back(axis);
  return resharded(buffer, to.layout, unit, pass);
}

// The buffer in which a value is now; parameters and feeds appear at first use, activations of other stages as
// boundaries.
int StageBuilder::current(int value) {
  int& buffer_of = primary_[static_cast<size_t>(value)];
  if (buffer_of >= 0) return buffer_of;
  const ir::Value& v = graph_.value(value);
  switch (v.kind) {
    case ir::ValueKind::param:
    case ir::ValueKind::gradient:
      buffer_of = buffer(value, use_layout(v.param));
      break;
    case ir::ValueKind::feed:
      buffer_of = buffer(value, layout::replicated(1));
      break;
    case ir::ValueKind::activation: {
      const bool forward = stage_.backward.code.empty() && stage_.act_in < 0 && stage_.first_unit > 0;
      int& boundary = forward ? stage_.act_in : stage_.grad_in;
      check(boundary < 0, "stage {}..{}: a second value, {}, comes from another stage", stage_.first_unit,
            stage_.end_unit, v.name);
      boundary = buffer(value, role_layout(layout::Role::boundary, v.type).layout);
      return primary_[static_cast<size_t>(value)] =
                 in_role(boundary, layout::Role::residual, forward ? stage_.first_unit : stage_.end_unit - 1,
                         forward ? Pass::F : Pass::B);
    }
  }
  return buffer_of;
}

int StageBuilder::buffer(int value, const layout::Layout& layout) {
  const Key key{value, layout::to_string(stage_.replica, layout)};
  if (const auto it = by_layout_.find(key); it != by_layout_.end()) return it->second;
  return by_layout_[key] = new_buffer(value, layout);
}

int StageBuilder::new_buffer(int value, const layout::Layout& layout) {
  const ir::Value& v = graph_.value(value);
  ir::Buffer b{.name = v.name, .kind = v.kind, .value = value, .type = v.type, .layout = layout};
  const layout::Shape shape = unit_shape(v.type, stage_.replica.size());
  for (int position = 0; position < stage_.replica.size(); ++position)
    b.box.push_back(layout::shard_box(stage_.replica, layout, shape, position));
  stage_.buffers.push_back(std::move(b));
  return static_cast<int>(stage_.buffers.size()) - 1;
}

// The copies live in one segment: forward and backward pass gather for themselves.
void StageBuilder::gather_params(const ir::Call& call) {
  for (const int v : call.in) {
    const ir::Value& value = graph_.value(v);
    if (value.kind != ir::ValueKind::param || !gathered_.contains(value.param)) continue;
    const auto [copy, fresh] = copies_.try_emplace({&segment(call.pass), v}, -1);
    if (fresh) {
      const int held = buffer(v, param_layout(graph_, value.param, strategy_, stage_.replica));
      copy->second = new_buffer(v, use_layout(value.param));
      ir::Buffer& made = stage_.buffers[static_cast<size_t>(copy->second)];
      made.kind = ir::ValueKind::activation;
      made.name += " gathered";
      add_reshard(held, copy->second, call.unit, call.pass);
    }
    primary_[static_cast<size_t>(v)] = copy->second;
  }
}

ir::LayoutQuery StageBuilder::query_of(const ir::Call& call) {
  ir::LayoutQuery query;
  query.mesh = &stage_.replica;
  for (const int v : call.in) {
    const ir::Value& value = graph_.value(v);
    const bool read_in_role = call.op->reads_as() != layout::Role::none && value.kind == ir::ValueKind::activation &&
                              value.type.shape.dims() == 2 && value.type.shape.size[0] == ir::kTokens;
    query.in.push_back(read_in_role ? role_layout(call.op->reads_as(), value.type).layout
                                    : stage_.buffers[static_cast<size_t>(current(v))].layout);
    query.in_fixed.push_back(value.kind == ir::ValueKind::param);
    query.in_feed.push_back(value.kind == ir::ValueKind::feed);
    query.in_types.push_back(&value.type);
  }
  for (const int v : call.out) {
    const ir::Value& value = graph_.value(v);
    query.out_fixed.push_back(value.kind == ir::ValueKind::gradient
                                  ? stage_.buffers[static_cast<size_t>(current(v))].layout
                                  : layout::Layout{});
    query.out_roles.push_back(value.role == layout::Role::none ? layout::Layout{}
                                                               : role_layout(value.role, value.type).layout);
  }
  return query;
}

// Whether all layouts that the strategy fixes are as the rule needs them.
bool StageBuilder::fits(const ir::LayoutQuery& query, const ir::LayoutRule& rule) const {
  for (size_t i = 0; i < query.in.size(); ++i)
    if (query.in_fixed[i] && !(rule.needs[i] == query.in[i])) return false;
  for (size_t i = 0; i < query.out_fixed.size(); ++i)
    if (!query.out_fixed[i].split.empty() && query.out_fixed[i].split != rule.gives[i].split) return false;
  return true;
}

// All parameters of the call that are not in their usual layout.
void StageBuilder::misfit(const ir::Call& call) {
  for (const auto* side : {&call.in, &call.out})
    for (const int v : *side)
      if (const int param = graph_.value(v).param;
          param >= 0 &&
          !(use_layout(param) == usual_layout(graph_, param, strategy_.sequence_parallel, stage_.replica)))
        misfits_.insert(param);
  check(!misfits_.empty(), "strategy \"{}\": {} can't compute with its parameters in their usual layouts",
        strategy_.name, call.op->name());
}

void StageBuilder::add_call(const ir::Call& call) {
  gather_params(call);
  const ir::LayoutQuery query = query_of(call);
  const ir::LayoutRule rule = call.op->layout(query);
  if (!fits(query, rule)) return misfit(call);
  ir::Instr instr;
  instr.op = call.op;
  instr.unit = call.unit;
  instr.pass = call.pass;
  instr.in = inputs_of(call, rule);
  for (int position = 0; position < stage_.replica.size(); ++position) {
    bool first = true;
    if (!rule.gives.empty())
      for (const int axis : rule.gives[0].partial) first = first && stage_.replica.coordinate(position, axis) == 0;
    instr.first_partial.push_back(first);
  }
  produce(call, rule, instr);
}

std::vector<int> StageBuilder::inputs_of(const ir::Call& call, const ir::LayoutRule& rule) {
  std::vector<int> in;
  for (size_t i = 0; i < call.in.size(); ++i)
    in.push_back(resharded(current(call.in[i]), rule.needs[i], call.unit, call.pass));
  return in;
}

int StageBuilder::resharded(int from, const layout::Layout& to, int unit, Pass pass) {
  if (stage_.buffers[static_cast<size_t>(from)].layout == to) return from;
  const size_t known = stage_.buffers.size();
  const int made = buffer(stage_.buffers[static_cast<size_t>(from)].value, to);
  if (static_cast<size_t>(made) == known) add_reshard(from, made, unit, pass);
  return made;
}

void StageBuilder::add_reshard(int from, int to, int unit, Pass pass) {
  const ir::Buffer &source = stage_.buffers[static_cast<size_t>(from)],
                   &target = stage_.buffers[static_cast<size_t>(to)];
  ir::Instr instr;
  instr.queue = ir::Queue::collective;
  instr.exchanges = exchanges(source, target);
  instr.over_ulysses = layout::differ_along(source.layout, target.layout,
                                            layout::factors_of(stage_.replica, layout::StageAxis::ulysses));
  instr.in = {from};
  instr.out = {to};
  instr.unit = unit;
  instr.pass = pass;
  segment(pass).code.push_back(std::move(instr));
}

KnownExchanges::List StageBuilder::exchanges(const ir::Buffer& from, const ir::Buffer& to) {
  const layout::Shape shape = unit_shape(from.type, stage_.replica.size());
  const std::string name =
      fmt::format("{} {} {} {} > {}", replica_, shape.size, shape.alignment,
                  layout::to_string(stage_.replica, from.layout), layout::to_string(stage_.replica, to.layout));
  return exchanges_->named(name, [&] {
    const layout::ShardMap before = layout::expand(stage_.replica, from.layout, shape),
                           after = layout::expand(stage_.replica, to.layout, shape);
    KnownExchanges::List list;
    for (const std::vector<int>& hosts : stage_.hosts) {
      list.push_back(std::make_shared<const layout::Exchange>(layout::quickest_exchange(before, after, hosts)));
      layout::verify_exchange(*list.back(), before, after);
    }
    return list;
  });
}

void StageBuilder::produce(const ir::Call& call, const ir::LayoutRule& rule, ir::Instr& instr) {
  check(rule.gives.size() == call.out.size(), "{}: {} layouts for {} outputs", call.op->name(), rule.gives.size(),
        call.out.size());
  for (size_t i = 0; i < call.out.size(); ++i) {
    const ir::Value& value = graph_.value(call.out[i]);
    if (value.kind == ir::ValueKind::gradient) {
      instr.out.push_back(current(call.out[i]));
      record_gradient(call, value.param, rule.gives[i]);
      continue;
    }
    const int made = buffer(call.out[i], rule.gives[i]);
    primary_[static_cast<size_t>(call.out[i])] = made;
    instr.out.push_back(made);
  }
  const auto members = [](const std::vector<int>& slots, const std::vector<int>& operands) {
    std::vector<int> list;
    for (const int slot : slots) list.push_back(operands[static_cast<size_t>(slot)]);
    return list;
  };
  if (!instr.op->adjacent_inputs().empty()) make_adjacent(stage_, members(instr.op->adjacent_inputs(), instr.in));
  if (!instr.op->adjacent_outputs().empty()) make_adjacent(stage_, members(instr.op->adjacent_outputs(), instr.out));
  if (const auto loss = instr.op->loss_output()) stage_.loss = instr.out[*loss];
  segment(call.pass).code.push_back(instr);
  for (size_t i = 0; i < call.out.size(); ++i) {
    const ir::Value& value = graph_.value(call.out[i]);
    primary_[static_cast<size_t>(call.out[i])] = in_role(instr.out[i], value.role, call.unit, call.pass);
  }
}

void StageBuilder::record_gradient(const ir::Call& call, int param, const layout::Layout& grad) {
  for (const ir::ParamUse& use : stage_.params)
    if (use.param == param) {
      if (!(use.grad == grad)) misfit(call);
      return;
    }
  stage_.params.push_back({param, param_layout(graph_, param, strategy_, stage_.replica), grad});
}

// A stage's outputs are cut on tokens, so that each byte is sent once. Parameters of a forward-only graph are
// recorded here, too.
void StageBuilder::find_boundaries() {
  const auto came_in = [&](int value) {
    return std::ranges::any_of(std::array{stage_.act_in, stage_.grad_in},
                               [&](int b) { return b >= 0 && stage_.buffers[static_cast<size_t>(b)].value == value; });
  };
  const auto leaving = [&](Pass pass) {
    int value = -1;
    for (size_t i = 0; i < graph_.calls().size(); ++i) {
      const ir::Call& call = graph_.calls()[i];
      if (!needed_[i] || here(call) || (call.pass == Pass::F) != (pass == Pass::F)) continue;
      if (pass == Pass::F ? call.unit < stage_.end_unit : call.unit >= stage_.first_unit) continue;
      for (const int v : call.in) {
        const int made = primary_[static_cast<size_t>(v)];
        if (graph_.value(v).kind != ir::ValueKind::activation || made < 0 || came_in(v)) continue;
        check(value < 0 || value == v, "stage {}..{}: two values leave it", stage_.first_unit, stage_.end_unit);
        value = v;
      }
    }
    if (value < 0) return -1;
    const int unit = pass == Pass::F ? stage_.end_unit - 1 : stage_.first_unit;
    return in_role(primary_[static_cast<size_t>(value)], layout::Role::boundary, unit, pass);
  };
  stage_.act_out = leaving(Pass::F);
  stage_.grad_out = leaving(Pass::B);
  for (const ir::Instr& instr : stage_.forward.code)
    for (const int b : instr.in) {
      const ir::Buffer& buffer = stage_.buffers[static_cast<size_t>(b)];
      if (buffer.kind != ir::ValueKind::param) continue;
      const int param = graph_.value(buffer.value).param;
      const bool known = std::any_of(stage_.params.begin(), stage_.params.end(),
                                     [&](const ir::ParamUse& u) { return u.param == param; });
      if (!known) stage_.params.push_back({param, buffer.layout, buffer.layout});
    }
  if (!ir::is_differentiated(graph_) && stage_.end_unit == graph_.units() && stage_.loss < 0)
    stage_.logits = stage_.forward.code.back().out[0];
  std::sort(stage_.params.begin(), stage_.params.end(),
            [](const ir::ParamUse& a, const ir::ParamUse& b) { return a.param < b.param; });
}

}  // namespace switchyard::compiler
