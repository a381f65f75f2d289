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
  # What else is compiled for CUDA alone. PyPI's libtorch for CPUs lacks the header that the macro leaves out.
  cmake_path(GET SWITCHYARD_NVCC PARENT_PATH nvcc_folder)
  find_path(SWITCHYARD_CUDA_HEADERS cuda_runtime_api.h HINTS ${nvcc_folder}/../include /usr/local/cuda/include)
  mark_as_advanced(SWITCHYARD_CUDA_HEADERS)
  if(SWITCHYARD_CUDA_HEADERS)
    add_test(NAME cuda_memory_compiles
             COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -DSWITCHYARD_CUDA_KERNELS
                     -DC10_CUDA_NO_CMAKE_CONFIGURE_FILE -DFMT_HEADER_ONLY -I ${CMAKE_SOURCE_DIR}/src
                     -isystem ${CMAKE_BINARY_DIR}/torch_headers -isystem ${SWITCHYARD_CUDA_HEADERS}
                     ${CMAKE_SOURCE_DIR}/src/kernels/device_memory.cpp)
    set_tests_properties(cuda_memory_compiles PROPERTIES LABELS cpu TIMEOUT ${SWITCHYARD_HANG})
  endif()
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
  target_include_directories(switchyard_kernels SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
endif()
