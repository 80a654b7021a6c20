// Which requests are for a sandbox, and for what in it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/e2b/signature.hpp"

namespace asr {

inline constexpr std::uint16_t kEnvdPort = 49983;
inline constexpr std::uint16_t kInterpreterPort = 49999;

struct DataTarget {
  std::string session;
  std::uint16_t port = 0;
  bool by_host = false;                  // otherwise by headers, or by its signature alone
  std::optional<SignedRequest> request;  // names no sandbox: the one that signed it
  std::string token;                     // likewise: the one it opens
  std::string problem;                   // not empty: this is wrong with the headers
};

// What of the data plane a request is for; nothing: it is for something else. `domain`: of
// previews.
std::optional<DataTarget> data_target(const RequestHead& head, std::string_view domain);

// A browser that asks whether it may ask.
bool is_preflight(const RequestHead& head);
// Ports that this server answers itself.
bool is_own_port(std::uint16_t port);

}  // namespace asr
