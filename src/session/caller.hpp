// Who asks, and what they may do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace asr {

enum class Role {
  viewer,  // looks at what is theirs or shared with them
  user,    // makes sessions and uses them
  oper,    // all sessions; folders and archives of this machine as environments
  admin,   // and keys, audit, settings
};

std::optional<Role> parse_role(std::string_view text) noexcept;
std::string_view to_string(Role role) noexcept;

struct Caller {
  std::string id;  // of the key, or "jwt:" and the subject
  Role role = Role::viewer;
  std::uint32_t most_sessions = 0;  // alive at once; 0: as the server says
  std::string trace_id;             // of the request, for the audit and the log
  std::int64_t valid_until_ms = 0;  // of a token; 0: its key says
};

enum class Access { look, use };

}  // namespace asr
