// `switchyard bench kernels`: each kernel alone at the shapes of a training step, and attention over packed documents.
#pragma once

#include <string>
#include <vector>

#include "config/model.hpp"

namespace switchyard::train {

/// A LLaMA in fp32, micro-batches of `tokens` tokens that hold documents of `seq` tokens. seconds: minimum time for
/// which each kernel is repeated.
struct BenchKernelsSettings {
  config::ModelConfig model;
  i64 tokens = 4096, seq = 1024;
  int threads = 2;
  double seconds = 0.2;
};

/// seconds: the shortest of at least 5 calls. flops: useful flops of a call, for compute-bound kernels; bytes: minimum
/// memory traffic, for the others.
struct KernelFigure {
  std::string name;
  double seconds = 0, flops = 0, bytes = 0;
};

/// A micro-batch of `tokens` tokens as `documents` documents of equal length. squared_lengths: sum of their squared
/// lengths. forward, backward: seconds, measured as above.
struct PackedFigure {
  i64 documents = 0, squared_lengths = 0;
  double forward = 0, backward = 0;
};

/// matmul_flops: flops per second of a square matrix product of size 1024; copy_bytes: bytes read and written per
/// second by a copy of 64 MiB. packed: from one document to many short ones; the time of work that follows the squared
/// lengths is proportional to them.
struct BenchKernelsResult {
  double matmul_flops = 0, copy_bytes = 0;
  std::vector<KernelFigure> kernels{};
  std::vector<PackedFigure> packed{};
  /// Share of the rate that bounds the kernel; above 1 where the kernel's data fits the caches and the copy's does not.
  double share(const KernelFigure& figure) const;
};

/// UserError if tokens, seq or threads are below 1.
BenchKernelsResult bench_kernels(const BenchKernelsSettings& settings);
/// The figures as lines of text.
std::string table(const BenchKernelsResult& result);

}  // namespace switchyard::train
