# With SWITCHYARD_UNITY, several files of a target are compiled as one. Their headers, which take most of the time, are
# read once: a full build takes a fraction of the time, a build after an edit takes longer.
set(SWITCHYARD_UNITY 0 CACHE STRING
    "Number of files of a target that are compiled as one, at most, of tests twice as many; 0: each alone")
if(SWITCHYARD_UNITY)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()

# switchyard_unity(TARGET source...): compiles together the sources that don't declare the same name.
function(switchyard_unity target)
  if(NOT SWITCHYARD_UNITY)
    return()
  endif()
  set(most ${SWITCHYARD_UNITY})
  if(target MATCHES "_tests$")  # hardly optimized, they take little more than their headers do
    math(EXPR most "2 * ${most}")
  endif()
  execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/unity_groups.py ${most} ${ARGN}
                  OUTPUT_VARIABLE groups COMMAND_ERROR_IS_FATAL ANY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})  # a new name may part two files
  string(REPLACE "\n" "|" groups "${groups}")
  set(number 0)
  while(groups MATCHES "^([^|]+)\\|(.*)$")
    set(groups "${CMAKE_MATCH_2}")
    set_source_files_properties(${CMAKE_MATCH_1} PROPERTIES UNITY_GROUP ${target}_${number})
    math(EXPR number "${number} + 1")
  endwhile()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # gcc takes files that are compiled as one for headers, whose types should not use private ones.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  # gcc, which frees memory whenever 128 MB more are in use, spends 6 to 10% of its time on that here.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576>)
endfunction()
