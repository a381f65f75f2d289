// `switchyard bench kernels`: each kernel alone at the shapes of a training step, and attention over packed documents.
#pragma once

#include <string>
#include <vector>

#include "config/model.hpp"

namespace switchyard::train {

/// A LLaMA in fp32, micro-batches of `tokens` tokens that hold documents of `seq`. seconds: least time that a kernel is
/// repeated for.
struct BenchKernelsSettings {
  config::ModelConfig model;
  i64 tokens = 4096, seq = 1024;
  int threads = 2;
  double seconds = 0.2;
};

/// seconds: the shortest of at least 5 calls. flops: useful arithmetic of a call, for kernels bound by it; bytes: what
/// it must read and write once, for the others.
struct KernelFigure {
  std::string name;
  double seconds = 0, flops = 0, bytes = 0;
};

/// A micro-batch of `tokens` tokens as `documents` documents of equal length. squared lengths: sum of squared lengths.
/// Seconds of forward and backward, as above.
struct PackedFigure {
  i64 documents = 0, squared_lengths = 0;
  double forward = 0, backward = 0;
};

/// matmul_flops: rate of a square matrix product of 1024; copy_bytes: read and written a second by a copy of 64 MiB.
/// packed: from one document to many short ones; work that follows the squared lengths takes time in proportion to
/// them.
struct BenchKernelsResult {
  double matmul_flops = 0, copy_bytes = 0;
  std::vector<KernelFigure> kernels{};
  std::vector<PackedFigure> packed{};
  /// Of the rate that bounds the kernel. Above 1 where the caches hold what the kernel reads and the copy's they don't.
  double share(const KernelFigure& figure) const;
};

/// UserError if tokens, seq or threads are below 1.
BenchKernelsResult bench_kernels(const BenchKernelsSettings& settings);
/// The figures as lines of text.
std::string table(const BenchKernelsResult& result);

}  // namespace switchyard::train
