#include "api/e2b/network.hpp"

#include <algorithm>
#include <array>

#include "api/e2b/fields.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostEntries = 500;
constexpr std::size_t kMostRules = 10;
constexpr std::size_t kMostHeaders = 20;
constexpr std::size_t kLongestName = 64;
constexpr std::size_t kLongestValue = 2048;
constexpr std::array<std::string_view, 3> kEverything{"0.0.0.0/0", "::/0", "all"};

bool is_everything(std::string_view entry) {
  return std::find(kEverything.begin(), kEverything.end(), entry) != kEverything.end();
}

// One address is one host; a range of them is what names and addresses cannot say.
Result<std::string> host_of(std::string_view entry) {
  if (entry.ends_with("/32") && entry.find(':') == std::string_view::npos) entry.remove_suffix(3);
  if (entry.ends_with("/128") && entry.find(':') != std::string_view::npos) entry.remove_suffix(4);
  if (entry.find('/') != std::string_view::npos)
    return fail(Errc::unsupported,
                "network.allowOut: ranges such as " + std::string(entry) + " are not supported",
                "list single addresses, names, or *.names");
  return std::string(entry);
}

// A single address, with any port, as far as a list of ports can say it.
bool is_address(const std::string& host) {
  return host.find(':') != std::string::npos ||
         host.find_first_not_of("0123456789.") == std::string::npos;
}

// "${e2b.secrets.name}" in our own words.
std::string with_our_secrets(std::string value) {
  constexpr std::string_view kTheirs = "${e2b.secrets.";
  for (std::size_t at; (at = value.find(kTheirs)) != std::string::npos;)
    value.replace(at, kTheirs.size(), "${secret.");
  return value;
}

Result<std::vector<EgressCredential>> headers_of(const json::value& transforms,
                                                 const std::string& host) {
  std::string place = "network.rules." + host;
  if (!transforms.is_array() || transforms.get_array().size() != 1 ||
      !transforms.get_array()[0].is_object())
    return fail(Errc::invalid, place + " must be a list of one rule with a transform");
  E2bFields rule(transforms.get_array()[0].get_object(), place);
  const json::object* transform = TRY(rule.object("transform"));
  if (!transform) return std::vector<EgressCredential>();
  for (const auto& [name, value] : *transform)
    if (name != "headers")
      return fail(Errc::unsupported,
                  place + ".transform." + std::string(name) + " is not supported",
                  "a transform may set headers");
  auto headers = TRY(E2bFields(*transform, place + ".transform").texts("headers", kMostHeaders));
  std::vector<EgressCredential> credentials;
  for (auto& [name, value] : headers) {
    if (name.size() > kLongestName || value.size() > kLongestValue)
      return fail(Errc::invalid,
                  place + ": the header " + name.substr(0, kLongestName) + " is too long");
    if (value.find("${e2b.identity.") != std::string::npos)
      return fail(Errc::unsupported, place + ": this server gives out no identity tokens",
                  "use ${e2b.secrets.<name>}");
    credentials.push_back({name, with_our_secrets(std::move(value)), "/"});
  }
  return credentials;
}

Result<std::vector<EgressRule>> rules_of(const json::object& body) {
  std::vector<EgressRule> rules;
  const json::object* wanted = TRY(E2bFields(body, "network").object("rules"));
  if (!wanted) return rules;
  if (wanted->size() > kMostRules)
    return fail(Errc::invalid,
                "network.rules has more than " + std::to_string(kMostRules) + " hosts");
  for (const auto& [host, transforms] : *wanted) {
    EgressRule rule;
    rule.host = std::string(host);
    rule.credentials = TRY(headers_of(transforms, rule.host));
    rules.push_back(std::move(rule));
  }
  return rules;
}

Result<void> refuse_the_impossible(const json::object& body) {
  E2bFields fields(body, "network");
  if (fields.has("egressProxy"))
    return fail(Errc::unsupported, "network.egressProxy is not supported",
                "sandboxes leave through this server's own proxy: use allowOut, denyOut and rules");
  for (const std::string& denied : TRY(fields.list("denyOut", kMostEntries)))
    if (!is_everything(denied))
      return fail(Errc::unsupported, "network.denyOut: " + denied + " cannot be denied by itself",
                  "deny 0.0.0.0/0 and list in allowOut what may be reached");
  return {};
}

}  // namespace

Result<NetworkRequest> e2b_network_from(const json::object& body, std::optional<bool> internet,
                                        bool offered) {
  TRY(refuse_the_impossible(body));
  E2bFields fields(body, "network");
  auto allowed = TRY(fields.list("allowOut", kMostEntries));
  auto denied = TRY(fields.list("denyOut", kMostEntries));
  std::vector<EgressRule> rules = TRY(rules_of(body));
  bool deny_all = !denied.empty() || internet == std::optional<bool>(false);
  bool allow_all = std::any_of(allowed.begin(), allowed.end(), is_everything);
  bool open = offered && (!deny_all || allow_all);

  std::vector<EgressRule> hosts;
  for (const std::string& entry : allowed) {
    if (is_everything(entry)) continue;
    EgressRule rule;
    rule.host = TRY(host_of(entry));
    if (!is_address(rule.host) && !deny_all)
      return fail(Errc::invalid, "network.allowOut: " + entry + " is a name, and nothing is denied",
                  "deny 0.0.0.0/0, so that only what is listed can be reached");
    if (!open) hosts.push_back(std::move(rule));
  }
  for (EgressRule& rule : rules) {
    auto same = std::find_if(hosts.begin(), hosts.end(),
                             [&](const EgressRule& host) { return host.host == rule.host; });
    if (same != hosts.end())
      same->credentials = std::move(rule.credentials);
    else if (open)
      hosts.push_back(std::move(rule));
    else
      return fail(Errc::invalid, "network.rules: " + rule.host + " cannot be reached",
                  "list it in allowOut, too");
  }
  NetworkRequest request;
  request.mode = open ? NetworkMode::public_only : NetworkMode::allow;
  EgressScope scope = open ? EgressScope::any_public : EgressScope::listed;
  auto policy = EgressPolicy::make(std::move(hosts), scope);
  if (!policy) return fail(Errc::invalid, "network: " + policy.error().what, policy.error().hint);
  request.policy = std::move(*policy);
  return request;
}

json::object e2b_network_of(const NetworkRequest& network) {
  bool open = network.mode == NetworkMode::public_only || network.mode == NetworkMode::full;
  json::array allowed;
  json::object rules;
  for (const auto& rule : network.policy.rules()) {
    if (!open) allowed.emplace_back(rule->host);
    if (rule->credentials.empty()) continue;
    json::object headers;
    for (const EgressCredential& credential : rule->credentials) headers[credential.header] = "***";
    rules[rule->host] = json::array{json::object{{"transform", {{"headers", std::move(headers)}}}}};
  }
  json::object out;
  if (!allowed.empty()) out["allowOut"] = std::move(allowed);
  if (!open) out["denyOut"] = json::array{"0.0.0.0/0"};
  if (!rules.empty()) out["rules"] = std::move(rules);
  return out;
}

Result<PreviewRules> e2b_preview_from(const json::object& body) {
  E2bFields fields(body, "network");
  PreviewRules rules;
  if (!TRY(fields.flag("allowPublicTraffic")).value_or(true))
    rules.access = PreviewRules::Access::token;
  rules.host = TRY(fields.text_if("maskRequestHost")).value_or("");
  if (rules.host.size() > 253 || std::any_of(rules.host.begin(), rules.host.end(), [](char c) {
        return c <= ' ' || c > '~' || c == ',';
      }))
    return fail(Errc::invalid, "network.maskRequestHost is no name of a host",
                "such as app.example.org or localhost:${PORT}");
  const json::array* https = TRY(fields.array("httpsPorts", 100));
  if (https && !https->empty())
    return fail(Errc::unsupported, "network.httpsPorts is not supported",
                "servers inside are reached by plain HTTP, and shown by what this server speaks");
  return rules;
}

}  // namespace asr
