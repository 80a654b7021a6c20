// What somebody asks for: a session, or a command in one. Values, and how they look in JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/command.hpp"
#include "net/json.hpp"
#include "policy/spec.hpp"

namespace asr {

struct InitialFile {
  std::string path;
  std::string content;
  std::uint32_t mode = 0644;
};

struct SessionRequest {
  std::string environment = "host";
  std::string provider = "native";
  SandboxSpec spec;  // preset, limits and network, put together
  std::map<std::string, std::string> env;
  std::vector<InitialFile> files;
  std::map<std::string, std::string> labels;
  std::optional<std::chrono::seconds> ttl;   // zero: for ever; none: as the server says
  std::optional<std::chrono::seconds> idle;  // likewise
};

// `body` fits the schema SessionCreate.
Result<SessionRequest> session_request_from(const json::object& body);
// What is kept of it: everything but files and values of the environment.
json::object json_of(const SessionRequest& request);

struct CommandRequest {
  Command command;
  std::string stdin_data;
  bool stdin_open = false;  // more will come
  bool background = false;
};

// `body` fits the schema CommandStart. A text is run by /bin/sh.
Result<CommandRequest> command_request_from(const json::object& body);

json::object json_of(const Limits& limits);

}  // namespace asr
