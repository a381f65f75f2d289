#include "comm/nccl_library.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define SWITCHYARD_HAS_NCCL_HEADER
#endif

#include "base/errors.hpp"

namespace switchyard::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::string& path) {
  try {
    const NcclLibrary library(path);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

constexpr const char* kRemedy =
    "Install NCCL 2.19.0 or newer (Debian's libnccl2 or Python's nvidia-nccl-cu12), name its file in "
    "SWITCHYARD_NCCL, or set fabric.nccl = false.";

TEST(NcclLibrary, LoadsALibraryAndExplainsItsErrors) {
  const NcclLibrary library(STANDIN_NCCL);
  EXPECT_EQ(library.version(), "2.27.5");
  EXPECT_EQ(library.path(), STANDIN_NCCL);
  EXPECT_THAT(library.explain(nccl::Result::unhandled_cuda_error), HasSubstr("unhandled cuda error"));
}

TEST(NcclLibrary, TheEnvironmentMayNameIt) {
  setenv("SWITCHYARD_NCCL", STANDIN_NCCL_OLD, 1);
  const std::string named = refusal("");
  unsetenv("SWITCHYARD_NCCL");
  EXPECT_THAT(named, HasSubstr(std::string(STANDIN_NCCL_OLD) + " is NCCL 2.18.6"));
}

TEST(NcclLibrary, AMissingLibrarySaysWhereItWasSought) {
  EXPECT_THAT(refusal("/nowhere/libnccl.so.2"),
              AllOf(HasSubstr("devices need NCCL to exchange data, but it can't be loaded: /nowhere/libnccl.so.2: "),
                    HasSubstr(kRemedy)));
}

TEST(NcclLibrary, AMissingFunctionIsNamed) {
  EXPECT_EQ(refusal(STANDIN_NCCL_PARTIAL),
            std::string(STANDIN_NCCL_PARTIAL) + " has no ncclCommAbort: it is too old, or not NCCL. " + kRemedy);
}

TEST(NcclLibrary, AnOldLibraryIsRefused) {
  EXPECT_EQ(refusal(STANDIN_NCCL_OLD), std::string(STANDIN_NCCL_OLD) + " is NCCL 2.18.6, which is too old. " + kRemedy);
}

TEST(NcclLibrary, DeclaresWhatTheHeaderDeclares) {
#ifdef SWITCHYARD_HAS_NCCL_HEADER
  static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
  static_assert(static_cast<int>(nccl::Result::success) == ncclSuccess);
  static_assert(static_cast<int>(nccl::Result::unhandled_cuda_error) == ncclUnhandledCudaError);
  static_assert(static_cast<int>(nccl::Result::system_error) == ncclSystemError);
  static_assert(static_cast<int>(nccl::Result::internal_error) == ncclInternalError);
  static_assert(static_cast<int>(nccl::Result::invalid_argument) == ncclInvalidArgument);
  static_assert(static_cast<int>(nccl::Result::invalid_usage) == ncclInvalidUsage);
  static_assert(static_cast<int>(nccl::Result::remote_error) == ncclRemoteError);
  static_assert(static_cast<int>(nccl::Result::in_progress) == ncclInProgress);
  static_assert(sizeof(nccl::Result) == sizeof(ncclResult_t));
  static_assert(static_cast<int>(nccl::DataType::int8) == ncclInt8);
  static_assert(static_cast<int>(nccl::DataType::uint8) == ncclUint8);
  static_assert(static_cast<int>(nccl::DataType::int32) == ncclInt32);
  static_assert(static_cast<int>(nccl::DataType::int64) == ncclInt64);
  static_assert(static_cast<int>(nccl::DataType::float32) == ncclFloat32);
  static_assert(static_cast<int>(nccl::DataType::float64) == ncclFloat64);
  static_assert(static_cast<int>(nccl::DataType::bfloat16) == ncclBfloat16);
  static_assert(sizeof(nccl::DataType) == sizeof(ncclDataType_t));
  static_assert(static_cast<int>(nccl::RedOp::sum) == ncclSum);
  static_assert(sizeof(nccl::RedOp) == sizeof(ncclRedOp_t));
  static_assert(sizeof(nccl::Config) <= sizeof(ncclConfig_t));
  static_assert(offsetof(nccl::Config, magic) == offsetof(ncclConfig_t, magic));
  static_assert(offsetof(nccl::Config, version) == offsetof(ncclConfig_t, version));
  static_assert(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
  static_assert(offsetof(nccl::Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
  static_assert(offsetof(nccl::Config, net_name) == offsetof(ncclConfig_t, netName));
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(nccl::Config{}.magic, theirs.magic);
  EXPECT_EQ(nccl::kUnset, theirs.minCTAs);
  // Prototypes as they were when ours were written.
  static_assert(std::is_same_v<decltype(&ncclSend),
                               ncclResult_t (*)(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)>);
  static_assert(std::is_same_v<decltype(&ncclRecv),
                               ncclResult_t (*)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)>);
  static_assert(std::is_same_v<decltype(&ncclAllGather),
                               ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t)>);
  static_assert(
      std::is_same_v<decltype(&ncclReduceScatter), ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t,
                                                                    ncclRedOp_t, ncclComm_t, cudaStream_t)>);
  static_assert(std::is_same_v<decltype(&ncclAllReduce), ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t,
                                                                          ncclRedOp_t, ncclComm_t, cudaStream_t)>);
  static_assert(std::is_same_v<decltype(&ncclCommInitRankConfig),
                               ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*)>);
  static_assert(std::is_same_v<decltype(&ncclCommGetAsyncError), ncclResult_t (*)(ncclComm_t, ncclResult_t*)>);
  static_assert(std::is_same_v<decltype(&ncclCommAbort), ncclResult_t (*)(ncclComm_t)>);
  static_assert(std::is_same_v<decltype(&ncclCommFinalize), ncclResult_t (*)(ncclComm_t)>);
  static_assert(std::is_same_v<decltype(&ncclCommDestroy), ncclResult_t (*)(ncclComm_t)>);
  static_assert(std::is_same_v<decltype(&ncclGetLastError), const char* (*)(ncclComm_t)>);
#else
  GTEST_SKIP() << "no nccl.h and cuda_runtime.h here";
#endif
}

}  // namespace
}  // namespace switchyard::comm
