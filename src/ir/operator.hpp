// The operator contract: shape, layout, gradient and cost, in one file per operator (src/ir/operators). Kernels are
// joined to operators by name in runtime/bindings.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/allocation.hpp"
#include "ir/graph.hpp"
#include "layout/layout.hpp"

namespace switchyard::ir {

/// Cost of one call: linear in T, in the number of query-key pairs of a micro-batch (causal attention), and in the
/// squared lengths of its documents. Flops count a multiply and an add as two.
struct Cost {
  double flops_per_token = 0, flops_per_pair = 0, flops_per_square = 0;
  double bytes_per_token = 0, bytes_per_square = 0, bytes_fixed = 0;  // moved to and from memory
  double bytes_accumulated = 0;          // traffic of adding a product's result to its accumulators
  double bytes_after_per_token = 0;      // other memory traffic after the products
  double bytes_converted_per_token = 0;  // the same where libtorch's operators do it, which convert elements
  double narrowest = 0;                  // smallest dim, other than T, of the matrix products; 0: no products
  bool backward = false;                 // attention gradients, for which devices have their own rate
};

/// What a call works on, on one rank: tokens of its local shards; keys that its queries see of a document at most; with
/// ring attention the rows of memory for keys of other ring ranks, 0 where none come, and whether attention is computed
/// block by block as they come. sequences: on a device, about those that flash attention has; 0: on a CPU.
/// element_kernels: the device has kernels of ours for elements (kernels/element_works.hpp). in_ring: other ring ranks
/// may see the rank's keys.
struct CallSize {
  i64 tokens = 0, longest = 0, seen_keys = 0;
  bool in_steps = false;
  i64 sequences = 0;
  bool element_kernels = false, in_ring = false;
  auto operator<=>(const CallSize&) const = default;
};

/// Bytes of the keys and values of a token on one rank, which go to the ring ranks whose queries see them, and of their
/// gradients, which come back in the state dtype. columns: of a token's keys, and of its values, which are messages of
/// their own.
struct KeyBytes {
  i64 values = 0, gradients = 0;
  i64 columns = 0;
  DType type = DType::f32, gradient_type = DType::f32;
  i64 all() const { return values + gradients; }
};

/// Input of a layout rule: the current layouts of the inputs, on the mesh of one replica of a stage. The layouts of
/// parameters and gradient accumulators are fixed by the strategy; `out_fixed` has one entry per output: the layout of
/// an accumulator, or an empty one where the output is free. A rule that answers with cuts other than the fixed ones
/// states that the operator can't compute with them. out_roles: the layouts that the roles of outputs ask for; empty
/// where there is none.
struct LayoutQuery {
  const layout::Mesh* mesh = nullptr;
  std::vector<layout::Layout> in;
  std::vector<bool> in_fixed, in_feed;
  std::vector<const Type*> in_types;
  std::vector<layout::Layout> out_fixed, out_roles{};
};
struct LayoutRule {
  std::vector<layout::Layout> needs, gives;
};

/// The rule that a line of labels states, e.g. "T i, o i -> T o". A label in inputs and outputs may be cut by any axis.
/// A label in inputs only is summed over: if it is cut, the result is partial. Marks: `h!`: the dim must be whole; `~`
/// before an input: the operator is linear in it, so partial sums pass through; `@` before an input: its tokens' cut
/// decides that of T. Fixed operands decide their labels; where several share a label, the first one does. T is not cut
/// by axes that other labels use. Where no input decides about T, the role of the first output does.
/// Source: GSPMD (arXiv 2105.04663), einsum propagation.
LayoutRule rule_from_labels(const std::string& labels, const LayoutQuery& query);

class Operator;

/// Two operators that together replace one that computes the gradients of its inputs and adds that of a weight (its
/// second input and last output). `inputs` has the same inputs and outputs, except that the weight's gradient is
/// replaced by a value with one feature per row of the weight; `weights` computes the weight's gradient from this value
/// and the operator's first input.
struct Halves {
  std::shared_ptr<const Operator> inputs, weights;
};

/// An operator that reduces over a dim (a softmax over the rows of a weight, a norm over features): where ranks have
/// parts of this dim, they sum statistics of each token inside the operator.
struct StatisticSums {
  size_t cut = 0, dim = 0;       // the input and its dim
  size_t statistics = 0;         // an operand by tokens, inputs before outputs, whose dtype the statistics have
  std::vector<i64> per_token{};  // statistics of a token in each of the sums, which follow each other
  i64 chunk = 0;                 // tokens whose statistics are summed at a time; 0: all
};

class Operator {
 public:
  explicit Operator(std::string name) : name_(std::move(name)) {}
  virtual ~Operator() = default;
  const std::string& name() const { return name_; }

  /// Output types, without accumulators.
  virtual std::vector<Type> shape(std::span<const Type> in) const = 0;
  virtual LayoutRule layout(const LayoutQuery& query) const { return rule_from_labels(labels(query), query); }
  /// The role in which inputs are read that are activations by tokens, if it isn't their own: the query has its
  /// layouts.
  virtual layout::Role reads_as() const { return layout::Role::none; }
  /// Gradients of the inputs (-1: none), as calls appended to `graph`. dy[i]: gradient of output i, or -1. existing[i]:
  /// the gradient of input i so far, or -1; an operator that adds it to its own result sets existing[i] to -1.
  virtual std::vector<int> input_gradient(Graph& graph, const Call& call, const std::vector<int>& dy,
                                          std::vector<int>& existing) const;
  /// Adds the parameters' gradients to their accumulators.
  virtual void weight_gradient(Graph& graph, const Call& call, const std::vector<int>& dy) const;
  /// Cost on one rank; `in` and `out` are the types of its local shards.
  virtual Cost cost(std::span<const Type> in, std::span<const Type> out) const;
  /// The most that the kernel's temporaries take on one rank, in bytes. By default nothing where the kernel is a loop
  /// of ours, and otherwise what temporaries() says.
  virtual i64 workspace(std::span<const Type> in, std::span<const Type> out, const CallSize& size) const;
  /// What ring ranks pass to one another of a token's keys and values, if the operator reads any.
  virtual KeyBytes key_bytes(std::span<const Type> in) const;
  /// For schedules that run weight gradients separately; empty if they are separate calls anyway.
  virtual Halves halves() const { return {}; }
  /// Name of the operator whose measured times predict this one's, in proportion to work.
  virtual const std::string& measured_as() const { return name(); }
  /// The output that is the loss of each token; nothing: none is.
  virtual std::optional<size_t> loss_output() const { return std::nullopt; }
  /// Features of a head whose positions it turns by tables of angles; 0: it reads no such tables.
  virtual i64 rotary_head_dim() const { return 0; }
  /// Whether these tables are those of a micro-batch, with a row for each of its tokens.
  virtual bool rotates_by_document() const { return false; }
  /// Features of a head whose attention it computes without storing scores; 0: it computes none.
  virtual i64 fused_head_dim() const { return 0; }
  /// on_device: its kernel is that of devices.
  virtual std::optional<StatisticSums> statistic_sums(bool /*on_device*/) const { return std::nullopt; }
  /// Whether selective recomputation makes an output again instead of keeping it.
  virtual bool is_remade(size_t output) const;
  /// Whether a kernel of ours for elements computes it where a device has these.
  virtual bool has_element_kernel() const { return false; }
  /// Whether results depend on the seed and the step.
  virtual bool is_random() const { return false; }
  /// Inputs (of backward calls) that should be adjacent in one buffer, so that one matrix product reads them.
  virtual std::vector<int> adjacent_inputs() const { return {}; }
  /// The same for outputs.
  virtual std::vector<int> adjacent_outputs() const { return {}; }

 protected:
  virtual std::string labels(const LayoutQuery& query) const;
  /// Workspace of a kernel that is a sequence of libtorch's operators, for local tensors of so many tokens.
  virtual i64 temporaries(std::span<const Type> in, std::span<const Type> out, i64 tokens) const;

 private:
  std::string name_;
};

/// In which kernels compute statistics and sums: fp64 for fp64, otherwise fp32.
DType state_of(DType compute);

/// Whether a kernel without one of ours for elements is a sequence of libtorch's operators: in bf16, where these
/// compute on copies in fp32, and on devices.
bool by_operators(std::span<const Type> in, const CallSize& size);

/// Bytes of a copy of a tensor of so many tokens, in another dtype.
i64 copy_bytes(const Type& type, i64 tokens, DType dtype);
/// The same, in the dtype of statistics.
i64 wide_bytes(const Type& type, i64 tokens);

/// Bytes of a constant that an operator of libtorch is given: as given, and converted.
inline constexpr i64 kConstantBytes = 2 * kAllocationAlignment;

/// Bytes of all operands per token and fixed: the default cost of a memory-bound operator.
Cost memory_bound(std::span<const Type> in, std::span<const Type> out);

}  // namespace switchyard::ir
