// A request that may come twice is done once: Idempotency-Key.
#pragma once

#include <functional>

#include "api/api.hpp"

namespace asr {

using Work = std::function<asio::awaitable<Result<Reply>>(ApiParts, CallPtr)>;

// Does `work`, unless the same caller sent the same request under the same key before: then gives
// what was answered. Without the header it is simply done.
asio::awaitable<Result<Reply>> once(ApiParts parts, CallPtr call, Work work);

}  // namespace asr
