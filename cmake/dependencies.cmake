# External libraries. Their headers are SYSTEM, so that warnings come from the project's code only.
find_package(Threads REQUIRED)
include(GoogleTest)

add_library(switchyard_libraries INTERFACE)
if(SWITCHYARD_HEADERS)
  target_include_directories(switchyard_libraries SYSTEM INTERFACE
    $<BUILD_INTERFACE:${SWITCHYARD_HEADERS}> $<INSTALL_INTERFACE:include/switchyard/libraries>)
  target_compile_definitions(switchyard_libraries INTERFACE FMT_HEADER_ONLY)
  target_link_libraries(switchyard_libraries INTERFACE Threads::Threads)
else()
  find_package(fmt REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(CLI11 REQUIRED)
  target_link_libraries(switchyard_libraries INTERFACE fmt::fmt nlohmann_json::nlohmann_json CLI11::CLI11
    Threads::Threads)
endif()
if(SWITCHYARD_TESTS)
  find_package(GTest REQUIRED)
endif()

# zstd becomes part of the programs: nobody has to have it to run them. Without its package its one source file, which
# tools/without_root.py gets, is compiled.
if(SWITCHYARD_HEADERS AND EXISTS ${SWITCHYARD_HEADERS}/zstd.c)
  set(SWITCHYARD_ZSTD ${SWITCHYARD_HEADERS})
else()
  find_path(ZSTD_INCLUDE_DIR zstd.h REQUIRED)
  find_library(ZSTD_LIBRARY NAMES libzstd.a zstd REQUIRED)
endif()
function(switchyard_zstd layer)
  if(SWITCHYARD_ZSTD)
    # Apart, because the layer's precompiled header is one for C++.
    add_library(switchyard_zstd OBJECT ${SWITCHYARD_ZSTD}/zstd.c)
    switchyard_target_options(switchyard_zstd)
    target_compile_options(switchyard_zstd PRIVATE -w)
    target_sources(switchyard_${layer} PRIVATE $<TARGET_OBJECTS:switchyard_zstd>)
    target_include_directories(switchyard_${layer} SYSTEM PRIVATE ${SWITCHYARD_ZSTD})
  else()
    target_include_directories(switchyard_${layer} SYSTEM PRIVATE ${ZSTD_INCLUDE_DIR})
    target_link_libraries(switchyard_${layer} PRIVATE ${ZSTD_LIBRARY})
  endif()
endfunction()

# Where jemalloc is there, it becomes part of programs that plan: of their time a quarter went into many small objects.
if(NOT SWITCHYARD_SANITIZE)
  find_library(JEMALLOC_LIBRARY libjemalloc.a)
endif()
function(switchyard_jemalloc program)
  if(JEMALLOC_LIBRARY)
    target_link_libraries(${program} PRIVATE ${JEMALLOC_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS})
  endif()
endfunction()

if(SWITCHYARD_MPI)
  # Only MPI's C interface, without the deprecated C++ bindings.
  find_package(MPI REQUIRED COMPONENTS C)
  add_library(switchyard_mpi INTERFACE)
  target_include_directories(switchyard_mpi SYSTEM INTERFACE ${MPI_C_INCLUDE_DIRS})
  target_link_libraries(switchyard_mpi INTERFACE ${MPI_C_LIBRARIES})
  target_compile_definitions(switchyard_mpi INTERFACE SWITCHYARD_MPI OMPI_SKIP_MPICXX)
endif()

if(SWITCHYARD_TORCH)
  if(NOT Torch_DIR)
    if(SKBUILD)  # a wheel is built with the libtorch of the environment that builds it
      find_package(Python3 REQUIRED COMPONENTS Interpreter)
      execute_process(COMMAND ${Python3_EXECUTABLE} -c "import torch.utils as t; print(t.cmake_prefix_path + '/Torch')"
                      OUTPUT_VARIABLE torch_dirs OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    else()
      file(GLOB torch_dirs ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch/share/cmake/Torch)
    endif()
    if(NOT torch_dirs)
      message(FATAL_ERROR "libtorch not found in .venv. Run `make setup`, set Torch_DIR, or set SWITCHYARD_TORCH=OFF.")
    endif()
    list(GET torch_dirs 0 Torch_DIR)
  endif()
  get_filename_component(torch_root ${Torch_DIR}/../../.. ABSOLUTE)
  if(NOT EXISTS ${torch_root}/version.py)
    message(FATAL_ERROR "Torch_DIR = ${Torch_DIR} is not in a torch package. Name its folder share/cmake/Torch.")
  endif()
  file(STRINGS ${torch_root}/version.py torch_version REGEX "^__version__")
  string(REGEX REPLACE ".*'([0-9.]+).*" "\\1" torch_version "${torch_version}")
  if(torch_version VERSION_LESS 2.11 OR torch_version VERSION_GREATER_EQUAL 2.14)
    message(FATAL_ERROR "torch ${torch_version} in ${torch_root} is not supported: 2.11 to 2.13 are. Run `make setup`, which "
                        "installs 2.13.0 into .venv, or set Torch_DIR to another one's share/cmake/Torch.")
  endif()
  find_library(TORCH_CPU_LIBRARY torch_cpu PATHS ${torch_root}/lib NO_DEFAULT_PATH REQUIRED)
  find_library(C10_LIBRARY c10 PATHS ${torch_root}/lib NO_DEFAULT_PATH REQUIRED)
  find_library(TORCH_CUDA_LIBRARY torch_cuda PATHS ${torch_root}/lib NO_DEFAULT_PATH)
  find_library(C10_CUDA_LIBRARY c10_cuda PATHS ${torch_root}/lib NO_DEFAULT_PATH)
  # Only these folders of torch's `include` are used, because it also has another version of fmt. The folder of
  # torch/torch.h, which takes 24 s to compile, is left out on purpose.
  foreach(folder ATen c10 torch)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/torch_headers)
    file(CREATE_LINK ${torch_root}/include/${folder} ${CMAKE_BINARY_DIR}/torch_headers/${folder} SYMBOLIC)
  endforeach()
  add_library(switchyard_torch INTERFACE)
  target_include_directories(switchyard_torch SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/torch_headers)
  target_compile_definitions(switchyard_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1 AT_PER_OPERATOR_HEADERS)
  target_link_libraries(switchyard_torch INTERFACE ${TORCH_CPU_LIBRARY} ${C10_LIBRARY})
  if(SKBUILD)  # only to link with: the programs take the libtorch beside the wheel (install.cmake)
    target_link_options(switchyard_torch INTERFACE -Wl,-rpath-link,${torch_root}/lib)
  else()  # CMake's own install path leaves out folders of the source tree, such as .venv
    target_link_options(switchyard_torch INTERFACE -Wl,-rpath,${torch_root}/lib)
  endif()
  # at::parallel_for is a template: it is parallel only if compiled with OpenMP, and must share torch's copy of the
  # OpenMP runtime.
  file(GLOB torch_openmp ${torch_root}/lib/libgomp*.so*)
  target_compile_options(switchyard_torch INTERFACE -fopenmp)
  if(torch_openmp)
    target_link_libraries(switchyard_torch INTERFACE ${torch_openmp})
  else()
    target_link_options(switchyard_torch INTERFACE -fopenmp)
  endif()
  if(TORCH_CUDA_LIBRARY AND C10_CUDA_LIBRARY)
    # The CUDA kernels register themselves when loaded, so the linker must not drop the library.
    target_link_libraries(switchyard_torch INTERFACE -Wl,--no-as-needed ${TORCH_CUDA_LIBRARY} -Wl,--as-needed
      ${C10_CUDA_LIBRARY})
  endif()
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  if(SWITCHYARD_UNITY)
    # Otherwise ccache keeps nothing that uses a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  endif()
endif()
