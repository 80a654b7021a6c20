// A command of a session, told to one client as it runs.
#pragma once

#include <memory>

#include "api/e2b/envd.hpp"

namespace asr {

// From `offset` on to the end, as it comes. Returns without an end if the sandbox is taken away:
// whoever listens learns it by the connection that breaks off.
Answering follow_process(EnvdCallPtr call, std::shared_ptr<SessionCommand> command,
                         std::uint64_t offset);

}  // namespace asr
