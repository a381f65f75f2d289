# The report's page and its plotting library are compiled into the program, so that a report needs no other file.
# BokehJS comes with the Python package bokeh of packages/requirements.txt; without it the program builds, but can't make report
# pages.
set(SWITCHYARD_BOKEH "" CACHE PATH "Folder of the Python package bokeh; empty: that of .venv")
set(bokeh_folder ${SWITCHYARD_BOKEH})
if(NOT bokeh_folder AND SKBUILD)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import bokeh; print(bokeh.__path__[0])"
                  OUTPUT_VARIABLE bokeh_folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
elseif(NOT bokeh_folder)
  file(GLOB bokeh_folder ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/bokeh)
endif()

set(ASSET_BLOCKS "")
set(ASSET_ROWS "")
set(asset_files "")
# The asset `field` is the files that follow, one after the other.
function(report_asset field first)
  if(EXISTS "${first}")
    string(APPEND ASSET_BLOCKS "__asm__(\".section .rodata\\n\"\n"
                               "        \"report_${field}_begin:\\n\"\n")
    foreach(file ${first} ${ARGN})
      string(APPEND ASSET_BLOCKS "        \".incbin \\\"${file}\\\"\\n\"\n")
    endforeach()
    string(APPEND ASSET_BLOCKS
                               "        \"report_${field}_end: .byte 0\\n\"\n"
                               "        \".global report_${field}_begin, report_${field}_end\\n\"\n"
                               "        \".previous\\n\");\n"
                               "extern \"C\" { extern const char report_${field}_begin[], report_${field}_end[]; }\n")
    string(APPEND ASSET_ROWS "      .${field} = {report_${field}_begin, "
                             "static_cast<size_t>(report_${field}_end - report_${field}_begin)},\n")
    list(APPEND asset_files ${first} ${ARGN})
  else()
    string(APPEND ASSET_ROWS "      .${field} = {},\n")
  endif()
  return(PROPAGATE ASSET_BLOCKS ASSET_ROWS asset_files)
endfunction()

set(page ${CMAKE_SOURCE_DIR}/src/report/page)
report_asset(html ${page}.html)
report_asset(css ${page}.css)
set(scripts "")
foreach(topic colors elements charts head steps slowest words timeline tasks shares memory documents plan draw)
  list(APPEND scripts ${page}/${topic}.js)
endforeach()
report_asset(js ${scripts})
report_asset(bokeh "${bokeh_folder}/server/static/js/bokeh.min.js")
report_asset(bokeh_api "${bokeh_folder}/server/static/js/bokeh-api.min.js")
report_asset(bokeh_license "${bokeh_folder}/LICENSE.txt")
if(NOT EXISTS "${bokeh_folder}/server/static/js/bokeh.min.js")
  message(STATUS "BokehJS not found: `switchyard report` can't make pages (tools/setup installs it into .venv)")
endif()

set(assets_source ${CMAKE_BINARY_DIR}/generated/report_assets.cpp)
configure_file(${CMAKE_SOURCE_DIR}/cmake/report_assets.cpp.in ${assets_source} @ONLY)
set_source_files_properties(${assets_source} PROPERTIES OBJECT_DEPENDS "${asset_files}")
target_sources(switchyard_report PRIVATE ${assets_source})
