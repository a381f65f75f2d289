# Layers with parsers of external files, which tests/fuzz calls. Coverage costs time in all tests of a build.
set(SWITCHYARD_PARSERS config data files)

# switchyard_layer(NAME [LINKS layer... TORCH MPI]): src/NAME is one static library, tests/NAME has its tests.
# A layer without sources is a header-only target. SWITCHYARD_OPTIONS_NAME: its own options, with which it can't share
# a precompiled header.
set(SWITCHYARD_WARNINGS -Wall -Wextra -Wconversion -Wno-sign-conversion -Werror)
# Seconds after which a test hangs. No test is judged by its speed: a busy machine takes ten times as long.
set(SWITCHYARD_HANG 2400)
# Tests that run once more on the stand-in device: without those of loops and memory that only CPUs have, and of
# profiles. Those of runtime take minutes there: a tenth of them, of all kinds. Without GTEST_TOTAL_SHARDS the program
# runs all.
set(SWITCHYARD_ON_STANDIN_kernels_tests
    "-AttentionTiles*:Gemm*:Vectorized*:Tensors.*:Rank*:MatmulRate*:Threads*:Rope.RefusesPositions*")
set(SWITCHYARD_ON_STANDIN_runtime_tests "*")
set(SWITCHYARD_SHARDS_runtime_tests 10)
set(SWITCHYARD_ON_STANDIN_train_tests
    "BenchStep.*:BenchSwitch.*:TrainJob.*:TwoSources.*:Validation.*:Verify*:Rank.*-\
*Predicted*:*ThanTheBound*:*NeverTakesMemory*:*ErrorFeedback*")
# Builds in which tests run fewer cases (tests/cases.hpp).
set(SWITCHYARD_FEWER_CASES "")
if(SWITCHYARD_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(SWITCHYARD_FEWER_CASES SWITCHYARD_FEWER_CASES)
endif()
# Tests compile faster without optimization, for which the code under test keeps its own. Some compute much themselves;
# of few cases not so much.
set(SWITCHYARD_COMPUTING_TESTS kernels_tests layout_tests planner_tests)
if(SWITCHYARD_FEWER_CASES)
  set(SWITCHYARD_COMPUTING_TESTS "")
endif()
set(SWITCHYARD_INCLUDE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src> $<INSTALL_INTERFACE:include/switchyard>)

function(switchyard_target_options target)
  target_compile_options(${target} PRIVATE ${SWITCHYARD_WARNINGS})
  if(SWITCHYARD_SANITIZE)
    # With sanitizers, gcc 12 warns of uninitialized members in its own <regex>.
    target_compile_options(${target} PRIVATE -fsanitize=${SWITCHYARD_SANITIZE} -fno-omit-frame-pointer
                           $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_link_options(${target} PUBLIC -fsanitize=${SWITCHYARD_SANITIZE})
  endif()
endfunction()

function(switchyard_layer name)
  cmake_parse_arguments(L "" "" "LINKS" ${ARGN})
  set(links switchyard_libraries)
  if(NOT "TORCH" IN_LIST L_LINKS AND NOT "MPI" IN_LIST L_LINKS)
    set_property(GLOBAL APPEND PROPERTY SWITCHYARD_PURE_LAYERS ${name})
  endif()
  set(own_links "")  # of its sources alone: layers above compile in the same way with MPI and without it
  set(torch "")
  foreach(link ${L_LINKS})
    if(link STREQUAL "TORCH")
      set(torch torch_)
      list(APPEND links switchyard_torch)
    elseif(link STREQUAL "MPI")
      if(SWITCHYARD_MPI)
        list(APPEND own_links switchyard_mpi)
      endif()
    else()
      list(APPEND links switchyard_${link})
    endif()
  endforeach()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  if(name STREQUAL "comm" AND NOT SWITCHYARD_MPI)
    list(FILTER sources EXCLUDE REGEX "/mpi_[a-z_]*\\.cpp$")
  endif()
  if(sources)
    add_library(switchyard_${name} STATIC ${sources})
    target_include_directories(switchyard_${name} PUBLIC ${SWITCHYARD_INCLUDE})
    target_link_libraries(switchyard_${name} PUBLIC ${links} PRIVATE ${own_links})
    switchyard_target_options(switchyard_${name})
    set(kind ${torch}layers)
    if(SWITCHYARD_FUZZ AND name IN_LIST SWITCHYARD_PARSERS)
      target_compile_options(switchyard_${name} PRIVATE -fsanitize=fuzzer-no-link)  # coverage, which leads the fuzzer
      set(kind covered_layers)
    endif()
    switchyard_unity(switchyard_${name} ${sources})
    if(DEFINED SWITCHYARD_OPTIONS_${name})
      target_compile_options(switchyard_${name} PRIVATE ${SWITCHYARD_OPTIONS_${name}})
    else()
      switchyard_precompiled(switchyard_${name} ${kind})
    endif()
  else()
    add_library(switchyard_${name} INTERFACE)
    target_include_directories(switchyard_${name} INTERFACE ${SWITCHYARD_INCLUDE})
    target_link_libraries(switchyard_${name} INTERFACE ${links})
  endif()
  if(SWITCHYARD_TESTS AND (NOT SWITCHYARD_TEST_LAYERS OR name IN_LIST SWITCHYARD_TEST_LAYERS))
    file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*_test.cpp)
    if(tests)
      switchyard_test(${name}_tests switchyard_${name} ${tests})
      if(NOT ${name}_tests IN_LIST SWITCHYARD_COMPUTING_TESTS)
        switchyard_precompiled(${name}_tests ${torch}tests)
      endif()
    endif()
  endif()
endfunction()

# Builds the test programs alone.
add_custom_target(tests)

# switchyard_test(TARGET LIBRARY source...): one executable whose tests ctest runs one by one. Short tests whose
# processes start slowly, with libtorch or sanitizers, run in few processes.
function(switchyard_test target library)
  add_executable(${target} ${ARGN})
  add_dependencies(tests ${target})
  target_link_libraries(${target} PRIVATE ${library} GTest::gtest GTest::gmock GTest::gtest_main)
  switchyard_target_options(${target})
  switchyard_unity(${target} ${ARGN})
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(optimization -O0)
    if(target IN_LIST SWITCHYARD_COMPUTING_TESTS)
      set(optimization -O1)
    endif()
    target_compile_options(${target} PRIVATE ${optimization})
  endif()
  target_compile_definitions(${target} PRIVATE
    SWITCHYARD_SOURCE="${CMAKE_SOURCE_DIR}" SWITCHYARD_BINARY="${CMAKE_BINARY_DIR}"
    SWITCHYARD_FIXTURES="${CMAKE_SOURCE_DIR}/tests/fixtures"
    ${SWITCHYARD_FEWER_CASES})
  if(DEFINED SWITCHYARD_ON_STANDIN_${target})
    set(shards 1)
    if(DEFINED SWITCHYARD_SHARDS_${target})
      set(shards ${SWITCHYARD_SHARDS_${target}})
    endif()
    target_link_libraries(${target} PRIVATE switchyard_standin)
    add_test(NAME ${target}_on_standin COMMAND ${target} --gtest_filter=${SWITCHYARD_ON_STANDIN_${target}}
             WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set_tests_properties(${target}_on_standin PROPERTIES LABELS standin TIMEOUT ${SWITCHYARD_HANG} COST 300
      ENVIRONMENT "SWITCHYARD_TEST_DEVICE=standin;GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=0")
  endif()
  if(SWITCHYARD_SANITIZE)
    add_test(NAME ${target} COMMAND ${target} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set_tests_properties(${target} PROPERTIES LABELS cpu TIMEOUT ${SWITCHYARD_HANG} COST 300)
  elseif(target MATCHES "^(kernels|runtime|train|standin)_tests$")
    set(processes 1)
    if(target MATCHES "^(runtime|train)_tests$")
      set(processes 4)
    endif()
    math(EXPR last "${processes} - 1")
    foreach(part RANGE ${last})
      add_test(NAME ${target}.${part} COMMAND ${target} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
      set_tests_properties(${target}.${part} PROPERTIES LABELS cpu TIMEOUT ${SWITCHYARD_HANG} COST 300
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${processes};GTEST_SHARD_INDEX=${part}")
    endforeach()
  else()
    gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 PROPERTIES LABELS cpu TIMEOUT ${SWITCHYARD_HANG})
  endif()
endfunction()
