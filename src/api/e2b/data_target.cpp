#include "api/e2b/data_target.hpp"

#include "api/preview.hpp"

namespace asr {

namespace {

// A browser asks without the headers it means to send; it only names them.
bool announces_sandbox(const RequestHead& head) {
  return is_preflight(head) &&
         head.headers.lists("access-control-request-headers", "e2b-sandbox-id");
}

// Clients of 2.7 name the sandbox in what they ask of the control plane, too.
bool is_for_control(const RequestHead& head) {
  std::string_view port = head.headers.get("e2b-sandbox-port");
  return head.headers.has("x-api-key") && (port.empty() || port == std::to_string(kEnvdPort)) &&
         (head.path.starts_with("/sandboxes/") || head.path.starts_with("/v2/sandboxes/"));
}

}  // namespace

bool is_preflight(const RequestHead& head) {
  return head.method == "OPTIONS" && head.headers.has("access-control-request-method");
}

bool is_own_port(std::uint16_t port) { return port == kEnvdPort || port == kInterpreterPort; }

std::optional<DataTarget> data_target(const RequestHead& head, std::string_view domain) {
  if (is_for_control(head)) return std::nullopt;
  DataTarget target;
  bool has_id = head.headers.has("e2b-sandbox-id");
  bool has_port = head.headers.has("e2b-sandbox-port");
  if (has_id || has_port) {
    if (!has_id || !has_port) target.problem = "E2b-Sandbox-Id and E2b-Sandbox-Port go together";
    target.session = head.headers.get("e2b-sandbox-id");
    // E2B's clients may know a sandbox by its name and that of a client, too.
    target.session.resize(std::min(target.session.find('-'), target.session.size()));
    auto port = port_from(head.headers.get("e2b-sandbox-port"));
    if (has_port && !port) target.problem = "E2b-Sandbox-Port is no port";
    target.port = port.value_or(0);
    return target;
  }
  if (announces_sandbox(head)) {
    target.port = kEnvdPort;
    return target;
  }
  if (auto preview = preview_host(head, domain)) {
    target.session = std::move(preview->session);
    target.port = preview->port;
    target.by_host = true;
    return target;
  }
  target.port = kEnvdPort;
  // The first clients that can be pointed at one address name the sandbox in calls only.
  if (head.headers.has("x-access-token")) {
    target.token = head.headers.get("x-access-token");
    return target;
  }
  if (head.path != "/files" || !head.parameter("signature")) return std::nullopt;
  auto request = signed_request(head);
  if (request)
    target.request = *std::move(request);
  else
    target.problem = request.error().what;
  return target;
}

}  // namespace asr
