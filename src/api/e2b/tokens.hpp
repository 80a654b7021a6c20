// What opens one sandbox to an E2B client: derived from its name and the server's own secret, so
// that nothing has to be stored and a restart changes nothing.
#pragma once

#include <string>
#include <string_view>

#include "store/secret_box.hpp"

namespace asr {

class E2bTokens {
 public:
  // The box outlives this.
  explicit E2bTokens(const SecretBox& secrets) : secrets_(secrets) {}

  // envdAccessToken: commands and files of the sandbox.
  std::string envd(std::string_view session) const;
  // trafficAccessToken: ports of a sandbox that is not public.
  std::string traffic(std::string_view session) const;

  // In a time that tells nothing about how much of it was right.
  bool is_envd(std::string_view session, std::string_view token) const;
  bool is_traffic(std::string_view session, std::string_view token) const;

 private:
  const SecretBox& secrets_;
};

}  // namespace asr
