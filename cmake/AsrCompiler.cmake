# The compiler and its flags. Two worlds are built side by side:
#   asr_outer_options  the daemon, the command line, the tests: exceptions, sanitizers, PIE
#   asr_inner_options  the static executable that becomes pid 1 of a sandbox: none of these
# Nothing that belongs to one world only may go into CMAKE_CXX_FLAGS.

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  message(FATAL_ERROR
    "g++ ${CMAKE_CXX_COMPILER_VERSION} destroys temporaries inside co_await twice. "
    "Use clang++-16, which the presets choose (cmake --preset dev), or g++ 13 or later.")
endif()

set(ASR_SANITIZE "" CACHE STRING "Value of -fsanitize= for everything but the inner executable")
option(ASR_FUZZ "Build the fuzz targets" OFF)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
# Assertions stay in every build: a daemon that holds a security boundary stops rather than guesses.
# Debug is not optimised: coroutines under sanitizers take four times as long to compile with -O1 as without. Line numbers
# (-g1) are what a backtrace needs.
foreach(language C CXX)
  set(CMAKE_${language}_FLAGS_DEBUG "-O0 -g1 -fno-omit-frame-pointer")
  set(CMAKE_${language}_FLAGS_RELWITHDEBINFO "-O1 -g1 -fno-omit-frame-pointer")
  set(CMAKE_${language}_FLAGS_RELEASE "-O2 -g1")
endforeach()

find_program(ASR_CCACHE ccache)
if(ASR_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER "${ASR_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ASR_CCACHE}")
endif()

find_program(ASR_MOLD mold)
find_program(ASR_LLD NAMES ld.lld-16 ld.lld)
if(ASR_MOLD)
  add_link_options(-fuse-ld=mold)
elseif(ASR_LLD)
  add_link_options(-fuse-ld=lld)
endif()

add_library(asr_common_options INTERFACE)
target_compile_options(asr_common_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wold-style-cast -Wimplicit-fallthrough -Wvla
  -Werror>)
target_compile_definitions(asr_common_options INTERFACE _GNU_SOURCE _GLIBCXX_ASSERTIONS
  # clang 16 computes the address of a thread_local once per coroutine and uses it after the coroutine has moved to
  # another thread. Asio then keeps its per-thread state behind a call, which cannot be cached.
  BOOST_ASIO_DISABLE_THREAD_KEYWORD_EXTENSION)
# Includes read "folder/file.hpp"; base/version.hpp is made by the build.
target_include_directories(asr_common_options INTERFACE
  "${PROJECT_SOURCE_DIR}/src" "${PROJECT_BINARY_DIR}/generated")

set(hardening -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND hardening -fcf-protection)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64")
  list(APPEND hardening -mbranch-protection=standard)
endif()

add_library(asr_outer_options INTERFACE)
target_link_libraries(asr_outer_options INTERFACE asr_common_options)
target_compile_options(asr_outer_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fPIE>)
target_link_options(asr_outer_options INTERFACE -pie -Wl,-z,relro,-z,now)
if(ASR_SANITIZE)
  target_compile_options(asr_outer_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
    -fsanitize=${ASR_SANITIZE} -fno-sanitize-recover=all>)
  target_link_options(asr_outer_options INTERFACE -fsanitize=${ASR_SANITIZE})
else()
  target_compile_options(asr_outer_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
    ${hardening} -ffunction-sections -fdata-sections>)
  target_link_options(asr_outer_options INTERFACE -Wl,--gc-sections)
endif()

# The same in every preset, but that undefined behaviour traps where the preset looks for it: a sanitizer's runtime
# starts threads, maps terabytes and has no place between clone3() and execve().
add_library(asr_inner_options INTERFACE)
target_link_libraries(asr_inner_options INTERFACE asr_common_options)
target_compile_definitions(asr_inner_options INTERFACE ASR_INNER=1)
target_compile_options(asr_inner_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -O2 -g1 -fno-exceptions -fno-rtti -fno-pie -ffunction-sections -fdata-sections ${hardening}>)
target_link_options(asr_inner_options INTERFACE -static -Wl,--gc-sections -Wl,-z,relro,-z,now)
if(ASR_SANITIZE MATCHES "undefined")
  target_compile_options(asr_inner_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
    -fsanitize=undefined -fsanitize-trap=undefined>)
endif()
