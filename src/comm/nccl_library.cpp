#include "comm/nccl_library.hpp"

#include <dlfcn.h>

#include "base/environment.hpp"
#include "base/errors.hpp"

namespace switchyard::comm {
namespace {

// Versions before 2.9 were numbered in another way; all of them are too old.
std::string text_of(int version) {
  const int unit = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / unit, version % unit / 100, version % 100);
}

std::string remedy() {
  return fmt::format(
      "Install NCCL {} or newer (Debian's libnccl2 or Python's nvidia-nccl-cu12), name its file in SWITCHYARD_NCCL, or "
      "set fabric.nccl = false.",
      text_of(NcclLibrary::kOldest));
}

}  // namespace

NcclLibrary::NcclLibrary(const std::string& path)
    : path_(path.empty() ? environment("SWITCHYARD_NCCL").value_or("libnccl.so.2") : path) {
  void* library = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) user_error("devices need NCCL to exchange data, but it can't be loaded: {}. {}", dlerror(), remedy());
  const auto find = [&]<class Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (!function) user_error("{} has no {}: it is too old, or not NCCL. {}", path_, name, remedy());
  };
  find(GetVersion, "ncclGetVersion");
  if (GetVersion(&version_) != nccl::Result::success || version_ < kOldest)
    user_error("{} is NCCL {}, which is too old. {}", path_, text_of(version_), remedy());
  find(GetUniqueId, "ncclGetUniqueId");
  find(CommInitRankConfig, "ncclCommInitRankConfig");
  find(CommFinalize, "ncclCommFinalize");
  find(CommDestroy, "ncclCommDestroy");
  find(CommAbort, "ncclCommAbort");
  find(CommGetAsyncError, "ncclCommGetAsyncError");
  find(Send, "ncclSend");
  find(Recv, "ncclRecv");
  find(AllGather, "ncclAllGather");
  find(ReduceScatter, "ncclReduceScatter");
  find(AllReduce, "ncclAllReduce");
  find(GroupStart, "ncclGroupStart");
  find(GroupEnd, "ncclGroupEnd");
  find(GetErrorString, "ncclGetErrorString");
  find(GetLastError, "ncclGetLastError");
}

std::string NcclLibrary::version() const { return text_of(version_); }

std::string NcclLibrary::explain(nccl::Result result) const {
  const char* last = GetLastError(nullptr);
  const std::string text = GetErrorString(result);
  return last && *last ? fmt::format("{}: {}", text, last) : text;
}

}  // namespace switchyard::comm
