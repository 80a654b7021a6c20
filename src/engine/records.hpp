// What an engine must know of a sandbox, or of a program in one, to take it over from another that
// died: written when it is kept, read by the next life of the instance.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/cgroups.hpp"
#include "engine/command.hpp"
#include "engine/paused_time.hpp"
#include "engine/storage_lease.hpp"
#include "policy/isolation.hpp"
#include "policy/spec.hpp"

namespace asr {

// Descriptors that go with it: the socket to its guest, the pidfd of its pid 1, and with a uid
// range the lock of that range.
struct SandboxRecord {
  std::string id;
  std::string label;  // the caller's own, never looked at
  SandboxSpec spec;
  Isolation isolation;
  std::int32_t host_pid = -1;
  Group group;
  std::uint32_t first_id = 0;
  std::vector<std::uint32_t> step_micros;
  PausedTime::State paused;
  std::vector<StorageRecord> storage;
};

// Descriptors that go with it: stdin, stdout and stderr as far as they are open; or the socket of
// its terminal.
struct ExecutionRecord {
  std::uint32_t id = 0;  // of the request that started it
  std::int32_t pid = 0;
  std::string label;
  bool terminal = false;
  bool both_ways = false;
  bool has_in = false;
  bool has_out = false;
  bool has_err = false;
  std::uint64_t most_bytes = 0;
  std::uint64_t seen_bytes = 0;
  OutputOverflow overflow = OutputOverflow::kill;
  std::chrono::steady_clock::time_point started;
  std::chrono::milliseconds wall_time{0};
  std::chrono::steady_clock::duration paused_before{};
  std::uint64_t oom_before = 0;
  std::optional<ExitStatus> ended;  // and nobody has said that he knows
};

std::string to_blob(const SandboxRecord& record);
std::string to_blob(const ExecutionRecord& record);

// An error for a record of another release: its guest speaks another language.
Result<SandboxRecord> sandbox_record(std::string_view blob);
Result<ExecutionRecord> execution_record(std::string_view blob);

}  // namespace asr
