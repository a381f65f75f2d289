// AdamW with decoupled decay (arXiv 1711.05101) and sums of squares, on flat tensors.
#pragma once

namespace at {
class Tensor;
}  // namespace at

namespace switchyard::kernels {

struct AdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  long step = 1;  // 1 for the first update
};

/// One pass over n elements, in this order, with g = grad * clip:
///   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
///   p -= lr * decay * p + lr * (m / (1 - b1^step)) / (sqrt(v / (1 - b2^step)) + eps)
/// In fp32 a factor 1 - lr * decay would have few digits of lr * decay, or none below 3e-8. (On devices the update is
/// libtorch's, which rounds after the decay as well.)
/// p, m, v, grad (n) in the state dtype; grad may be changed.   compute_copy (n): p in compute precision, written if it
/// is defined and not the same memory as p
void adamw(at::Tensor& p, at::Tensor& m, at::Tensor& v, at::Tensor& compute_copy, const at::Tensor& grad,
           const AdamW& settings, double clip);
/// total (1, fp64, on the same device) += sum of squares of a flat tensor in fp64, in a fixed order that does not
/// depend on the number of threads. NaN/inf propagate.
void add_sum_of_squares(at::Tensor& total, const at::Tensor& x);

}  // namespace switchyard::kernels
