// What happened in a sandbox while something ran there: measured from outside of the program, and
// only what is known. Whatever else runs in the sandbox meanwhile is part of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/changes.hpp"

namespace asr {

struct Effects {
  std::optional<Changes> files;            // of the sandbox's own; see Sandbox::changes()
  std::optional<std::uint64_t> processes;  // that were started; threads are counted, too
  std::optional<std::uint64_t> peak_memory_bytes;
  std::optional<std::chrono::microseconds> cpu;
  std::optional<std::uint64_t> written_bytes;  // by its write calls, output included
  struct Connections {
    std::uint64_t attempted = 0;
    std::uint64_t refused = 0;
  };
  std::optional<Connections> connections;
  std::optional<std::map<std::string, std::uint64_t>> refused_calls;  // by name
  std::map<std::string, std::string> unknown;  // what is missing above, and why
};

}  // namespace asr
