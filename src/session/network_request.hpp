// The network somebody asks for: nothing, a list of hosts, every public one, or a real wire.
#pragma once

#include <string_view>

#include "base/result.hpp"
#include "net/egress_policy.hpp"
#include "net/json.hpp"
#include "session/caller.hpp"

namespace asr {

enum class NetworkMode {
  none,
  allow,        // the hosts of a list, through the proxy
  public_only,  // "public": every public host, through the proxy
  full,         // a network device; see Network::full
};
std::string_view to_string(NetworkMode mode) noexcept;

struct NetworkRequest {
  NetworkMode mode = NetworkMode::none;
  EgressPolicy policy;  // denies everything where there is no proxy

  bool needs_proxy() const noexcept {
    return mode == NetworkMode::allow || mode == NetworkMode::public_only;
  }
};

// `body` fits the schema Network. Errors name their place, and no credential.
Result<NetworkRequest> network_request_from(const json::object& body);

enum class Secrets {
  left_out,  // for answers, records and logs
  included,  // to be sealed, and read again by network_request_from()
};
json::object json_of(const NetworkRequest& request, Secrets secrets = Secrets::left_out);

// Whether this caller may have it: addresses that are not public are an operator's to give.
Result<void> check_allowed(const NetworkRequest& request, Role role);

}  // namespace asr
