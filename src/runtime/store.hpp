// The parameter store of one rank: home (master weights, moments, gradients, image) and banks, the parameters and gradient
// accumulators of a strategy, unit by unit.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "compiler/holdings.hpp"
#include "kernels/optimizer.hpp"

namespace switchyard::runtime {

/// One box of a parameter at home, and its pieces in the unit's flat tensors.
struct HomeShard {
  int param = 0;
  layout::Box box;
  at::Tensor master, m, v, grad, image;  // shaped like the box; image is master where the precisions agree
};

/// Home's part of a unit; flat tensors hold the shards one after another. owned: the gradients that no other rank counts.
struct HomeUnit {
  std::vector<HomeShard> shards;
  at::Tensor master, m, v, grad, image;
  std::vector<at::Tensor> owned;
};

/// Borrowed parameters of a unit under a strategy: param -> the rank's shard. Each group has memory of its own, so that one which
/// the next strategy keeps holds no other.
struct Bank {
  std::map<int, at::Tensor> params;
};

/// What an optimizer step needs besides the gradients.
struct UpdateSettings {
  kernels::AdamW adamw;  // lr, betas, eps, step; weight_decay applies to parameters of two or more dims
  double clip = 1;
};

class Store {
 public:
  /// Fills a box of a parameter with initial values (state dtype, host memory).
  using Initial = std::function<void(int param, const layout::Box& box, at::Tensor values)>;

  Store(const compiler::Plans& plans, int rank, at::Device device);
  /// Sets master (and image) of every home shard; moments and gradients become zero.
  void initialize(const Initial& initial);

  std::vector<HomeUnit>& home() { return home_; }
  const std::vector<HomeUnit>& home() const { return home_; }

  // Banks. `key` tells phases of a step apart. All thread-safe.
  /// Makes the bank of a unit: views of home's image or of the previous phase's tensors where boxes are equal, else room, into
  /// which pieces that the rank has are copied. previous: strategy and key of the phase before, strategy -1: none.
  struct PhaseKey {
    int strategy = -1, phase = -1;
  };
  void prepare(PhaseKey phase, PhaseKey previous, int unit);
  void drop_bank(PhaseKey phase, int unit);
  at::Tensor param(PhaseKey phase, int param) const;
  /// The accumulator, made and zeroed at first use.
  at::Tensor gradient(PhaseKey phase, int param);
  bool has_gradient(PhaseKey phase, int param) const;
  void drop_gradients(PhaseKey phase, int unit);

  const compiler::Holdings& holdings() const { return holdings_; }
  /// A view of `box` for sending: from the previous phase's bank, home's image, or the bank of the phase itself.
  at::Tensor source(PhaseKey phase, PhaseKey previous, int param, const layout::Box& box) const;
  /// Home's shard that contains `box`; InternalError if none does.
  HomeShard& home_shard(int param, const layout::Box& box);

  /// AdamW on home's part of a unit; zeroes its gradients.
  void update(int unit, const UpdateSettings& settings);
  /// Sum of squares of the gradients that this rank owns, fp64.
  double gradient_squares() const;
  void zero_gradients();

 private:
  std::vector<at::Tensor> owned_gradients(const HomeUnit& home) const;
  const Bank& bank(PhaseKey phase, int unit) const;
  void copy_held(at::Tensor& target, int param, const layout::Box& box, PhaseKey previous) const;
  int unit_of(int param) const { return plans_.graph().param(param).unit; }

  const compiler::Plans& plans_;
  compiler::Holdings holdings_;
  at::Device device_;
  std::vector<HomeUnit> home_;
  mutable std::mutex mutex_;
  std::map<std::pair<int, int>, Bank> banks_;                        // phase, unit
  std::map<std::pair<int, int>, std::map<int, at::Tensor>> grads_;   // phase, unit -> param
};

}  // namespace switchyard::runtime
