// The columns of a session, in the order in which they are read. For this folder only.
#pragma once

#include <string_view>

#include "store/session_records.hpp"

namespace asr {

constexpr std::string_view kSessionColumns =
    "id, owner, provider, environment, state, persistent, keep_artifacts, created_ms, expires_ms,"
    " left_ms, idle_ms, active_ms, ended_ms, end_reason, url, labels, sandbox, isolation, sealed, "
    "spec";

void read_session(const Statement& row, SessionRecord& record);

}  // namespace asr
