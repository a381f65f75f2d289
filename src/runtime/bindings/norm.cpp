#include "kernels/norm.hpp"

#include "ir/operators/layer_norm.hpp"
#include "ir/operators/rms_norm.hpp"
#include "runtime/statistics.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

at::Tensor optional_input(const KernelCall& call, size_t index) {
  return index < call.in.size() ? call.in[index] : at::Tensor();
}

// The kernels expect statistics with one column as vectors.
at::Tensor column(const at::Tensor& statistics) {
  return statistics.size(1) == 1 ? statistics.select(1, 0) : statistics;
}

// Features of an input over all ranks.
i64 features(const KernelCall& call, size_t input) {
  return call.stage.buffers[static_cast<size_t>(call.instr.in[input])].type.shape.size[1];
}

// The gradient of a norm of rows that lie on several ranks. mean: undefined for RMSNorm.
void run_norm_dx(KernelCall& call, const StatisticRanks& ranks, const at::Tensor& mean, const at::Tensor& rstd,
                 const at::Tensor& residual) {
  const at::Tensor &dy = call.in[0], &x = call.in[1], &w = call.in[2];
  at::Tensor terms = empty({mean.defined() ? 2 : 1, x.size(0)}, call.state, x.device());
  kernels::norm_dx_terms(terms, dy, x, w, mean, rstd, features(call, 1));
  ranks.sum("norm gradient", terms);
  kernels::norm_dx_rows(call.out[0], dy, x, w, mean, rstd, terms, residual);
}

}  // namespace

void run_rms_norm(KernelCall& call) {
  if (const StatisticRanks ranks(call); ranks) {
    at::Tensor rstd = column(call.out[1]);
    kernels::norm_variance(rstd, call.in[0], {}, features(call, 0));
    ranks.sum("norm variance", rstd);
    return kernels::norm_rows(call.out[0], rstd, call.in[0], call.in[1], {}, {}, call.op<ir::RmsNorm>().eps());
  }
  kernels::rms_norm(call.out[0], call.out[1], call.in[0], call.in[1], call.op<ir::RmsNorm>().eps());
}

void run_rms_norm_dx(KernelCall& call) {
  if (const StatisticRanks ranks(call); ranks)
    return run_norm_dx(call, ranks, {}, column(call.in[3]), optional_input(call, 4));
  kernels::rms_norm_dx(call.out[0], call.in[0], call.in[1], call.in[2], call.in[3], optional_input(call, 4));
}

void run_rms_norm_dw(KernelCall& call) { kernels::rms_norm_dw(call.out[0], call.in[0], call.in[1], call.in[2]); }

void run_layer_norm(KernelCall& call) {
  at::Tensor mean = column(call.out[1]), rstd = column(call.out[2]);
  if (const StatisticRanks ranks(call); ranks) {
    kernels::norm_mean(mean, call.in[0], features(call, 0));
    ranks.sum("norm mean", mean);
    kernels::norm_variance(rstd, call.in[0], mean, features(call, 0));
    ranks.sum("norm variance", rstd);
    return kernels::norm_rows(call.out[0], rstd, call.in[0], call.in[1], call.in[2], mean,
                              call.op<ir::LayerNorm>().eps());
  }
  kernels::layer_norm(call.out[0], mean, rstd, call.in[0], call.in[1], call.in[2], call.op<ir::LayerNorm>().eps());
}

void run_layer_norm_dx(KernelCall& call) {
  if (const StatisticRanks ranks(call); ranks)
    return run_norm_dx(call, ranks, column(call.in[3]), column(call.in[4]), optional_input(call, 5));
  kernels::layer_norm_dx(call.out[0], call.in[0], call.in[1], call.in[2], column(call.in[3]), column(call.in[4]),
                         optional_input(call, 5));
}

void run_layer_norm_dw(KernelCall& call) {
  kernels::layer_norm_dw(call.out[0], call.out[1], call.in[0], call.in[1], column(call.in[2]), column(call.in[3]));
}

}  // namespace switchyard::runtime
