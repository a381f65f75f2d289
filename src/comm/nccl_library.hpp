// NCCL, loaded at run time: it is not needed to build, and ranks without devices run without it.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

namespace switchyard::comm {

/// The part of nccl.h that is used, declared here because NVIDIA's package with the header has hundreds of megabytes.
/// Source: github.com/NVIDIA/nccl, src/nccl.h.in. The library keeps its binary interface: structures grow at their end
/// and say their size and version.
namespace nccl {

/// Opaque.
struct Communicator;

struct UniqueId {
  char internal[128];
};

enum class Result : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};

enum class DataType : int { int8 = 0, uint8 = 1, int32 = 2, int64 = 4, float32 = 7, float64 = 8, bfloat16 = 9 };

enum class RedOp : int { sum = 0 };

inline constexpr int kUnset = INT_MIN;

/// ncclConfig_t as it was in version 2.17: later libraries take it.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21700;
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;
  int max_ctas = kUnset;
  const char* net_name = nullptr;
};

}  // namespace nccl

/// The functions of a loaded library, named as there. Streams are cudaStream_t.
class NcclLibrary {
 public:
  /// Oldest version that is taken: in those before, abort() on one thread frees what a call on another has begun, and
  /// still uses (ncclGroupJobAbort in their src/group.cc).
  static constexpr int kOldest = 21900;

  /// Loads the library at `path`, or of this name where the system looks for libraries; empty: what SWITCHYARD_NCCL
  /// names, else libnccl.so.2. It stays loaded. UserError, with what to do, if there is none, if it lacks a function,
  /// or if it is older than kOldest.
  explicit NcclLibrary(const std::string& path);

  const std::string& path() const { return path_; }
  /// "2.27.5".
  std::string version() const;
  /// What a result means, and what the library says of its last error.
  std::string explain(nccl::Result result) const;

  nccl::Result (*GetUniqueId)(nccl::UniqueId*) = nullptr;
  nccl::Result (*CommInitRankConfig)(nccl::Communicator**, int, nccl::UniqueId, int, nccl::Config*) = nullptr;
  nccl::Result (*CommFinalize)(nccl::Communicator*) = nullptr;
  nccl::Result (*CommDestroy)(nccl::Communicator*) = nullptr;
  nccl::Result (*CommAbort)(nccl::Communicator*) = nullptr;
  nccl::Result (*CommGetAsyncError)(nccl::Communicator*, nccl::Result*) = nullptr;
  nccl::Result (*Send)(const void*, std::size_t, nccl::DataType, int, nccl::Communicator*, void*) = nullptr;
  nccl::Result (*Recv)(void*, std::size_t, nccl::DataType, int, nccl::Communicator*, void*) = nullptr;
  nccl::Result (*AllGather)(const void*, void*, std::size_t, nccl::DataType, nccl::Communicator*, void*) = nullptr;
  nccl::Result (*ReduceScatter)(const void*, void*, std::size_t, nccl::DataType, nccl::RedOp, nccl::Communicator*,
                                void*) = nullptr;
  nccl::Result (*AllReduce)(const void*, void*, std::size_t, nccl::DataType, nccl::RedOp, nccl::Communicator*,
                            void*) = nullptr;
  nccl::Result (*GroupStart)() = nullptr;
  nccl::Result (*GroupEnd)() = nullptr;

 private:
  nccl::Result (*GetVersion)(int*) = nullptr;
  const char* (*GetErrorString)(nccl::Result) = nullptr;
  const char* (*GetLastError)(nccl::Communicator*) = nullptr;

  std::string path_;
  int version_ = 0;
};

}  // namespace switchyard::comm
