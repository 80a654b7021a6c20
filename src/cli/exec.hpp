// What exec and shell were asked for.
#pragma once

#include <string>

#include "base/result.hpp"
#include "cli/folder_view.hpp"
#include "cli/sandbox_options.hpp"
#include "engine/command.hpp"

namespace asr {

struct ExecOptions {
  SandboxOptions sandbox;
  FolderOptions folder;
  std::string session;  // Empty: a new sandbox.
  bool json = false;
  bool tty = false;
  bool no_stdin = false;
  bool quiet = false;
  bool effects = false;  // are to be told
};

// The exit code.
Result<int> exec_in_session(const ExecOptions& options, Command command);

}  // namespace asr
