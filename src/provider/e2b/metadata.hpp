// What our sandboxes are marked with, so that we know them again and nobody else's are touched.
#pragma once

#include <string_view>

namespace asr::e2b {

inline constexpr std::string_view kServerKey = "agent-sandbox-server";
inline constexpr std::string_view kSessionKey = "agent-sandbox-session";

}  // namespace asr::e2b
