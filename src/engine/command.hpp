// One program to run in a sandbox, and how it ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "engine/effects.hpp"

namespace asr {

enum class StdinMode {
  closed,  // reads as /dev/null
  pipe,
  both_ways,  // a socket: what the program writes to it comes as OutputChunk::Stream::reply
};
enum class OutputOverflow {
  kill,      // more output than allowed ends the program
  truncate,  // it runs on; what is over the limit is counted and thrown away
};

struct TerminalSize {
  std::uint16_t rows = 24;
  std::uint16_t columns = 80;
};

// A file in memory that nobody can change any more, with what programs had in theirs when they were
// frozen. Those that go on from there and are frozen again are built upon it.
struct FrozenLayer {
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  UniqueFd file;
};

// A program that was frozen after its start (src/frozen), and what brings it to life.
struct FrozenProgram {
  std::shared_ptr<const UniqueFd> thaw;
  std::vector<std::shared_ptr<const FrozenLayer>> layers;  // its image, then those below
};

struct Command {
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;  // On top of PATH, HOME, USER, LANG, …
  std::string cwd;                         // Empty: /workspace
  std::string user = "user";               // A name of the sandbox's /etc/passwd, or a number
  StdinMode stdin_mode = StdinMode::closed;
  std::optional<TerminalSize> terminal;  // With one, stdout carries both streams

  // Where set, these replace the sandbox's own limits for this execution. Zero: no limit.
  std::optional<std::chrono::milliseconds> wall_time;
  std::optional<std::chrono::milliseconds> cpu_time;
  std::optional<std::uint64_t> output_bytes;
  OutputOverflow overflow = OutputOverflow::kill;
  bool effects = false;  // ExitStatus::effects is wanted.

  // Instead of a file: argv is only what the program is told. It ends with frozen::kExitBadImage if
  // it cannot be brought to life.
  std::shared_ptr<const FrozenProgram> frozen;
};

enum class EndReason {
  exited,         // by itself; see exit_code
  signaled,       // by a signal from inside or from signal(); see signal
  out_of_memory,  // killed by the kernel at the memory limit
  wall_time,
  cpu_time,
  output_limit,
  policy,        // it made a system call of a forbidden kind
  not_started,   // it could not be executed: no such file, no permission; see start_errno
  sandbox_gone,  // the sandbox ended first
  lost,          // it has ended, or goes on without us, and how is not known: a daemon died between
};
std::string_view to_string(EndReason reason) noexcept;

struct ExitStatus {
  EndReason reason = EndReason::exited;
  int exit_code = 0;  // As a shell would say it: 128 + signal for signals, 127/126 if not started
  int signal = 0;
  int start_errno = 0;
  std::uint32_t oom_kills = 0;  // in the sandbox while it ran, its children's included
  std::chrono::nanoseconds wall{0};
  std::chrono::microseconds cpu_user{0};
  std::chrono::microseconds cpu_system{0};
  std::uint64_t max_rss_bytes = 0;
  std::uint64_t truncated_bytes = 0;
  std::shared_ptr<const Effects> effects;  // if they were wanted; lost with the daemon

  bool ok() const noexcept { return reason == EndReason::exited && exit_code == 0; }
};

struct RunResult {
  ExitStatus status;
  std::string out;
  std::string err;
};

struct ProcessInfo {
  std::int32_t pid = 0;  // as seen inside
  std::int32_t parent = 0;
  std::uint32_t uid = 0;
  char state = '?';
  std::chrono::milliseconds cpu{0};
  std::uint64_t rss_bytes = 0;
  std::vector<std::string> argv;
};

}  // namespace asr
