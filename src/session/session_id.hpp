// Names of sessions: lowercase letters and digits, so that each is also a label of a host name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace asr {

// Where a session was made: which node, and in which of its lives. Both stand at the front of its
// id, so that any node can find the owner of any id without looking it up. They steer nothing on
// their own: an id that nobody was given is unknown to the node it names.
struct NodeName {
  std::string code;         // kNodeCode characters
  std::uint32_t epoch = 0;  // grows with every start from new storage
};

inline constexpr std::size_t kNodeCode = 4;
inline constexpr std::size_t kEpochCode = 3;
inline constexpr std::size_t kRandomCode = 26;  // five bits each: 130
inline constexpr std::size_t kSessionIdLength = kNodeCode + kEpochCode + kRandomCode;

std::string make_session_id(const NodeName& node);
bool is_session_id(std::string_view text) noexcept;

}  // namespace asr
