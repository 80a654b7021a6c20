#include "session/network_request.hpp"

#include <algorithm>
#include <array>

#include "base/units.hpp"

namespace asr {

namespace {

constexpr std::array<std::string_view, 4> kModes{"none", "allow", "public", "full"};

std::string text_of(const json::value& value) { return std::string(value.get_string()); }

Result<std::uint64_t> bytes_of(const json::value& value) {
  if (value.is_number()) return value.to_number<std::uint64_t>();
  auto bytes = parse_bytes(value.get_string());
  if (!bytes) return fail(Errc::invalid, "/network/bytes: " + bytes.error().what);
  return *bytes;
}

EgressRule rule_of(const json::object& body) {
  EgressRule rule;
  rule.host = text_of(body.at("host"));
  if (const json::value* ports = body.if_contains("ports")) {
    rule.ports.clear();
    for (const json::value& port : ports->get_array())
      rule.ports.push_back(port.to_number<std::uint16_t>());
  }
  if (const json::value* credentials = body.if_contains("credentials"))
    for (const json::value& each : credentials->get_array()) {
      EgressCredential credential;
      credential.header = text_of(each.at("header"));
      credential.value = text_of(each.at("value"));
      if (const json::value* path = each.get_object().if_contains("path"))
        credential.path_prefix = text_of(*path);
      rule.credentials.push_back(std::move(credential));
    }
  const json::value* inside = body.if_contains("private");
  if (inside && inside->get_bool()) rule.reach = Reach::anywhere;
  return rule;
}

json::object json_of(const EgressRule& rule, Secrets secrets) {
  json::array ports;
  for (std::uint16_t port : rule.ports) ports.emplace_back(port);
  json::object out{{"host", rule.host}, {"ports", std::move(ports)}};
  if (!rule.credentials.empty()) {
    json::array credentials;
    for (const EgressCredential& credential : rule.credentials) {
      json::object each{{"header", credential.header}, {"path", credential.path_prefix}};
      if (secrets == Secrets::included) each["value"] = credential.value;
      credentials.emplace_back(std::move(each));
    }
    out["credentials"] = std::move(credentials);
  }
  if (rule.reach == Reach::anywhere) out["private"] = true;
  return out;
}

}  // namespace

std::string_view to_string(NetworkMode mode) noexcept {
  return kModes[static_cast<std::size_t>(mode)];
}

Result<NetworkRequest> network_request_from(const json::object& body) {
  NetworkRequest request;
  std::string mode = text_of(body.at("mode"));
  auto found = std::find(kModes.begin(), kModes.end(), mode);
  if (found == kModes.end()) return fail(Errc::invalid, "/network/mode: no such mode");
  request.mode = static_cast<NetworkMode>(found - kModes.begin());
  const json::value* allow = body.if_contains("allow");
  if (!request.needs_proxy() && (allow || body.contains("bytes")))
    return fail(Errc::invalid, "/network: the mode " + mode + " has neither hosts nor bytes",
                "\"mode\": \"allow\" opens the hosts of a list");
  std::vector<EgressRule> rules;
  if (allow)
    for (const json::value& each : allow->get_array()) {
      EgressRule rule = rule_of(each.get_object());
      // By itself first, so that the error can say which one it is.
      if (auto valid = EgressPolicy::make({rule}); !valid)
        return fail(Errc::invalid,
                    "/network/allow/" + std::to_string(rules.size()) + ": " + valid.error().what,
                    valid.error().hint);
      rules.push_back(std::move(rule));
    }
  std::uint64_t bytes = 0;
  if (const json::value* most = body.if_contains("bytes")) bytes = TRY(bytes_of(*most));
  EgressScope scope =
      request.mode == NetworkMode::public_only ? EgressScope::any_public : EgressScope::listed;
  request.policy = TRY(EgressPolicy::make(std::move(rules), scope, bytes));
  return request;
}

json::object json_of(const NetworkRequest& request, Secrets secrets) {
  json::object out{{"mode", to_string(request.mode)}};
  if (!request.needs_proxy()) return out;
  json::array allow;
  for (const auto& rule : request.policy.rules()) allow.emplace_back(json_of(*rule, secrets));
  out["allow"] = std::move(allow);
  if (request.policy.most_bytes() != 0) out["bytes"] = request.policy.most_bytes();
  return out;
}

Result<void> check_allowed(const NetworkRequest& request, Role role) {
  if (role >= Role::oper) return {};
  for (const auto& rule : request.policy.rules())
    if (rule->reach == Reach::anywhere)
      return fail(Errc::denied, "'" + rule->host + "': only operators open private addresses",
                  "leave \"private\" out, or use a key with the role operator");
  return {};
}

}  // namespace asr
