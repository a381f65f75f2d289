# The cluster files of clusters/ are compiled into switchyard_config. CMake runs again when one of them changes.
file(GLOB cluster_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/clusters/*.toml)
list(SORT cluster_files)
set(CLUSTER_ROWS "")
foreach(cluster_file ${cluster_files})
  get_filename_component(cluster_name ${cluster_file} NAME_WE)
  file(READ ${cluster_file} cluster_text)
  string(APPEND CLUSTER_ROWS "    {\"${cluster_name}\", R\"toml(${cluster_text})toml\"},\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${cluster_file})
endforeach()
configure_file(${CMAKE_SOURCE_DIR}/cmake/shipped_clusters.cpp.in
               ${CMAKE_BINARY_DIR}/generated/shipped_clusters.cpp @ONLY)
target_sources(switchyard_config PRIVATE ${CMAKE_BINARY_DIR}/generated/shipped_clusters.cpp)
