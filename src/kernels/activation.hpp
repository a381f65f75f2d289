// Elementwise operators of the feed-forward block on (T, F) tensors, which may have a row stride.
#pragma once

namespace at {
class Tensor;
}  // namespace at

namespace switchyard::kernels {

/// h = silu(gate) * up.
void swiglu(at::Tensor& h, const at::Tensor& gate, const at::Tensor& up);
/// dgate = dh * up * silu'(gate),  dup = dh * silu(gate).
void swiglu_dx(at::Tensor& dgate, at::Tensor& dup, const at::Tensor& dh, const at::Tensor& gate, const at::Tensor& up);
/// y = gelu(x), tanh form (GPT-2's gelu_new) or exact (erf).
void gelu(at::Tensor& y, const at::Tensor& x, bool tanh_form);
void gelu_dx(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& x, bool tanh_form);
/// y = a + b; y may be a or b.
void add(at::Tensor& y, const at::Tensor& a, const at::Tensor& b);

}  // namespace switchyard::kernels
