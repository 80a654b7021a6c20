// Names that other programs insist on reading as UUIDs. Ours are random_name()s (base/id.hpp).
#pragma once

#include <string>

namespace asr {

inline constexpr std::size_t kUuidLength = 36;

// Of version 4, which is random; lower case.
std::string random_uuid();

}  // namespace asr
