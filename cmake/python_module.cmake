# switchyard._native, the part of the Python module `switchyard` that plans and simulates: a library with the commands
# that need no device, for the Python of .venv, or the one that builds a wheel. nanobind comes with
# packages/requirements.txt; without it, or without Python's headers, the programs build, but not this module.
if(SWITCHYARD_SANITIZE)  # a Python without sanitizers can't load it
  return()
endif()
set(required "")
if(SKBUILD)
  set(required REQUIRED)
elseif(NOT Python_EXECUTABLE AND EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  set(Python_EXECUTABLE ${CMAKE_SOURCE_DIR}/.venv/bin/python)
endif()
find_package(Python 3.10 ${required} COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
set(nanobind_DIR "")
if(Python_FOUND)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_DIR ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(NOT nanobind_DIR)
  if(SKBUILD)
    message(FATAL_ERROR "nanobind not found. The wheel's module needs it: install it into the environment that builds.")
  endif()
  message(STATUS "nanobind or Python's headers not found: `import switchyard` can't plan or simulate (tools/setup "
                 "installs nanobind into .venv; the headers are the package python3-dev)")
  return()
endif()
find_package(nanobind CONFIG REQUIRED)

# STABLE_ABI: from Python 3.12 on, one file serves all later versions.
nanobind_add_module(switchyard_native STABLE_ABI FREE_THREADED NB_STATIC NB_SUPPRESS_WARNINGS
                    ${CMAKE_SOURCE_DIR}/apps/native/native.cpp $<TARGET_OBJECTS:switchyard_commands>)
target_link_libraries(switchyard_native PRIVATE switchyard_command_layers)
switchyard_target_options(switchyard_native)
# Libraries that other modules bring may have the same names.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/python_module.map CONTENT "{ global: PyInit_*; local: *; };\n")
target_link_options(switchyard_native PRIVATE -Wl,--version-script=${CMAKE_BINARY_DIR}/generated/python_module.map)
# In a build folder the module lies where python/switchyard looks for it.
set_target_properties(switchyard_native PROPERTIES OUTPUT_NAME _native LIBRARY_OUTPUT_DIRECTORY
                      ${CMAKE_BINARY_DIR}/module)
