// A command as the guest is told it, and a program's end as the caller is: checked on the way in,
// believed as far as it makes sense on the way out.
#pragma once

#include "base/result.hpp"
#include "engine/command.hpp"
#include "policy/limits.hpp"
#include "wire/guest_messages.hpp"

namespace asr {

Result<void> check_command(const Command& command);
wire::Start request_for(const Command& command, const Limits& limits);
ExitStatus status_of(const wire::Ended& ended);

}  // namespace asr
