# Run by the build: cmake -DSOURCE_DIR=… -DVERSION=… -DOUTPUT=… -P WriteVersion.cmake
# configure_file() leaves an equal file untouched, so nothing is rebuilt.
set(commit "$Format:%h$")  # git archive fills this in: see .gitattributes.
if(commit MATCHES "Format")
  set(commit "unknown")
endif()
find_program(git git)
if(git AND EXISTS "${SOURCE_DIR}/.git")
  set(ENV{GIT_OPTIONAL_LOCKS} 0)  # A build never stands in the way of a commit.
  execute_process(COMMAND "${git}" -C "${SOURCE_DIR}" describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(described)
    set(commit "${described}")
  endif()
endif()
configure_file("${SOURCE_DIR}/src/base/version.hpp.in" "${OUTPUT}" @ONLY)
