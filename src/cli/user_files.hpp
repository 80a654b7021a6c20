// What the command line keeps for its user: where the server is, and the key to it; what was typed.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"

namespace asr {

struct Login {
  std::string url;
  std::string key;
};

// In ~/.config/agent-sandbox/login.json, for its owner's eyes only. Gives the file's name.
Result<std::string> keep_login(const Login& login);

// AGENT_SANDBOX_URL and AGENT_SANDBOX_API_KEY where they are set, otherwise what was kept.
Result<Login> find_login();

// For what is kept between calls and is no setting: $XDG_STATE_HOME/agent-sandbox, or
// ~/.local/state/agent-sandbox. It need not be there yet.
std::filesystem::path state_folder();

}  // namespace asr
