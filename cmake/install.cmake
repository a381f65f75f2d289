# cmake --install: a prefix with the programs (bin), what they read (share/switchyard: the Python half, cluster files,
# recipes, the demo's job), and the pure layers as a CMake package, for find_package(Switchyard). The prefix may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(shared ${CMAKE_INSTALL_DATADIR}/switchyard)
set(headers ${CMAKE_INSTALL_INCLUDEDIR}/switchyard)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Switchyard)

# libtorch and MPI stay where they are; beside a wheel, libtorch is that of the Python environment, and fmt is within.
set(programs switchyard)
if(SWITCHYARD_TORCH)
  list(APPEND programs switchyard-device)
endif()
if(SKBUILD)
  set_target_properties(${programs} PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib;$ORIGIN/../lib")
  if(NOT SWITCHYARD_HEADERS)
    install(IMPORTED_RUNTIME_ARTIFACTS fmt::fmt LIBRARY DESTINATION lib COMPONENT runtime)
  endif()
else()
  set_target_properties(${programs} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
endif()
install(TARGETS ${programs} RUNTIME COMPONENT runtime)
install(DIRECTORY python/switchyard_data DESTINATION ${shared}/python COMPONENT runtime FILES_MATCHING PATTERN "*.py")
if(NOT SKBUILD)  # a wheel has this module beside the programs
  install(DIRECTORY python/switchyard DESTINATION ${shared}/python COMPONENT runtime FILES_MATCHING PATTERN "*.py")
endif()
install(DIRECTORY clusters recipes DESTINATION ${shared} COMPONENT runtime)
install(FILES demo/job.toml DESTINATION ${shared}/demo COMPONENT runtime)
install(FILES LICENSE THIRD_PARTY_NOTICES.md DESTINATION ${shared} COMPONENT runtime)

set(targets switchyard_libraries)
get_property(pure_layers GLOBAL PROPERTY SWITCHYARD_PURE_LAYERS)
foreach(layer ${pure_layers})
  list(APPEND targets switchyard_${layer})
  set_target_properties(switchyard_${layer} PROPERTIES EXPORT_NAME ${layer})
  install(DIRECTORY src/${layer} DESTINATION ${headers} FILES_MATCHING PATTERN "*.hpp")
endforeach()
set_target_properties(switchyard_libraries PROPERTIES EXPORT_NAME libraries)
if(SWITCHYARD_HEADERS)
  install(DIRECTORY ${SWITCHYARD_HEADERS}/ DESTINATION ${headers}/libraries)
endif()
install(TARGETS ${targets} EXPORT SwitchyardTargets)
install(EXPORT SwitchyardTargets NAMESPACE Switchyard:: DESTINATION ${package})
configure_package_config_file(cmake/SwitchyardConfig.cmake.in ${CMAKE_BINARY_DIR}/SwitchyardConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/SwitchyardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/SwitchyardConfig.cmake ${CMAKE_BINARY_DIR}/SwitchyardConfigVersion.cmake
        DESTINATION ${package})
