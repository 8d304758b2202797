# SPDX-License-Identifier: Apache-2.0
# vireo_room(NAME SOURCES ... [DEPS rooms...] [LIBS libraries...] [TESTS x_test.cc...] [TEST_DEPS rooms...])
# makes the static library vireo_NAME and, with tests on, one gtest program per room labelled `unit`.
function(vireo_room name)
  cmake_parse_arguments(R "" "" "SOURCES;DEPS;LIBS;TESTS;TEST_DEPS" ${ARGN})
  list(TRANSFORM R_DEPS PREPEND vireo_)
  list(TRANSFORM R_TEST_DEPS PREPEND vireo_)
  add_library(vireo_${name} STATIC ${R_SOURCES})
  target_include_directories(vireo_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(vireo_${name} PUBLIC ${R_DEPS} PRIVATE ${R_LIBS})
  if(VIREO_TESTS AND R_TESTS)
    vireo_test(${name}_test LABEL unit SOURCES ${R_TESTS} LIBS vireo_${name} ${R_TEST_DEPS} ${R_LIBS})
  endif()
endfunction()

# vireo_test(NAME LABEL label SOURCES ... LIBS ...): a gtest program; every TEST in it becomes one ctest entry.
function(vireo_test name)
  cmake_parse_arguments(T "" "LABEL;TIMEOUT" "SOURCES;LIBS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  if(CMAKE_CROSSCOMPILING)
    math(EXPR T_TIMEOUT "10 * ${T_TIMEOUT}")  # an emulator takes that much longer
  elseif(VIREO_SANITIZE)
    math(EXPR T_TIMEOUT "4 * ${T_TIMEOUT}")
  endif()
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_LIBS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    VIREO_TEST_DATA="${VIREO_TEST_DATA}" VIREO_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gtest_discover_tests(${name} PROPERTIES LABELS ${T_LABEL} TIMEOUT ${T_TIMEOUT} DISCOVERY_TIMEOUT 60)
endfunction()
