// E2B's control plane: its routes, translated onto sessions and nothing more.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/api.hpp"
#include "api/e2b/options.hpp"
#include "api/e2b/tokens.hpp"

namespace asr {

// What the handlers of these routes share. Copied into each of them.
struct E2bParts {
  ApiParts api;
  E2bOptions options;
  std::string preview_domain;
  std::shared_ptr<const E2bTokens> tokens;

  Sessions& sessions() const noexcept { return api.sessions; }
};

using E2bHandle = asio::awaitable<Result<Reply>> (*)(E2bParts, CallPtr);

enum class E2bBody { none, required, optional };
// A route whose errors look as E2B's do, and that our own document passes over.
Route e2b_route(const E2bParts& parts, std::string method, std::string path, std::string name,
                E2bHandle handle, E2bBody body = E2bBody::none, Role least = Role::user);

std::vector<Route> e2b_routes(const E2bParts& parts);

std::vector<Route> e2b_sandbox_routes(const E2bParts& parts);
std::vector<Route> e2b_branch_routes(const E2bParts& parts);
std::vector<Route> e2b_watch_routes(const E2bParts& parts);
std::vector<Route> e2b_template_routes(const E2bParts& parts);
std::vector<Route> e2b_volume_routes(const E2bParts& parts);
std::vector<Route> e2b_volume_content_routes(const E2bParts& parts);
std::vector<Route> e2b_secret_routes(const E2bParts& parts);
std::vector<Route> e2b_event_routes(const E2bParts& parts);

// The session of a request: its {id}, which must be the caller's to use so.
asio::awaitable<Result<std::shared_ptr<Session>>> e2b_find(E2bParts parts, CallPtr call,
                                                           Access access);

// Where previews are, as seen by whoever sent this request.
std::string e2b_domain(const E2bParts& parts, const RequestHead& head);

// A session as clients meet it when they made it or connect to it, in a list, or alone.
json::object e2b_sandbox(const E2bParts& parts, const Session& session, const RequestHead& head);
json::object e2b_listed(const SessionRecord& record);
json::object e2b_detail(const E2bParts& parts, const Session& session, const RequestHead& head);

inline constexpr std::string_view kEnvdVersion = "0.6.13";  // what the data plane can do

}  // namespace asr
