# switchyard_ship(LAYER TYPE FUNCTION HEADER PATTERN): compiles the files that match into switchyard_LAYER, as what
# FUNCTION, which HEADER declares, returns: a TYPE {name, text} for each, sorted by name. CMake runs again when one of
# them changes.
function(switchyard_ship SHIP_LAYER SHIP_TYPE SHIP_FUNCTION SHIP_HEADER SHIP_PATTERN)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${SHIP_PATTERN})
  list(SORT files)
  set(SHIP_ROWS "")
  foreach(file ${files})
    get_filename_component(name ${file} NAME_WE)
    file(READ ${file} text)
    string(APPEND SHIP_ROWS "    {\"${name}\", R\"shipped(${text})shipped\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  set(generated ${CMAKE_BINARY_DIR}/generated/${SHIP_FUNCTION}.cpp)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/shipped_files.cpp.in ${generated} @ONLY)
  target_sources(switchyard_${SHIP_LAYER} PRIVATE ${generated})
endfunction()
