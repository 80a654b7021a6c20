// E2B's words for what a sandbox may reach, and ours. Values only.
#pragma once

#include "base/result.hpp"
#include "net/json.hpp"
#include "session/request.hpp"

namespace asr {

// `body`: the object "network" of a create, or the whole body of an update; may be empty.
// `internet`: allow_internet_access. `offered`: whether the server gives the internet at all.
// Every sandbox gets a proxy, so that its network can be changed later.
Result<NetworkRequest> e2b_network_from(const json::object& body, std::optional<bool> internet,
                                        bool offered);
// The same, as E2B tells it; without values of headers.
json::object e2b_network_of(const NetworkRequest& network);

Result<PreviewRules> e2b_preview_from(const json::object& body);

}  // namespace asr
