// What somebody asks for: a session, a command or a piece of code in one. Values, and how they look
// in JSON.
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
#include "session/network_request.hpp"

namespace asr {

struct InitialFile {
  std::string path;
  std::string content;
  std::uint32_t mode = 0644;
};

struct VolumeMount {
  std::string name;
  std::string path;  // where it appears inside
  bool read_only = false;
};

// Where a session went on from: another one, at a checkpoint of it or at its beginning.
struct Origin {
  std::string session;
  std::uint64_t checkpoint = 0;
};

struct SessionRequest {
  std::string environment = "host";
  std::string provider = "native";
  Preset preset = Preset::standard;
  SandboxSpec spec;  // preset, limits and network, put together; disk and volumes are not
  bool persistent = false;
  bool keep_artifacts = false;  // when it ends
  bool history = true;          // of what is done in it, if the server keeps any
  std::vector<VolumeMount> volumes;
  NetworkRequest network;
  std::map<std::string, std::string> env;
  std::vector<InitialFile> files;
  std::map<std::string, std::string> labels;
  bool auto_checkpoint = false;  // before everything that is run
  std::string snapshot;          // the state it goes on from; its environment is called after it
  std::optional<Origin> origin;  // It is a branch.
  std::optional<std::chrono::seconds> ttl;   // zero: for ever; none: as the server says
  std::optional<std::chrono::seconds> idle;  // likewise
};

// `body` fits the schema SessionCreate.
Result<SessionRequest> session_request_from(const json::object& body);
// What is kept of it: everything but files and secrets.
json::object json_of(const SessionRequest& request);
// The secrets, for a place where they are sealed.
std::string secrets_of(const SessionRequest& request);
// Both put together again.
Result<SessionRequest> stored_request(const std::string& kept, const std::string& secrets);

struct CommandRequest {
  Command command;
  std::string stdin_data;
  bool stdin_open = false;  // more will come
  bool background = false;
  std::vector<std::string> env_names;  // of variables that were asked for
  bool history = true;                 // with what was run and written
};

// `body` fits the schema CommandStart. A text is run by /bin/sh.
Result<CommandRequest> command_request_from(const json::object& body);

json::object json_of(const Limits& limits);

// A piece of code for an interpreter of the session.
struct CellRequest {
  std::string code;
  std::string language;                              // empty: python, or the context's own
  std::string context;                               // empty: the language's own
  std::optional<std::chrono::milliseconds> timeout;  // none: as long as a command may take
  std::map<std::string, std::string> env;
  std::vector<InitialFile> files;  // written before it runs
  bool somebody_answers = false;   // to input()
  bool effects = false;            // are to be told
  bool history = true;             // with code and output
};

// `body` fits the schema CellStart.
Result<CellRequest> cell_request_from(const json::object& body);

}  // namespace asr
