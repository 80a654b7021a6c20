// What the command line keeps for its user: where the server is, and the key to it.
#pragma once

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

}  // namespace asr
