# Our own kernels for GPUs (src/kernels/*.cu), compiled by nvcc. Without them libtorch's operators serve.
set(SWITCHYARD_CUDA_KERNELS AUTO CACHE STRING
    "Compile our own CUDA kernels: AUTO, where there are nvcc and a libtorch with CUDA; ON; OFF")
set_property(CACHE SWITCHYARD_CUDA_KERNELS PROPERTY STRINGS AUTO ON OFF)
set(cuda_kernels ${SWITCHYARD_CUDA_KERNELS})
if(cuda_kernels STREQUAL "AUTO")
  set(cuda_kernels OFF)
  if(TORCH_CUDA_LIBRARY)
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      set(cuda_kernels ON)
    endif()
  endif()
endif()
find_program(SWITCHYARD_NVCC nvcc)
mark_as_advanced(SWITCHYARD_NVCC)
if(SWITCHYARD_TESTS AND SWITCHYARD_NVCC AND NOT cuda_kernels)
  # Compiled in any case where that can be done, so that an edit cannot break what only few build.
  add_test(NAME cuda_kernels_compile
           COMMAND ${SWITCHYARD_NVCC} -std=c++17 --expt-relaxed-constexpr -arch=sm_90 -I ${CMAKE_SOURCE_DIR}/src
                   -c ${CMAKE_SOURCE_DIR}/src/kernels/element_kernels.cu -o ${CMAKE_BINARY_DIR}/element_kernels.o)
  set_tests_properties(cuda_kernels_compile PROPERTIES LABELS cpu TIMEOUT ${SWITCHYARD_HANG})
endif()
if(cuda_kernels)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)  # later ones compile what is for 90 when they load it
  endif()
  enable_language(CUDA)
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/*.cu)
  add_library(switchyard_cuda_kernels STATIC ${cuda_sources})
  # C++17, which every CMake from 3.25 on can ask any nvcc for.
  set_target_properties(switchyard_cuda_kernels PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON)
  # bf16 is rounded by the same constexpr functions on the host and on the device.
  target_compile_options(switchyard_cuda_kernels PRIVATE --expt-relaxed-constexpr)
  target_include_directories(switchyard_cuda_kernels PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(switchyard_kernels PUBLIC SWITCHYARD_CUDA_KERNELS)
  target_link_libraries(switchyard_kernels PUBLIC switchyard_cuda_kernels)
endif()
