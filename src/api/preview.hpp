// Servers inside sessions, seen from outside: each on an origin of its own, so that a page inside
// cannot touch the API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/api.hpp"

namespace asr {

struct PreviewTarget {
  std::uint16_t port = 0;
  std::string session;
  std::string target;      // path and query for the server inside
  bool own_origin = true;  // Otherwise the page is locked into an origin nobody has.
};

// Digits alone, and no port that means another.
std::optional<std::uint16_t> port_from(std::string_view text);

// "8080-<session>.localhost", or of the domain that was configured; otherwise the path
// /preview/<session>/8080/…
std::optional<PreviewTarget> preview_target(const RequestHead& head, std::string_view domain);

// By the name of the host alone.
std::optional<PreviewTarget> preview_host(const RequestHead& head, std::string_view domain);

inline constexpr std::string_view kNothingListens = "nothing listens on port ";

// Whoever knows the session's name, which nobody can guess, may look; or only who has its token,
// too, if the session says so.
asio::awaitable<Result<void>> show_preview(ApiParts parts, Exchange* exchange,
                                           PreviewTarget target);

std::vector<Route> preview_routes(const ApiParts& parts, const std::string& domain);

}  // namespace asr
