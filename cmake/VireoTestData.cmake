# SPDX-License-Identifier: Apache-2.0
# Unpacks tests/data/*.tar.xz under the build folder once per archive content (each is named after its hash).
set(VIREO_TEST_DATA ${CMAKE_BINARY_DIR}/testdata)
file(GLOB archives CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/data/*.tar.xz)
foreach(archive ${archives})
  file(SHA256 ${archive} hash)
  get_filename_component(name ${archive} NAME_WE)
  if(NOT EXISTS ${VIREO_TEST_DATA}/.${name}-${hash})
    message(STATUS "Unpacking test data ${name}")
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${VIREO_TEST_DATA})
    file(TOUCH ${VIREO_TEST_DATA}/.${name}-${hash})
  endif()
endforeach()
