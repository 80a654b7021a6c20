// The options that describe a sandbox and a command, shared by exec and shell.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/command.hpp"
#include "policy/spec.hpp"

namespace asr {

struct SandboxOptions {
  std::string preset = "standard";
  std::string environment = "host";
  std::string tier;
  std::string network;
  bool read_only = false;
  std::string memory, cpu, disk, timeout, cpu_time, output_limit;
  std::optional<std::uint32_t> pids, open_files;
  std::optional<std::uint64_t> inodes;
  std::string user = "user";
  std::string cwd;
  std::vector<std::string> env;
  bool truncate_output = false;
  bool no_cgroups = false;

  void declare(CLI::App& command);
  Result<SandboxSpec> spec() const;
  Result<void> fill(Command& command) const;
  Result<void> fill_limits(Command& command) const;  // where the sandbox is there already

  // Refuses what only a new sandbox can be told.
  static Result<void> check_for_session(const CLI::App& command);
};

}  // namespace asr
