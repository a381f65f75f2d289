#include "ir/operator.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>
#include <unordered_map>

#include "base/allocation.hpp"
#include "base/errors.hpp"

namespace switchyard::ir {
namespace {

using Axes = std::vector<int>;

struct Operand {
  std::vector<std::string> labels;
  std::vector<bool> whole;
  bool linear = false, decides_tokens = false;
};

std::vector<Operand> parse_side(std::string_view text) {
  std::vector<Operand> side;
  std::stringstream operands{std::string(text)};
  for (std::string part; std::getline(operands, part, ',');) {
    Operand operand;
    std::stringstream words(part);
    for (std::string word; words >> word;) {
      while (word[0] == '~' || word[0] == '@') {
        (word[0] == '~' ? operand.linear : operand.decides_tokens) = true;
        word.erase(0, 1);
      }
      const bool whole = word.back() == '!';
      if (whole) word.pop_back();
      operand.labels.push_back(word);
      operand.whole.push_back(whole);
    }
    side.push_back(std::move(operand));
  }
  return side;
}

struct Labels {
  std::vector<Operand> in, out;
};

// Operators of a model have few different lines, which are read once.
const Labels& parsed(const std::string& text) {
  thread_local std::unordered_map<std::string, Labels> known;
  const auto [it, fresh] = known.try_emplace(text);
  if (fresh) {
    const size_t arrow = text.find("->");
    it->second = {parse_side(std::string_view(text).substr(0, arrow)),
                  parse_side(std::string_view(text).substr(arrow + 2))};
  }
  return it->second;
}

void include(Axes& into, const Axes& axes) {
  for (const int a : axes)
    if (std::find(into.begin(), into.end(), a) == into.end()) into.push_back(a);
}

Axes without(const Axes& axes, const Axes& removed) {
  Axes left;
  for (const int a : axes)
    if (std::find(removed.begin(), removed.end(), a) == removed.end()) left.push_back(a);
  return left;
}

bool contains(const std::vector<Operand>& side, const std::string& label) {
  return std::any_of(side.begin(), side.end(), [&](const Operand& o) {
    return std::find(o.labels.begin(), o.labels.end(), label) != o.labels.end();
  });
}

class Propagation {
 public:
  Propagation(const std::string& labels, const LayoutQuery& query)
      : query_(query), in_(parsed(labels).in), out_(parsed(labels).out) {
    check(in_.size() == query.in.size(), "labels \"{}\" against {} inputs", labels, query.in.size());
    check(out_.size() == query.out_fixed.size(), "labels \"{}\" against {} outputs", labels, query.out_fixed.size());
  }

  LayoutRule rule() {
    decide_features();
    decide_tokens();
    Axes pending = decide_partial();
    LayoutRule rule;
    for (const Operand& operand : in_) {
      layout::Layout need = split_of(operand);
      if (operand.linear) need.partial = sorted(without(pending, summed(operand)));
      rule.needs.push_back(std::move(need));
    }
    for (const Operand& operand : out_) {
      layout::Layout give = split_of(operand);
      give.partial = sorted(pending);
      rule.gives.push_back(std::move(give));
    }
    return rule;
  }

 private:
  static Axes sorted(Axes axes) {
    std::sort(axes.begin(), axes.end());
    return axes;
  }

  void decide(const Operand& operand, const layout::Layout& layout, bool fixed) {
    for (size_t d = 0; d < operand.labels.size(); ++d) {
      const std::string& label = operand.labels[d];
      if (label == "T") continue;
      if (operand.whole[d]) {
        axes_[label] = {};
      } else if (fixed) {
        axes_.emplace(label, layout.split[d]);
      } else if (!axes_.contains(label) && !layout.split[d].empty()) {
        axes_[label] = layout.split[d];
      }
    }
  }

  void decide_features() {
    for (size_t i = 0; i < in_.size(); ++i)
      if (query_.in_fixed[i]) decide(in_[i], query_.in[i], true);
    for (size_t i = 0; i < out_.size(); ++i)
      if (!query_.out_fixed[i].split.empty()) decide(out_[i], query_.out_fixed[i], true);
    for (size_t i = 0; i < in_.size(); ++i)
      if (!query_.in_fixed[i]) decide(in_[i], query_.in[i], false);
  }

  // T is cut like the tokens of the deciding input, except by axes that other labels use.
  void decide_tokens() {
    Axes used;
    for (const auto& [label, axes] : axes_) include(used, axes);
    int decider = -1;
    for (size_t i = 0; i < in_.size(); ++i) {
      for (size_t d = 0; d < in_[i].labels.size(); ++d)
        if (in_[i].labels[d] == "T" && in_[i].whole[d]) {
          axes_["T"] = {};
          return;
        }
      const bool candidate = in_[i].labels[0] == "T" && !query_.in_fixed[i] && !query_.in_feed[i];
      if (candidate && (decider < 0 || in_[i].decides_tokens)) decider = static_cast<int>(i);
    }
    if (decider < 0) {
      const bool asked = !query_.out_roles.empty() && !query_.out_roles[0].split.empty();
      axes_["T"] = asked ? without(query_.out_roles[0].split[0], used) : Axes{};
      return;
    }
    const layout::Layout& layout = query_.in[static_cast<size_t>(decider)];
    if (in_[static_cast<size_t>(decider)].linear) include(used, layout.partial);
    axes_["T"] = without(layout.split[0], used);
  }

  Axes summed(const Operand& operand) const {
    Axes sum;
    for (const std::string& label : operand.labels)
      if (!contains(out_, label) && axes_.contains(label)) include(sum, axes_.at(label));
    return sum;
  }

  Axes cutting_results() const {
    Axes cutting;
    for (const Operand& operand : out_)
      for (const std::string& label : operand.labels)
        if (axes_.contains(label)) include(cutting, axes_.at(label));
    return cutting;
  }

  // A sum over an axis that cuts the result can't stay pending: it is reduced before the operator.
  Axes decide_partial() const {
    Axes pending;
    bool any_linear = false;
    for (size_t i = 0; i < in_.size(); ++i) {
      if (!in_[i].linear) continue;
      any_linear = true;
      const Axes& sums = query_.in[i].partial;
      if (without(sums, cutting_results()) == sums) include(pending, sums);
      include(pending, summed(in_[i]));
    }
    if (!any_linear)
      for (const Operand& operand : in_) include(pending, summed(operand));
    return pending;
  }

  layout::Layout split_of(const Operand& operand) const {
    layout::Layout layout;
    for (const std::string& label : operand.labels)
      layout.split.push_back(axes_.contains(label) ? axes_.at(label) : Axes{});
    return layout;
  }

  const LayoutQuery& query_;
  const std::vector<Operand>&in_, &out_;
  std::map<std::string, Axes> axes_;
};

}  // namespace

LayoutRule rule_from_labels(const std::string& labels, const LayoutQuery& query) {
  return Propagation(labels, query).rule();
}

std::vector<int> Operator::input_gradient(Graph&, const Call&, const std::vector<int>&, std::vector<int>&) const {
  throw InternalError(name_ + " has no input gradient");
}

void Operator::weight_gradient(Graph&, const Call&, const std::vector<int>&) const {}

bool Operator::is_remade(size_t) const { return false; }

std::string Operator::labels(const LayoutQuery&) const { throw InternalError(name_ + " has no labels"); }

Cost Operator::cost(std::span<const Type> in, std::span<const Type> out) const { return memory_bound(in, out); }

KeyBytes Operator::key_bytes(std::span<const Type>) const { return {}; }

i64 Operator::workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const {
  const bool has_loop = !by_operators(in, size) || (size.element_kernels && has_element_kernel());
  return has_loop ? 0 : temporaries(in, out, size.tokens);
}

i64 Operator::temporaries(std::span<const Type>, std::span<const Type>, i64) const { return 0; }

DType state_of(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

bool by_operators(std::span<const Type> in, const CallSize& size) {
  return size.sequences > 0 || std::ranges::count(in, DType::bf16, &Type::dtype) > 0;
}

i64 copy_bytes(const Type& type, i64 tokens, DType dtype) {
  return allocated(elements(type, {tokens}) * size_of(dtype));
}

i64 wide_bytes(const Type& type, i64 tokens) { return copy_bytes(type, tokens, state_of(type.dtype)); }

Cost memory_bound(std::span<const Type> in, std::span<const Type> out) {
  Cost cost;
  for (const auto side : {in, out})
    for (const Type& type : side) {
      const double bytes = static_cast<double>(elements(type, {1, 1})) * static_cast<double>(size_of(type.dtype));
      (has_dim(type, kTokens)           ? cost.bytes_per_token
       : has_dim(type, kSquaredLengths) ? cost.bytes_per_square
                                        : cost.bytes_fixed) += bytes;
    }
  cost.flops_per_token = cost.bytes_per_token / 4;
  return cost;
}

}  // namespace switchyard::ir
