// Work in another network namespace. A thread can be in one of its own; it is made for the work and
// ends with it, so that no other thread ever finds itself somewhere else.
#pragma once

#include <functional>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

using NetworkWork = std::function<Result<void>()>;

// In the one a process is in. Blocks.
Result<void> in_network_of(int pidfd, const NetworkWork& work);
// In a new one, which ends with what `work` leaves in it.
Result<void> in_new_network(const NetworkWork& work);

// The calling thread's own.
Result<UniqueFd> own_network();

}  // namespace asr
