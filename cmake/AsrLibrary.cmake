# One static library per folder, and what hangs on it. Every function refuses arguments it does not know.
#
#   asr_library(<folder> SOURCES a.cpp… [DEPS base os…] [LIBS Boost::headers…]
#               [INNER] [INNER_SOURCES…] [INNER_DEPS…] [INNER_LIBS…])
#   asr_precompile(<target>)
#   asr_executable(<name> SOURCES… [DEPS…] [LIBS…])
#   asr_inner_executable(<name> SOURCES main.cpp… [DEPS zygote guest…] [LIBS…])
#   asr_strip(<name>)
#   asr_embed(<target> <symbol> <file or stripped program>)
#   asr_unit_tests(<name> SOURCES x_test.cpp… [DEPS…] [LIBS…] [LABELS…] [TIMEOUT s] [ENVIRONMENT A=b…]
#                  [NO_DISCOVER] [SERIAL])
#   asr_tests(<name> LABELS kernel… SOURCES… and the rest as in asr_unit_tests)
#   asr_fuzz_target(<name> SOURCES… [DEPS…] [LIBS…] [CORPUS dir])
#
# DEPS are folders of src/ (base stands for the target asr_base); LIBS are any other targets.
include(GoogleTest)

add_custom_target(tsan_tests COMMENT "Tests labelled tsan are built")
add_custom_target(fuzz_targets COMMENT "Fuzz targets are built")

# base/version.hpp: looked at in every build, written only when the version or the commit changed.
add_custom_target(asr_version
  COMMAND "${CMAKE_COMMAND}"
    "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}" "-DVERSION=${PROJECT_VERSION}"
    "-DOUTPUT=${PROJECT_BINARY_DIR}/generated/base/version.hpp"
    -P "${PROJECT_SOURCE_DIR}/cmake/WriteVersion.cmake"
  BYPRODUCTS "${PROJECT_BINARY_DIR}/generated/base/version.hpp"
  COMMENT "Checking the version")

# Parses the arguments of the calling function into arg_*; the rest of the file relies on it.
macro(asr_parse flags values lists)
  cmake_parse_arguments(PARSE_ARGV 1 arg "${flags}" "${values}" "${lists}")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${CMAKE_CURRENT_FUNCTION}(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "${CMAKE_CURRENT_FUNCTION}(${name}): SOURCES are missing")
  endif()
endmacro()

# Links asr_<dep><suffix> for each dep. They exist already, because folders are added from the bottom up.
function(asr_link target visibility suffix)
  foreach(dep IN LISTS ARGN)
    if(NOT TARGET asr_${dep}${suffix})
      message(FATAL_ERROR "${target}: there is no asr_${dep}${suffix}; is '${dep}' above it, or not INNER?")
    endif()
    target_link_libraries(${target} ${visibility} asr_${dep}${suffix})
  endforeach()
endfunction()

# The library asr_<name>. With INNER also asr_<name>_inner, the same sources for the executable inside sandboxes;
# INNER_SOURCES, INNER_DEPS and INNER_LIBS each replace the outer list for that variant.
function(asr_library name)
  asr_parse("INNER" "" "SOURCES;DEPS;LIBS;INNER_SOURCES;INNER_DEPS;INNER_LIBS")
  add_library(asr_${name} STATIC ${arg_SOURCES})
  add_dependencies(asr_${name} asr_version)
  target_link_libraries(asr_${name} PUBLIC asr_outer_options ${arg_LIBS})
  asr_link(asr_${name} PUBLIC "" ${arg_DEPS})
  if(NOT arg_INNER AND NOT DEFINED arg_INNER_SOURCES)
    return()
  endif()

  foreach(list IN ITEMS SOURCES DEPS LIBS)
    if(NOT DEFINED arg_INNER_${list} AND NOT INNER_${list} IN_LIST arg_KEYWORDS_MISSING_VALUES)
      set(arg_INNER_${list} ${arg_${list}})
    endif()
  endforeach()
  add_library(asr_${name}_inner STATIC ${arg_INNER_SOURCES})
  add_dependencies(asr_${name}_inner asr_version)
  target_link_libraries(asr_${name}_inner PUBLIC asr_inner_options ${arg_INNER_LIBS})
  asr_link(asr_${name}_inner PUBLIC "_inner" ${arg_INNER_DEPS})
  # One command per file in the compile database: clang-tidy and clangd see the outer variant.
  set_target_properties(asr_${name}_inner PROPERTIES EXPORT_COMPILE_COMMANDS OFF)
endfunction()

# Asio's and JSON's headers, parsed once for the target: they are four fifths of a small file's compile time.
function(asr_precompile target)
  target_precompile_headers(${target} PRIVATE
    <boost/asio/any_io_executor.hpp> <boost/asio/awaitable.hpp> <boost/asio/co_spawn.hpp> <boost/asio/detached.hpp>
    <boost/asio/redirect_error.hpp> <boost/asio/steady_timer.hpp> <boost/asio/use_awaitable.hpp>
    <boost/json/object.hpp> <boost/json/value.hpp>
    <chrono> <filesystem> <functional> <map> <memory> <optional> <string> <tl/expected.hpp> <vector>)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Without a time in it ccache can tell that it is the same.
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

function(asr_executable name)
  asr_parse("" "" "SOURCES;DEPS;LIBS")
  add_executable(${name} ${arg_SOURCES})
  add_dependencies(${name} asr_version)
  target_link_libraries(${name} PRIVATE asr_outer_options ${arg_LIBS})
  asr_link(${name} PRIVATE "" ${arg_DEPS})
endfunction()

# A static executable without position independence, from the *_inner libraries, and <name>.stripped of it.
function(asr_inner_executable name)
  asr_parse("" "" "SOURCES;DEPS;LIBS")
  add_executable(${name} ${arg_SOURCES})
  add_dependencies(${name} asr_version)
  target_link_libraries(${name} PRIVATE asr_inner_options ${arg_LIBS})
  asr_link(${name} PRIVATE "_inner" ${arg_DEPS})
  asr_strip(${name})
endfunction()

# <name>.stripped of a program, for asr_embed(), without symbols and debug information.
function(asr_strip name)
  set(stripped "${CMAKE_CURRENT_BINARY_DIR}/${name}.stripped")
  add_custom_command(OUTPUT "${stripped}"
    COMMAND "${CMAKE_OBJCOPY}" --strip-all "$<TARGET_FILE:${name}>" "${stripped}"
    DEPENDS ${name} VERBATIM)
  add_custom_target(${name}_stripped ALL DEPENDS "${stripped}")
  set_target_properties(${name} PROPERTIES ASR_STRIPPED_FILE "${stripped}")
endfunction()

# Puts a file into library <target>, to be declared as
#   extern "C" const unsigned char <symbol>_begin[], <symbol>_end[];
# <file> may be the name of a program that asr_strip() knows: its stripped file is taken.
function(asr_embed target symbol file)
  if(TARGET ${file})
    add_dependencies(${target} ${file}_stripped)
    get_target_property(file ${file} ASR_STRIPPED_FILE)
  else()
    cmake_path(ABSOLUTE_PATH file NORMALIZE)
  endif()
  set(assembly "${CMAKE_CURRENT_BINARY_DIR}/${symbol}.S")
  file(CONFIGURE OUTPUT "${assembly}" @ONLY CONTENT [[
    .section .rodata.@symbol@, "a", %progbits
    .balign 64
    .global @symbol@_begin
    .global @symbol@_end
@symbol@_begin:
    .incbin "@file@"
@symbol@_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
]])
  target_sources(${target} PRIVATE "${assembly}")
  set_source_files_properties("${assembly}" TARGET_DIRECTORY ${target} PROPERTIES OBJECT_DEPENDS "${file}")
endfunction()

set(asr_test_flags NO_DISCOVER SERIAL)
set(asr_test_values TIMEOUT)
set(asr_test_lists SOURCES DEPS LIBS LABELS ENVIRONMENT)

# The GoogleTest executable <name>_test. Each TEST is a test of ctest, or the whole executable one with NO_DISCOVER.
function(asr_tests name)
  asr_parse("${asr_test_flags}" "${asr_test_values}" "${asr_test_lists}")
  if(NOT BUILD_TESTING)
    return()
  endif()
  if(NOT arg_LABELS)
    message(FATAL_ERROR "asr_tests(${name}): LABELS are missing")
  endif()
  if(NOT DEFINED arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  set(test ${name}_test)
  asr_executable(${test} SOURCES ${arg_SOURCES} DEPS ${arg_DEPS} LIBS GTest::gmock GTest::gtest_main ${arg_LIBS})
  if("tsan" IN_LIST arg_LABELS)
    add_dependencies(tsan_tests ${test})
  endif()

  set(properties "TIMEOUT ${arg_TIMEOUT} LABELS \"${arg_LABELS}\" ENVIRONMENT \"${arg_ENVIRONMENT}\"")
  if(arg_SERIAL)
    string(APPEND properties " RUN_SERIAL ON")
  endif()
  if(arg_NO_DISCOVER)
    add_test(NAME ${name} COMMAND ${test})
    cmake_language(EVAL CODE "set_tests_properties(${name} PROPERTIES ${properties})")
    return()
  endif()
  gtest_discover_tests(${test} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX "${name}.")
  # gtest_discover_tests() flattens properties that are lists, so ctest sets them itself, after the discovery.
  set(script "${CMAKE_CURRENT_BINARY_DIR}/${test}_properties.cmake")
  file(CONFIGURE OUTPUT "${script}" @ONLY CONTENT [[
foreach(discovered IN LISTS @test@_TESTS)
  set_tests_properties("${discovered}" PROPERTIES @properties@)
endforeach()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${script}")
endfunction()

# Tests that need no kernel feature and no privilege.
function(asr_unit_tests name)
  asr_tests(${name} ${ARGN} LABELS unit)
endfunction()

# The libFuzzer executable <name>_fuzz, only in the preset fuzz; ctest runs it for FUZZ_EACH seconds (environment).
# Inputs that reach new code are kept in build/fuzz/corpus/<name>, those that crash in build/fuzz/crashes.
function(asr_fuzz_target name)
  asr_parse("" "CORPUS" "SOURCES;DEPS;LIBS")
  if(NOT ASR_FUZZ)
    return()
  endif()
  set(target ${name}_fuzz)
  asr_executable(${target} SOURCES ${arg_SOURCES} DEPS ${arg_DEPS} LIBS ${arg_LIBS})
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzz_targets ${target})

  set(found "${PROJECT_BINARY_DIR}/corpus/${name}")
  file(MAKE_DIRECTORY "${found}" "${PROJECT_BINARY_DIR}/crashes")
  set(corpus "${found}")
  if(arg_CORPUS)
    cmake_path(ABSOLUTE_PATH arg_CORPUS NORMALIZE)
    list(APPEND corpus "${arg_CORPUS}")
  endif()
  add_test(NAME fuzz.${name} COMMAND
    bash -c [[exec "$0" -max_total_time="${FUZZ_EACH:-10}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 "$@"]]
    "$<TARGET_FILE:${target}>" "-artifact_prefix=${PROJECT_BINARY_DIR}/crashes/${name}-" ${corpus})
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 86400)
endfunction()
