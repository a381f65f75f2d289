# With SWITCHYARD_UNITY, the headers that most files of a target include are precompiled. Without it every file is
# compiled alone, with just the headers that it names, so that a missing #include is found there.
set(SWITCHYARD_STD_HEADERS <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstring>
    <deque> <filesystem> <fstream> <functional> <iterator> <limits> <map> <memory> <mutex> <numeric> <optional> <random>
    <set> <span> <sstream> <string> <string_view> <thread> <tuple> <unordered_map> <utility> <variant> <vector>)
set(SWITCHYARD_PRECOMPILED_layers ${SWITCHYARD_STD_HEADERS} <fmt/format.h> <nlohmann/json.hpp>)
set(SWITCHYARD_PRECOMPILED_covered_layers ${SWITCHYARD_PRECOMPILED_layers})
set(SWITCHYARD_PRECOMPILED_tests ${SWITCHYARD_PRECOMPILED_layers} <gmock/gmock.h> <gtest/gtest.h>)
set(SWITCHYARD_TORCH_HEADERS <ATen/Parallel.h> <ATen/core/Tensor.h>)
set(SWITCHYARD_PRECOMPILED_torch_layers ${SWITCHYARD_PRECOMPILED_layers} ${SWITCHYARD_TORCH_HEADERS})
set(SWITCHYARD_PRECOMPILED_torch_tests ${SWITCHYARD_PRECOMPILED_tests} ${SWITCHYARD_TORCH_HEADERS})

# switchyard_precompiled(TARGET KIND): the headers above for layers, covered_layers (those of fuzzers), tests,
# torch_layers or torch_tests. Targets of one kind are compiled with the same options: the first one's precompiled
# header serves all.
function(switchyard_precompiled target kind)
  if(NOT SWITCHYARD_UNITY)
    return()
  endif()
  get_property(first GLOBAL PROPERTY SWITCHYARD_PRECOMPILED_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    set_property(GLOBAL PROPERTY SWITCHYARD_PRECOMPILED_${kind} ${target})
    target_precompile_headers(${target} PRIVATE ${SWITCHYARD_PRECOMPILED_${kind}})
  endif()
  # Without the times of headers: ccache, which compares contents, would else bring one that clang takes for outdated.
  target_compile_options(${target} PRIVATE "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endfunction()
