// What an E2B server says, as values. Every field is looked at before it is used: wrong types are
// errors, texts and lists have limits, names that become part of a URL are checked.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/command.hpp"
#include "engine/files.hpp"
#include "engine/sandbox.hpp"
#include "engine/usage.hpp"
#include "net/json.hpp"

namespace asr::e2b {

// A sandbox, as it is found and talked to.
struct Place {
  std::string id;
  std::string token;   // of its own; empty: none is wanted
  std::string domain;  // empty: the one that was set up
};
Result<Place> place_in(const json::value& answer);

struct Listed {
  std::string id;
  bool paused = false;
  std::string server;  // from its metadata, where we wrote it
  std::string session;
};
Result<std::vector<Listed>> list_in(const json::value& answer);

// What its template gave it.
struct Resources {
  std::uint64_t cpus = 0;
  std::uint64_t memory_mb = 0;
  std::uint64_t disk_mb = 0;
};
struct Detail {
  Place place;
  bool paused = false;
  Resources resources;
};
Result<Detail> detail_in(const json::value& answer);
Result<Usage> usage_in(const json::value& answer);

Result<FileInfo> file_in(const json::value& entry);
Result<std::vector<FileInfo>> files_in(const json::value& answer);
Result<std::optional<WatchEvent>> watch_event_in(const json::object& message);

// One message of a program's stream.
struct ProcessEvent {
  enum class Kind { start, data, end, other };
  Kind kind = Kind::other;
  std::int32_t pid = 0;
  OutputChunk chunk{OutputChunk::Stream::out, ""};
  int exit_code = 0;
  int signal = 0;  // it was ended by
};
Result<ProcessEvent> process_event_in(const json::object& message);

struct RemoteProcess {
  std::int32_t pid = 0;
  std::string tag;
};
Result<std::vector<RemoteProcess>> processes_in(const json::value& answer);

// An error as Connect has it: {"code", "message"}.
Error connect_error(const json::object& error);
// A text of the other side's that may be shown: printable, short.
std::string shown(std::string_view text);

bool is_sandbox_id(std::string_view text) noexcept;

}  // namespace asr::e2b
