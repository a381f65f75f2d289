#include "ir/autodiff.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "ir/operators/add.hpp"

namespace switchyard::ir {
namespace {

class Differentiation {
 public:
  explicit Differentiation(Graph& graph) : graph_(graph) {}

  void run() {
    const std::vector<Call> forward = graph_.calls();
    mark_differentiable(forward);
    for (size_t i = forward.size(); i-- > 0;) backward(forward[i], i + 1 == forward.size());
  }

 private:
  // A value has a gradient if it depends on a parameter.
  void mark_differentiable(const std::vector<Call>& forward) {
    differentiable_.assign(graph_.values().size(), false);
    for (size_t v = 0; v < graph_.values().size(); ++v)
      differentiable_[v] = graph_.value(static_cast<int>(v)).kind == ValueKind::param;
    for (const Call& call : forward) {
      const bool any =
          std::any_of(call.in.begin(), call.in.end(), [&](int v) { return differentiable_[static_cast<size_t>(v)]; });
      for (const int v : call.out) differentiable_[static_cast<size_t>(v)] = any;
    }
    gradient_.assign(graph_.values().size(), -1);
  }

  void backward(const Call& call, bool is_loss) {
    std::vector<int> dy;
    for (const int v : call.out) dy.push_back(gradient_[static_cast<size_t>(v)]);
    if (!is_loss && std::all_of(dy.begin(), dy.end(), [](int g) { return g < 0; })) return;
    graph_.set_unit(call.unit);
    graph_.set_pass(Pass::B);
    std::vector<int> existing;
    for (const int v : call.in) existing.push_back(is_activation(v) ? gradient_[static_cast<size_t>(v)] : -1);
    if (std::any_of(call.in.begin(), call.in.end(), [&](int v) { return is_activation(v); }) || is_loss) {
      const std::vector<int> gradients = call.op->input_gradient(graph_, call, dy, existing);
      for (size_t i = 0; i < call.in.size(); ++i) accumulate(call.in[i], gradients[i], existing[i]);
    }
    graph_.set_pass(Pass::W);
    call.op->weight_gradient(graph_, call, dy);
  }

  bool is_activation(int v) const {
    return graph_.value(v).kind == ValueKind::activation && differentiable_[static_cast<size_t>(v)];
  }

  void accumulate(int value, int gradient, int existing) {
    if (gradient < 0 || !is_activation(value)) return;
    int& slot = gradient_[static_cast<size_t>(value)];
    slot = existing < 0
               ? gradient
               : graph_.call(std::make_shared<Add>(), {existing, gradient}, "d " + graph_.value(value).name)[0];
    if (const layout::Role role = graph_.value(value).role; role != layout::Role::none) graph_.set_role(slot, role);
  }

  Graph& graph_;
  std::vector<bool> differentiable_;
  std::vector<int> gradient_;
};

}  // namespace

void differentiate(Graph& graph) {
  check(!graph.calls().empty(), "differentiate: the graph has no calls");
  Differentiation(graph).run();
}

bool is_differentiated(const Graph& graph) {
  return std::ranges::any_of(graph.calls(), [](const Call& call) { return call.pass != Pass::F; });
}

}  // namespace switchyard::ir
