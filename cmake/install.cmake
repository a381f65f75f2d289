# cmake --install: a prefix with the programs (bin), what they read (share/switchyard: the Python half, cluster files,
# recipes, the demo's job), and the pure layers as a CMake package, for find_package(Switchyard). The prefix may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(shared ${CMAKE_INSTALL_DATADIR}/switchyard)
set(headers ${CMAKE_INSTALL_INCLUDEDIR}/switchyard)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Switchyard)

# libtorch and MPI stay where they are.
set(programs switchyard)
if(SWITCHYARD_TORCH)
  list(APPEND programs switchyard-device)
endif()
set_target_properties(${programs} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS ${programs} RUNTIME)
install(DIRECTORY python/switchyard_data DESTINATION ${shared}/python FILES_MATCHING PATTERN "*.py")
install(DIRECTORY clusters recipes demo DESTINATION ${shared} FILES_MATCHING PATTERN "*.toml")
install(FILES LICENSE THIRD_PARTY_NOTICES.md DESTINATION ${shared})

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
