# SPDX-License-Identifier: Apache-2.0
# `cmake --install`: the program with its manual page and completions, the headers, and the rooms as one archive,
# libvireo.a, which outside projects find with find_package(vireo) or pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# vireo_closure(TARGET rooms externals): every room that TARGET links, itself included, and what they link from outside
# by the linker's names, users before what they use.
function(vireo_closure target rooms externals)
  set(seen_rooms "")
  set(seen_externals "")
  set(queue ${target})
  while(queue)
    list(POP_FRONT queue item)
    if(item STREQUAL "Threads::Threads")
      list(APPEND seen_externals -pthread)
    elseif(NOT TARGET ${item} OR item MATCHES "::")
      get_filename_component(name ${item} NAME_WE)
      string(REGEX REPLACE "^(lib|.*::)" "" name ${name})
      list(REMOVE_ITEM seen_externals ${name})
      list(APPEND seen_externals ${name})
    elseif(NOT item IN_LIST seen_rooms)
      get_target_property(type ${item} TYPE)
      set(links INTERFACE_LINK_LIBRARIES)
      if(type STREQUAL "STATIC_LIBRARY")
        list(APPEND seen_rooms ${item})
        set(links LINK_LIBRARIES)
      endif()
      get_target_property(items ${item} ${links})
      if(items)
        list(APPEND queue ${items})
      endif()
    endif()
  endwhile()
  list(REMOVE_DUPLICATES seen_externals)
  set(${rooms} ${seen_rooms} PARENT_SCOPE)
  set(${externals} ${seen_externals} PARENT_SCOPE)
endfunction()

# The archive.
vireo_closure(vireo_engine rooms externals)
list(APPEND externals m)
add_library(vireo_archive STATIC)
foreach(room ${rooms})
  target_sources(vireo_archive PRIVATE $<TARGET_OBJECTS:${room}>)
endforeach()
set_target_properties(vireo_archive PROPERTIES OUTPUT_NAME vireo EXPORT_NAME vireo LINKER_LANGUAGE CXX)
target_compile_features(vireo_archive INTERFACE cxx_std_20)
foreach(name ${externals})
  target_link_libraries(vireo_archive INTERFACE $<INSTALL_INTERFACE:${name}>)
endforeach()

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/vireo)
install(TARGETS vireo_archive EXPORT vireo_export
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT vireo_export NAMESPACE vireo:: FILE vireoConfig.cmake DESTINATION ${config_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/vireoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/vireoConfigVersion.cmake DESTINATION ${config_dir})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/vireo DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# pkg-config. The prefix is found from where the file lies, so that a staged install may be moved.
list(TRANSFORM externals PREPEND -l REGEX "^[^-]" OUTPUT_VARIABLE pc_libs)
list(JOIN pc_libs " " pc_libs)
set(pc_dir ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_prefix ${pc_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_prefix ${pc_prefix})
configure_file(${CMAKE_CURRENT_LIST_DIR}/vireo.pc.in ${CMAKE_BINARY_DIR}/vireo.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/vireo.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The program, stripped where it is not built to be debugged.
install(CODE [[
  if(CMAKE_INSTALL_CONFIG_NAME MATCHES "^(Release|MinSizeRel)$")
    set(CMAKE_INSTALL_DO_STRIP ON)
  endif()]])
install(TARGETS vireo RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# What the program tells of itself: vireo_written(FILE DESTINATION ARGUMENTS...) installs what `vireo ARGUMENTS` prints.
set(share ${CMAKE_BINARY_DIR}/share)
file(MAKE_DIRECTORY ${share})
set(written "")
macro(vireo_written file destination)
  add_custom_command(OUTPUT ${share}/${file} COMMAND vireo ${ARGN} > ${share}/${file} DEPENDS vireo VERBATIM)
  list(APPEND written ${share}/${file})
  install(FILES ${share}/${file} DESTINATION ${destination})
endmacro()
vireo_written(vireo.1 ${CMAKE_INSTALL_MANDIR}/man1 manual)
vireo_written(vireo ${CMAKE_INSTALL_DATADIR}/bash-completion/completions completion bash)
vireo_written(_vireo ${CMAKE_INSTALL_DATADIR}/zsh/site-functions completion zsh)
vireo_written(vireo.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d completion fish)
add_custom_target(vireo_share ALL DEPENDS ${written})

install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/THIRD-PARTY-NOTICES DESTINATION ${CMAKE_INSTALL_DOCDIR})
