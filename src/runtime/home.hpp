// Home: the optimizer's part of the parameters on one rank. Every element's master weight, moments and summed gradient
// lie on the rank that owns it, whatever strategies compute with it. Without an optimizer, as in an evaluation, only
// its compute copy does.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "compiler/holdings.hpp"
#include "kernels/optimizer.hpp"

namespace switchyard::runtime {

/// One box of a parameter at home, and its pieces in the unit's flat tensors. All but the compute copy are undefined
/// without an optimizer.
struct HomeShard {
  int param = 0;
  layout::Box box{};
  at::Tensor master{}, m{}, v{}, grad{},
      compute_copy{};  // shaped like the box; compute copy is master where the precisions agree
};

/// Home's part of a unit; flat tensors hold the shards one after another. owned: the gradients that no other rank
/// counts.
struct HomeUnit {
  std::vector<HomeShard> shards;
  at::Tensor master, m, v, grad, compute_copy;
  std::vector<at::Tensor> owned;
};

/// Inputs of an optimizer step besides the gradients.
struct UpdateSettings {
  kernels::AdamW adamw;  // lr, betas, eps, step; weight_decay applies to parameters of two or more dims
  double clip = 1;
};

/// A rank's part of home. Its tensors stay where they are, so views of them (working parameters, gradients to add to)
/// hold from step to step. It has no locks: the program orders who writes what.
class Home {
 public:
  /// Fills a box of a parameter with initial values (contiguous, host memory; of the state dtype, or the compute dtype
  /// without an optimizer).
  using Initial = std::function<void(int param, const layout::Box& box, at::Tensor values)>;

  /// Makes all tensors zero, those that the holdings name. Refers to plans and holdings.
  Home(const compiler::Plans& plans, const compiler::Holdings& holdings, at::Device device);
  /// Sets master and compute copy of every shard; moments and gradients become zero. On a CPU it takes no memory.
  void initialize(const Initial& initial);

  std::vector<HomeUnit>& units() { return units_; }
  const std::vector<HomeUnit>& units() const { return units_; }
  const std::vector<HomeShard>& shards_with(int param) const {
    return units_[static_cast<size_t>(plans_.graph().param(param).unit)].shards;
  }
  /// The shard that contains `box`; null if none does.
  const HomeShard* find(int param, const layout::Box& box) const;
  /// The same; InternalError if none does.
  const HomeShard& shard(int param, const layout::Box& box) const;

  /// AdamW on this rank's part of a unit; zeroes its gradients. This and all of gradients is for homes with an
  /// optimizer.
  void update(int unit, const UpdateSettings& settings);
  /// total (1, fp64, on home's device) += sum of squares of the gradients that this rank owns.
  void add_gradient_squares(at::Tensor& total) const;
  void zero_gradients();

 private:
  std::vector<at::Tensor> owned_gradients(const HomeUnit& unit) const;

  const compiler::Plans& plans_;
  const compiler::Holdings& holdings_;
  std::vector<HomeUnit> units_;
};

}  // namespace switchyard::runtime
