#include "api/preview.hpp"

#include <charconv>

#include "api/e2b/tokens.hpp"
#include "net/http_proxy.hpp"

namespace asr {

std::optional<std::uint16_t> port_from(std::string_view text) {
  std::uint16_t port = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (ec != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

namespace {

std::string_view without_port(std::string_view host) {
  return host.substr(0, std::min(host.find(':'), host.size()));
}

std::optional<PreviewTarget> from_host(const RequestHead& head, std::string_view domain) {
  std::string_view host = without_port(head.headers.get("host"));
  if (!host.ends_with(domain) || host.size() <= domain.size()) return std::nullopt;
  std::string_view label = host.substr(0, host.size() - domain.size());
  if (!label.ends_with('.')) return std::nullopt;
  label.remove_suffix(1);
  std::size_t dash = label.find('-');
  if (dash == std::string_view::npos || !is_session_id(label.substr(dash + 1))) return std::nullopt;
  auto port = port_from(label.substr(0, dash));
  if (!port) return std::nullopt;
  return PreviewTarget{*port, std::string(label.substr(dash + 1)), head.target, true};
}

std::optional<PreviewTarget> from_path(const RequestHead& head) {
  constexpr std::string_view kPrefix = "/preview/";
  std::string_view rest = head.target;
  if (!rest.starts_with(kPrefix)) return std::nullopt;
  rest.remove_prefix(kPrefix.size());
  std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos || !is_session_id(rest.substr(0, slash))) return std::nullopt;
  std::string session(rest.substr(0, slash));
  rest.remove_prefix(slash + 1);
  std::size_t end = std::min(rest.find_first_of("/?"), rest.size());
  auto port = port_from(rest.substr(0, end));
  if (!port) return std::nullopt;
  std::string target(rest.substr(end));
  if (!target.starts_with('/')) target.insert(0, "/");
  return PreviewTarget{*port, std::move(session), std::move(target), false};
}

// Keys of this server are none of the sandbox's business.
std::vector<std::string> secrets_of(const RequestHead& head, const KeyRing& keys) {
  std::vector<std::string> names{"x-api-key", "x-access-token", "e2b-traffic-access-token"};
  std::string_view value = head.headers.get("authorization");
  constexpr std::string_view kScheme = "Bearer ";
  if (value.size() > kScheme.size() && keys.find(value.substr(kScheme.size())))
    names.emplace_back("authorization");
  return names;
}

// In E2B's words: its clients tell their users.
Result<void> check_token(const RequestHead& head, const Session& session, const Store& store) {
  if (session.request().preview.access == PreviewRules::Access::anybody) return {};
  std::string_view token = head.headers.get("e2b-traffic-access-token");
  if (token.empty())
    return fail(Errc::denied,
                "Sandbox is secured with traffic access token. Token header "
                "'e2b-traffic-access-token' is missing");
  if (!E2bTokens(store.secrets()).is_traffic(session.id(), token))
    return fail(Errc::denied,
                "Sandbox is secured with traffic access token. Provided traffic access token in "
                "header 'e2b-traffic-access-token' is invalid");
  return {};
}

asio::awaitable<Result<Reply>> tell(ApiParts parts, std::string domain, CallPtr call) {
  auto finding = parts.sessions.find(call->caller, call->parts[0], Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  std::int64_t port = CO_TRY(call->number("port", 0, 1, 65535));
  if (port == 0) co_return fail(Errc::invalid, "the parameter port is missing");
  std::string_view host = call->head().headers.get("host");
  std::size_t colon = host.rfind(':');
  std::string own_port(colon == std::string_view::npos ? "" : host.substr(colon));
  std::string scheme = call->head().tls ? "https://" : "http://";
  std::string number = std::to_string(port);
  json::object body{
      {"url", scheme + number + "-" + session->id() + "." + domain + own_port + "/"},
      {"path_url", scheme + std::string(host) + "/preview/" + session->id() + "/" + number + "/"},
      {"port", port}};
  co_return Reply{200, std::move(body), false, {}};
}

}  // namespace

std::optional<PreviewTarget> preview_host(const RequestHead& head, std::string_view domain) {
  return from_host(head, domain);
}

std::optional<PreviewTarget> preview_target(const RequestHead& head, std::string_view domain) {
  if (auto target = from_host(head, domain)) return target;
  return from_path(head);
}

asio::awaitable<Result<void>> show_preview(ApiParts parts, Exchange* exchange,
                                           PreviewTarget target) {
  auto finding = parts.sessions.find_awake(target.session);
  auto session = CO_TRY(co_await std::move(finding));
  CO_TRY(check_token(exchange->head(), *session, parts.store));
  auto sandbox = CO_TRY(session->sandbox());
  auto connecting = sandbox->connect(target.port);
  auto upstream = co_await std::move(connecting);
  if (!upstream)
    co_return fail(Errc::os,
                   std::string(kNothingListens) + std::to_string(target.port) + " in this session",
                   "start the server inside on 127.0.0.1 or 0.0.0.0, then try again");
  ProxyRules rules;
  rules.target = std::move(target.target);
  rules.secret_headers = secrets_of(exchange->head(), parts.keys);
  rules.request_headers.set("X-Forwarded-For", exchange->head().peer);
  rules.request_headers.set("X-Forwarded-Proto", exchange->head().tls ? "https" : "http");
  rules.request_headers.set("X-Forwarded-Host", std::string(exchange->head().headers.get("host")));
  // Dev servers refuse names they do not know; they know their own.
  rules.request_headers.set("Host", session->request().preview.host_for(target.port));
  if (!target.own_origin)
    rules.response_headers.set("Content-Security-Policy",
                               "sandbox allow-scripts allow-forms allow-popups");
  rules.alive = [session] { session->touch(); };
  auto proxying = proxy_exchange(exchange, parts.executor, std::move(*upstream), std::move(rules));
  co_return co_await std::move(proxying);
}

std::vector<Route> preview_routes(const ApiParts& parts, const std::string& domain) {
  Route route{"GET",
              "/api/sessions/{id}/preview",
              "getPreview",
              "sessions",
              "Where a server inside can be seen",
              [parts, domain](CallPtr call) { return tell(parts, domain, std::move(call)); },
              {{200, "Addresses", "Preview"}}};
  route.parameters = {{"port", "The port inside", "integer", true}};
  return {std::move(route)};
}

}  // namespace asr
