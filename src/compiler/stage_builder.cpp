#include "compiler/stage_builder.hpp"

#include <algorithm>

#include "base/errors.hpp"

namespace switchyard::compiler {
namespace {

// Token dims in units of T / positions, so that every cut of T is a whole number of units.
layout::Shape unit_shape(const ir::Type& type, int positions) {
  layout::Shape shape = type.shape;
  for (i64& size : shape.size)
    if (size == ir::kTokens) size = positions;
  shape.granule.resize(shape.size.size());
  return shape;
}

bool has_gradients(const ir::Graph& graph) {
  return std::any_of(graph.calls().begin(), graph.calls().end(), [](const ir::Call& c) { return c.phase != ir::Phase::F; });
}

}  // namespace

std::vector<bool> needed_calls(const ir::Graph& graph) {
  std::vector<bool> value_needed(graph.values().size(), false), call_needed(graph.calls().size(), false);
  const bool trained = has_gradients(graph);
  for (size_t i = graph.calls().size(); i-- > 0;) {
    const ir::Call& call = graph.calls()[i];
    bool needed = !trained && i + 1 == graph.calls().size();
    for (const int v : call.out) needed = needed || value_needed[static_cast<size_t>(v)] || graph.value(v).kind == ir::ValueKind::gradient;
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

StageBuilder::StageBuilder(const ir::Graph& graph, const config::Strategy& strategy, int tp, int first_unit, int end_unit)
    : graph_(graph), strategy_(strategy), needed_(needed_calls(graph)), primary_(graph.values().size(), -1) {
  stage_.lane = lane_mesh(graph, strategy, tp, first_unit, end_unit);
  stage_.first_unit = first_unit;
  stage_.end_unit = end_unit;
  stage_.forward.phase = ir::Phase::F;
  stage_.backward.phase = ir::Phase::B;
  residual_ = layout::replicated(2);
  if (strategy.sequence_parallel)
    for (size_t a = 0; a < stage_.lane.axes.size(); ++a) residual_.split[0].push_back(static_cast<int>(a));
}

ir::StageCode StageBuilder::build() {
  for (const bool forward : {true, false})
    for (size_t i = 0; i < graph_.calls().size(); ++i) {
      const ir::Call& call = graph_.calls()[i];
      if (here(call) && needed_[i] && (call.phase == ir::Phase::F) == forward) add_call(call);
    }
  find_boundaries();
  return std::move(stage_);
}

// The buffer in which a value is now; parameters and feeds appear at first use, activations of other stages as boundaries.
int StageBuilder::current(int value) {
  int& buffer_of = primary_[static_cast<size_t>(value)];
  if (buffer_of >= 0) return buffer_of;
  const ir::Value& v = graph_.value(value);
  switch (v.kind) {
    case ir::ValueKind::param:
    case ir::ValueKind::gradient:
      buffer_of = buffer(value, param_layout(graph_, v.param, strategy_, stage_.lane));
      break;
    case ir::ValueKind::feed:
      buffer_of = buffer(value, layout::replicated(1));
      break;
    case ir::ValueKind::activation: {
      buffer_of = buffer(value, residual_);
      int& boundary = stage_.backward.code.empty() && stage_.act_in < 0 && stage_.first_unit > 0 ? stage_.act_in : stage_.grad_in;
      check(boundary < 0, "stage {}..{}: a second value, {}, comes from another stage", stage_.first_unit, stage_.end_unit, v.name);
      boundary = buffer_of;
    }
  }
  return buffer_of;
}

int StageBuilder::buffer(int value, const layout::Layout& layout) {
  const Key key{value, layout::to_string(stage_.lane, layout)};
  if (const auto it = by_layout_.find(key); it != by_layout_.end()) return it->second;
  const ir::Value& v = graph_.value(value);
  ir::Buffer b{v.name, v.kind, value, v.type, layout, {}, -1, 0};
  const layout::Shape shape = unit_shape(v.type, stage_.lane.size());
  for (int position = 0; position < stage_.lane.size(); ++position)
    b.box.push_back(layout::shard_box(stage_.lane, layout, shape, position));
  stage_.buffers.push_back(std::move(b));
  const int index = static_cast<int>(stage_.buffers.size()) - 1;
  by_layout_[key] = index;
  return index;
}

ir::LayoutQuery StageBuilder::query_of(const ir::Call& call) {
  ir::LayoutQuery query;
  query.mesh = &stage_.lane;
  for (const int v : call.in) {
    const ir::Value& value = graph_.value(v);
    query.in.push_back(stage_.buffers[static_cast<size_t>(current(v))].layout);
    query.in_fixed.push_back(value.kind == ir::ValueKind::param);
    query.in_feed.push_back(value.kind == ir::ValueKind::feed);
    query.in_types.push_back(&value.type);
  }
  for (const int v : call.out)
    query.out_fixed.push_back(graph_.value(v).kind == ir::ValueKind::gradient ? stage_.buffers[static_cast<size_t>(current(v))].layout
                                                                              : layout::Layout{});
  return query;
}

void StageBuilder::add_call(const ir::Call& call) {
  const ir::LayoutQuery query = query_of(call);
  const ir::LayoutRule rule = call.op->layout(query);
  ir::Instr instr;
  instr.op = call.op;
  instr.unit = call.unit;
  instr.phase = call.phase;
  instr.in = inputs_of(call, query, rule, instr);
  for (int position = 0; position < stage_.lane.size(); ++position) {
    bool first = true;
    if (!rule.gives.empty())
      for (const int axis : rule.gives[0].partial) first = first && stage_.lane.coordinate(position, axis) == 0;
    instr.first_addend.push_back(first);
  }
  produce(call, rule, instr);
}

std::vector<int> StageBuilder::inputs_of(const ir::Call& call, const ir::LayoutQuery& query, const ir::LayoutRule& rule, ir::Instr& instr) {
  std::vector<int> in;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const int now = current(call.in[i]);
    if (query.in_fixed[i] && !(rule.needs[i] == query.in[i]))
      user_error("strategy \"{}\": {} must be whole for {}, but is cut {}. Remove it from \"splits\".", strategy_.name,
                 graph_.value(call.in[i]).name, call.op->name(), layout::to_string(stage_.lane, query.in[i]));
    in.push_back(rule.needs[i] == query.in[i] ? now : resharded(now, rule.needs[i], instr));
  }
  return in;
}

int StageBuilder::resharded(int from, const layout::Layout& to, const ir::Instr& place) {
  const int value = stage_.buffers[static_cast<size_t>(from)].value;
  const size_t known = stage_.buffers.size();
  const int made = buffer(value, to);
  if (static_cast<size_t>(made) < known) return made;
  const layout::Shape shape = unit_shape(graph_.value(value).type, stage_.lane.size());
  ir::Instr instr;
  instr.steps = layout::exchange(layout::expand(stage_.lane, stage_.buffers[static_cast<size_t>(from)].layout, shape),
                                 layout::expand(stage_.lane, to, shape));
  instr.in = {from};
  instr.out = {made};
  instr.unit = place.unit;
  instr.phase = place.phase;
  segment(place.phase).code.push_back(std::move(instr));
  return made;
}

void StageBuilder::produce(const ir::Call& call, const ir::LayoutRule& rule, ir::Instr& instr) {
  check(rule.gives.size() == call.out.size(), "{}: {} layouts for {} outputs", call.op->name(), rule.gives.size(), call.out.size());
  for (size_t i = 0; i < call.out.size(); ++i) {
    const ir::Value& value = graph_.value(call.out[i]);
    if (value.kind == ir::ValueKind::gradient) {
      instr.out.push_back(current(call.out[i]));
      record_gradient(value.param, rule.gives[i]);
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
  const bool is_loss = call.op->name() == "head_loss";
  if (is_loss) stage_.loss = instr.out[0];
  segment(call.phase).code.push_back(instr);
  for (size_t i = 0; i < call.out.size(); ++i) {
    const ir::Value& value = graph_.value(call.out[i]);
    if (value.role != "residual" || rule.gives[i] == residual_) continue;
    primary_[static_cast<size_t>(call.out[i])] = resharded(instr.out[i], residual_, instr);
  }
}

void StageBuilder::record_gradient(int param, const layout::Layout& grad) {
  for (const ir::ParamUse& use : stage_.params)
    if (use.param == param) {
      if (!(use.grad == grad))
        user_error("strategy \"{}\": the uses of {} leave its gradient in different layouts ({} and {}). Cut its dim 0 over all of tp.",
                   strategy_.name, graph_.param(param).name, layout::to_string(stage_.lane, use.grad),
                   layout::to_string(stage_.lane, grad));
      return;
    }
  layout::Layout used = grad;
  used.partial.clear();
  stage_.params.push_back({param, used, grad});
}

// What leaves the stage is in the residual layout. Parameters of a forward-only graph are recorded here, too.
void StageBuilder::find_boundaries() {
  const auto leaving = [&](ir::Phase phase) {
    int value = -1;
    for (size_t i = 0; i < graph_.calls().size(); ++i) {
      const ir::Call& call = graph_.calls()[i];
      if (!needed_[i] || here(call) || (call.phase == ir::Phase::F) != (phase == ir::Phase::F)) continue;
      if (phase == ir::Phase::F ? call.unit < stage_.end_unit : call.unit >= stage_.first_unit) continue;
      for (const int v : call.in) {
        const int made = primary_[static_cast<size_t>(v)];
        if (graph_.value(v).kind != ir::ValueKind::activation || made < 0 || made == stage_.act_in || made == stage_.grad_in) continue;
        check(value < 0 || value == v, "stage {}..{}: two values leave it", stage_.first_unit, stage_.end_unit);
        value = v;
      }
    }
    if (value < 0) return -1;
    ir::Instr place;
    place.unit = phase == ir::Phase::F ? stage_.end_unit - 1 : stage_.first_unit;
    place.phase = phase;
    const int now = primary_[static_cast<size_t>(value)];
    return stage_.buffers[static_cast<size_t>(now)].layout == residual_ ? now : resharded(now, residual_, place);
  };
  stage_.act_out = leaving(ir::Phase::F);
  stage_.grad_out = leaving(ir::Phase::B);
  for (const ir::Instr& instr : stage_.forward.code)
    for (const int b : instr.in) {
      const ir::Buffer& buffer = stage_.buffers[static_cast<size_t>(b)];
      if (buffer.kind != ir::ValueKind::param) continue;
      const int param = graph_.value(buffer.value).param;
      const bool known = std::any_of(stage_.params.begin(), stage_.params.end(), [&](const ir::ParamUse& u) { return u.param == param; });
      if (!known) stage_.params.push_back({param, buffer.layout, buffer.layout});
    }
  if (!has_gradients(graph_) && stage_.end_unit == graph_.units()) stage_.logits = stage_.forward.code.back().out[0];
  std::sort(stage_.params.begin(), stage_.params.end(), [](const ir::ParamUse& a, const ir::ParamUse& b) { return a.param < b.param; });
}

}  // namespace switchyard::compiler
