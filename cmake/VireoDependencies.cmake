# SPDX-License-Identifier: Apache-2.0
# The libraries Vireo builds on, all from the system's packages (tools/setup lists them), linked statically where a
# static library exists so that the program needs libc and libm alone.
include(FindPkgConfig)

set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
find_path(NLOHMANN_INCLUDE nlohmann/json.hpp REQUIRED)
find_path(FMT_INCLUDE fmt/format.h REQUIRED)
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
find_package(Threads REQUIRED)

# vireo_library(TARGET header library...): an interface target for a C library without a CMake file.
function(vireo_library target header)
  find_path(${target}_INCLUDE ${header} REQUIRED)
  add_library(vireo_3rd_${target} INTERFACE)
  target_include_directories(vireo_3rd_${target} SYSTEM INTERFACE ${${target}_INCLUDE})
  foreach(lib ${ARGN})
    find_library(${target}_${lib}_LIBRARY ${lib} REQUIRED)
    target_link_libraries(vireo_3rd_${target} INTERFACE ${${target}_${lib}_LIBRARY})
  endforeach()
endfunction()

vireo_library(jpeg jpeglib.h jpeg)
vireo_library(png png.h png z)
vireo_library(webp webp/decode.h webpdemux webp)
vireo_library(gif gif_lib.h gif)
vireo_library(utf8proc utf8proc.h utf8proc)
vireo_library(edit editline/readline.h edit tinfo bsd md)

add_library(vireo_3rd_fmt INTERFACE)
target_include_directories(vireo_3rd_fmt SYSTEM INTERFACE ${FMT_INCLUDE})
target_compile_definitions(vireo_3rd_fmt INTERFACE FMT_HEADER_ONLY=1)
add_library(vireo_3rd_json INTERFACE)
target_include_directories(vireo_3rd_json SYSTEM INTERFACE ${NLOHMANN_INCLUDE})
add_library(vireo_3rd_cli11 INTERFACE)
target_include_directories(vireo_3rd_cli11 SYSTEM INTERFACE ${CLI11_INCLUDE})

if(VIREO_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
