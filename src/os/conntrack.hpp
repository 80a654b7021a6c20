// The machine's memory of connections that pass through it.
#pragma once

#include "base/ipv4.hpp"
#include "base/result.hpp"

namespace asr {

// Forgets every connection that this address began, so that who has it next meets none of them.
// Returns how many there were.
Result<unsigned> forget_connections_from(Ipv4 source);

}  // namespace asr
