#include "net/egress_policy.hpp"

#include <algorithm>
#include <array>

#include "net/http.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostRules = 1000;
constexpr std::size_t kMostCredentials = 16;
constexpr std::size_t kLongestValue = 8 * 1024;
constexpr std::string_view kWildcard = "*.";
constexpr std::string_view kAnyHost = "*";

auto bad(const std::string& host, const std::string& what, std::string hint = {}) {
  return fail(Errc::invalid, "'" + host + "': " + what, std::move(hint));
}

bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) > 0x20 && c != 0x7f; });
}

// Those with which a proxy or a server frames messages and finds the host.
bool is_framing(std::string_view header) {
  constexpr std::array<std::string_view, 13> kFraming{"host",
                                                      "connection",
                                                      "content-length",
                                                      "transfer-encoding",
                                                      "te",
                                                      "trailer",
                                                      "upgrade",
                                                      "keep-alive",
                                                      "expect",
                                                      "proxy-connection",
                                                      "proxy-authorization",
                                                      "proxy-authenticate",
                                                      "content-encoding"};
  return std::any_of(kFraming.begin(), kFraming.end(),
                     [&](std::string_view name) { return equal_ignoring_case(name, header); });
}

Result<void> check_credential(const std::string& host, const EgressCredential& credential) {
  if (!is_header_name(credential.header) || is_framing(credential.header))
    return bad(host, "a credential cannot go into that header", "such as Authorization");
  const std::string& value = credential.value;
  bool printable = std::all_of(value.begin(), value.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  });
  if (value.empty() || value.size() > kLongestValue || !printable || value.front() == ' ' ||
      value.back() == ' ')
    return bad(host, "a credential's value is empty, too long or not printable");
  const std::string& path = credential.path_prefix;
  if (!path.starts_with('/') || !is_visible(path) ||
      path.find_first_of("?#%\\") != std::string::npos || !path_is_below(path, "/x").has_value())
    return bad(host, "a credential's path must be plain and begin with /", "such as /v1");
  return {};
}

Result<void> canonicalise(EgressRule& rule) {
  bool wide = rule.host.starts_with(kWildcard);
  auto host = canonical_host(std::string_view(rule.host).substr(wide ? kWildcard.size() : 0));
  if (!host) return bad(rule.host, host.error().what, "a name, or *. and a name, or an address");
  if (wide && host->is_address) return bad(rule.host, "nothing lies below an address");
  if (wide && host->text.find('.') == std::string::npos)
    return bad(rule.host, "that is too wide", "the mode full opens every public host");
  if (host->is_address && rule.host != host->text && rule.host != in_url(*host))
    return bad(rule.host, "addresses are written in one way only", "here " + host->text);
  if (host->is_address && !rule.credentials.empty())
    return bad(rule.host, "credentials are for names, which certificates prove");
  rule.host = (wide ? std::string(kWildcard) : "") + host->text;
  return {};
}

Result<void> check_rule(EgressRule& rule) {
  TRY(canonicalise(rule));
  if (rule.ports.empty() || rule.ports.size() > 64 || rule.has_port(0))
    return bad(rule.host, "ports are numbers from 1 to 65535, one at least");
  if (rule.credentials.size() > kMostCredentials) return bad(rule.host, "too many credentials");
  for (const EgressCredential& credential : rule.credentials)
    TRY(check_credential(rule.host, credential));
  bool only_plain = std::all_of(rule.ports.begin(), rule.ports.end(),
                                [](std::uint16_t port) { return port == 80; });
  if (!rule.credentials.empty() && only_plain)
    return bad(rule.host, "credentials travel by TLS only", "add port 443");
  return {};
}

bool covers(const EgressRule& rule, const HostName& host) {
  if (!rule.host.starts_with(kWildcard)) return rule.host == host.text;
  std::string_view suffix = std::string_view(rule.host).substr(1);  // with its dot
  return !host.is_address && host.text.size() > suffix.size() && host.text.ends_with(suffix);
}

std::shared_ptr<const EgressRule> catch_all() {
  static const auto kRule = [] {
    EgressRule rule;
    rule.host = kAnyHost;
    rule.ports.clear();
    return std::make_shared<const EgressRule>(std::move(rule));
  }();
  return kRule;
}

// Whether some server takes the segment for one of "." and "..": also with parameters behind it.
bool is_dots(std::string_view segment) {
  segment = segment.substr(0, std::min(segment.find(';'), segment.size()));
  return segment == "." || segment == "..";
}

// What an encoded character may hide, once and twice encoded.
bool hides_structure(std::string_view path) {
  if (path.find('\\') != std::string_view::npos) return true;
  for (std::size_t at = path.find('%'); at != std::string_view::npos; at = path.find('%', at + 1)) {
    std::string_view code = path.substr(at + 1, 2);
    if (equal_ignoring_case(code, "25")) code = path.substr(std::min(at + 3, path.size()), 2);
    for (std::string_view hidden : {"2e", "2f", "5c", "00"})
      if (equal_ignoring_case(code, hidden)) return true;
  }
  return false;
}

}  // namespace

bool EgressRule::has_port(std::uint16_t port) const noexcept {
  return std::find(ports.begin(), ports.end(), port) != ports.end();
}

Result<EgressPolicy> EgressPolicy::make(std::vector<EgressRule> rules, EgressScope scope,
                                        std::uint64_t most_bytes) {
  if (rules.size() > kMostRules) return fail(Errc::invalid, "too many hosts in one list");
  EgressPolicy policy;
  policy.scope_ = scope;
  policy.most_bytes_ = most_bytes;
  for (EgressRule& rule : rules) {
    TRY(check_rule(rule));
    policy.rules_.push_back(std::make_shared<const EgressRule>(std::move(rule)));
  }
  std::stable_sort(policy.rules_.begin(), policy.rules_.end(), [](const auto& a, const auto& b) {
    bool wide_a = a->host.starts_with(kWildcard);
    bool wide_b = b->host.starts_with(kWildcard);
    return wide_a != wide_b ? wide_b : wide_a && a->host.size() > b->host.size();
  });
  return policy;
}

std::shared_ptr<const EgressRule> EgressPolicy::match(const HostName& host,
                                                      std::uint16_t port) const {
  for (const auto& rule : rules_)
    if (rule->has_port(port) && covers(*rule, host)) return rule;
  if (scope_ == EgressScope::any_public && port != 0) return catch_all();
  return nullptr;
}

bool is_catch_all(const EgressRule& rule) noexcept { return rule.host == kAnyHost; }

Result<bool> path_is_below(std::string_view path, std::string_view prefix) {
  path = path.substr(0, std::min(path.find('?'), path.size()));
  if (prefix == "/") return true;
  if (hides_structure(path)) return fail(Errc::invalid, "the path has encoded slashes or dots");
  std::string_view rest = path;
  while (!rest.empty()) {
    std::size_t slash = std::min(rest.find('/'), rest.size());
    if (is_dots(rest.substr(0, slash))) return fail(Errc::invalid, "the path has . or .. in it");
    rest.remove_prefix(std::min(slash + 1, rest.size()));
  }
  if (!path.starts_with(prefix)) return false;
  return prefix.ends_with('/') || path.size() == prefix.size() || path[prefix.size()] == '/';
}

}  // namespace asr
