// How commands of a session look to E2B's clients. Pure.
#pragma once

#include "engine/command.hpp"
#include "net/json.hpp"
#include "session/command.hpp"
#include "session/output_log.hpp"

namespace asr {

json::object start_event(std::int32_t pid);
// One piece of output; of a terminal all of it is its screen.
json::object data_event(const OutputLog::Piece& piece, bool terminal);
json::object end_event(const ExitStatus& status);
json::object keepalive_event();

// "signal: killed", as Go says it.
std::string signal_text(int number);

// ProcessInfo of one that runs.
json::object process_info(const SessionCommand& command);

}  // namespace asr
