// What programs ask the egress proxy for: heads of requests, names of hosts, paths. The first byte
// says which reader gets the rest.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "net/address_policy.hpp"
#include "net/egress_policy.hpp"
#include "net/egress_target.hpp"

namespace asr {
namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

const EgressPolicy& policy() {
  static const EgressPolicy kPolicy = [] {
    std::vector<EgressRule> rules(3);
    rules[0].host = "api.example.com";
    rules[1].host = "*.example.org";
    rules[2].host = "93.184.216.34";
    return *EgressPolicy::make(std::move(rules));
  }();
  return kPolicy;
}

// A name is what it says it is, in one spelling, and only those on the list pass.
void judge(const HostName& host) {
  auto again = canonical_host(host.text);
  check(again && *again == host);
  check(host.text.size() <= 253);
  for (char c : host.text)
    check((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == ':');
  if (!policy().match(host, 443)) return;
  check(host.text == "api.example.com" || host.text == "93.184.216.34" ||
        (!host.is_address && host.text.ends_with(".example.org") && host.text[0] != '.'));
}

void read_host(std::string_view text) {
  if (auto host = canonical_host(text)) judge(*host);
}

void read_authority(std::string_view text) {
  auto server = parse_authority(text);
  if (!server) return;
  judge(server->host);
  check(server->port != 0);
  auto again = parse_authority(host_header(*server, 0));
  check(again && *again == *server);
}

void read_target(std::string_view text) {
  auto target = parse_proxy_target(text);
  if (!target) return;
  judge(target->server.host);
  check(target->path.starts_with('/'));
  for (char c : target->path) check(c > 0x20 && c < 0x7f);
  auto again = parse_proxy_target("http://" + host_header(target->server, 80) + target->path);
  check(again && again->server == target->server && again->path == target->path);
}

void read_head(std::string_view text) {
  if (!check_head(text, TargetForm::proxy)) return;
  check(text.find('\r') != std::string_view::npos);
}

// Not of programs', but read by the same library.
void read_web_address(std::string_view text) {
  if (auto address = parse_web_address(text)) check(!address->host.empty() && address->port != 0);
}
void read_query(std::string_view text) {
  (void)parse_query(text);
  (void)percent_decode(text);
}

// "prefix NUL path": what lies below a prefix cannot be led out of it.
void read_path(std::string_view text) {
  std::string_view prefix = text.substr(0, text.find('\0'));
  text.remove_prefix(std::min(text.size(), prefix.size() + 1));
  if (prefix.empty() || prefix == "/") return;
  auto below = path_is_below(text, prefix);
  if (!below || !*below) return;
  check(text.starts_with(prefix) || text.substr(0, text.find('?')).starts_with(prefix));
  std::string_view path = text.substr(0, std::min(text.find('?'), text.size()));
  check(path.find("/../") == std::string_view::npos && !path.ends_with("/.."));
}

}  // namespace
}  // namespace asr

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static constexpr std::array kReaders{asr::read_host, asr::read_authority, asr::read_target,
                                       asr::read_head, asr::read_path,      asr::read_web_address,
                                       asr::read_query};
  if (size == 0) return 0;
  kReaders[data[0] % kReaders.size()]({reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
