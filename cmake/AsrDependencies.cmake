# Every library from outside, found once and used by its target name:
#   Boost::headers  tl::expected  fmt::fmt  spdlog::spdlog  CLI11::CLI11  Threads::Threads
#   OpenSSL::SSL  SQLite::SQLite3  CURL::libcurl  yaml-cpp  prometheus-cpp::core  PkgConfig::idn2
#   PkgConfig::nftables  PkgConfig::edit
#   PkgConfig::seccomp  PkgConfig::archive        shared, for the outer world
#   asr::seccomp_static  asr::archive_static      the .a files, for a static executable too
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(tl-expected REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(seccomp REQUIRED IMPORTED_TARGET libseccomp)
pkg_check_modules(archive REQUIRED IMPORTED_TARGET libarchive)
pkg_check_modules(nftables REQUIRED IMPORTED_TARGET libnftables)
pkg_check_modules(idn2 REQUIRED IMPORTED_TARGET libidn2)
pkg_check_modules(edit REQUIRED IMPORTED_TARGET libedit)
find_package(OpenSSL 3 REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(CURL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(prometheus-cpp REQUIRED CONFIG)
if(BUILD_TESTING)
  find_package(GTest REQUIRED)
endif()

# asr_static_package(<name>): asr::<name>_static, the archives that pkg-config --static names for module <name>.
function(asr_static_package name)
  add_library(asr_${name}_static INTERFACE)
  add_library(asr::${name}_static ALIAS asr_${name}_static)
  foreach(library IN LISTS ${name}_STATIC_LIBRARIES)
    find_library(ASR_STATIC_${library} "lib${library}.a" REQUIRED)
    target_link_libraries(asr_${name}_static INTERFACE "${ASR_STATIC_${library}}")
  endforeach()
endfunction()
asr_static_package(seccomp)
asr_static_package(archive)
