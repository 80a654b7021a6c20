// Gives up what a keeper does not need: every capability, new privileges, and all system calls but
// those that wait, receive, send and close.
#pragma once

#include "base/result.hpp"

namespace asr {

Result<void> lock_in();

}  // namespace asr
