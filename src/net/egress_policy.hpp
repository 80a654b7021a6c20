// Which hosts a sandbox may reach, and what is added on the way. Values and matching; no sockets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "net/address_policy.hpp"
#include "net/host_name.hpp"

namespace asr {

// A header set outside the sandbox, which never sees its value.
struct EgressCredential {
  std::string header;
  std::string value;
  std::string path_prefix = "/";  // of whole segments: "/v1" covers "/v1/x", not "/v10"

  friend bool operator==(const EgressCredential&, const EgressCredential&) = default;
};

struct EgressRule {
  std::string host;  // "example.org", "*.example.org" (any depth below, not itself), or an address
  std::vector<std::uint16_t> ports{443, 80};
  std::vector<EgressCredential> credentials;
  Reach reach = Reach::public_only;

  bool has_port(std::uint16_t port) const noexcept;
  friend bool operator==(const EgressRule&, const EgressRule&) = default;
};

// What lies beyond the rules.
enum class EgressScope {
  listed,      // nothing
  any_public,  // every public address, every port
};

// Only make() fills one, so that each is valid and its names are canonical. Without rules, and with
// EgressScope::listed, it denies everything.
class EgressPolicy {
 public:
  EgressPolicy() = default;
  // `most_bytes`: both ways together, in the session's life; 0 for no limit.
  static Result<EgressPolicy> make(std::vector<EgressRule> rules,
                                   EgressScope scope = EgressScope::listed,
                                   std::uint64_t most_bytes = 0);

  // The rule that counts, or none: an exact name before "*.", a longer "*." before a shorter one.
  std::shared_ptr<const EgressRule> match(const HostName& host, std::uint16_t port) const;

  const std::vector<std::shared_ptr<const EgressRule>>& rules() const noexcept { return rules_; }
  EgressScope scope() const noexcept { return scope_; }
  std::uint64_t most_bytes() const noexcept { return most_bytes_; }

 private:
  std::vector<std::shared_ptr<const EgressRule>> rules_;  // the most specific first
  EgressScope scope_ = EgressScope::listed;
  std::uint64_t most_bytes_ = 0;
};

// Whether the rule is EgressScope::any_public's own: any name goes, so none is held to its word.
bool is_catch_all(const EgressRule& rule) noexcept;

// Whether a path leads below `prefix` for every server: one that could be read as leading elsewhere
// ("..", encoded slashes) is an error, unless the prefix is "/", below which everything lies.
Result<bool> path_is_below(std::string_view path, std::string_view prefix);

}  // namespace asr
