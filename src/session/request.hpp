// What somebody asks for: a session, a command or a piece of code in one. Values, and how they look
// in JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
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

// What becomes of a session when its time, or its time unused, is over.
enum class AtExpiry { end, pause };
std::string_view to_string(AtExpiry what) noexcept;

// How servers inside are shown.
struct PreviewRules {
  // Whoever knows the session's name may look, or only who has a token for it, too.
  enum class Access { anybody, token } access = Access::anybody;
  // What servers inside are told they were called; ${PORT} stands for the port. Empty: localhost.
  std::string host;

  std::string host_for(std::uint16_t port) const;
  friend bool operator==(const PreviewRules&, const PreviewRules&) = default;
};

// Where a session went on from: another one, at a checkpoint of it or at its beginning.
struct Origin {
  std::string session;
  std::uint64_t checkpoint = 0;
};

// Somebody who leaves it to us.
inline constexpr std::string_view kAnyProvider = "auto";

struct SessionRequest {
  std::string environment = "host";
  std::string provider = "native";  // or kAnyProvider
  std::string provider_reason;      // where it was chosen for the caller: why this one
  std::string image;                // a name that the provider knows: "template:NAME"
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
  AtExpiry at_expiry = AtExpiry::end;
  bool wake_on_traffic = false;  // A paused one goes on when somebody calls a server inside.
  PreviewRules preview;
  std::string cwd;   // where commands run that do not say; empty: /workspace
  std::string user;  // as whom they do where somebody asks for the session's own; empty: user
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
  std::string tag;                     // a name of the caller's own; may be empty
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
  bool env_for_it_alone = false;   // The variables are taken back when it is over.
  std::vector<InitialFile> files;  // written before it runs
  bool somebody_answers = false;   // to input()
  bool effects = false;            // are to be told
  bool history = true;             // with code and output
  std::function<bool()> admit;     // asked when its turn has come; false: it is not run
};

// `body` fits the schema CellStart.
Result<CellRequest> cell_request_from(const json::object& body);

}  // namespace asr
