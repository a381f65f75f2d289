// In a program of switchyard: its ranks compute on the stand-in device where their job asks for CUDA.
#include <cstdio>
#include <cstdlib>

#include "device.hpp"
#include "train/host_share.hpp"

namespace switchyard::standin {
namespace {

constexpr int kFault = 70;  // the exit status where the device found a fault

const bool installed = [] {
  train::gpu_type() = device().type();
  expect_choices(true);
  std::at_quick_exit([] {
    const std::string fault = take_fault();
    if (fault.empty()) return;
    std::fprintf(stderr, "%s\n", fault.c_str());
    std::_Exit(kFault);
  });
  return true;
}();

}  // namespace
}  // namespace switchyard::standin
