#include "session/session_id.hpp"

#include <algorithm>

#include "base/id.hpp"

namespace asr {

namespace {

constexpr std::string_view kDigits = "0123456789abcdefghjkmnpqrstvwxyz";

}  // namespace

std::string make_session_id(const NodeName& node) {
  std::string id = node.code;
  id.resize(kNodeCode, '0');
  for (std::size_t i = 0; i < kEpochCode; ++i)
    id += kDigits[node.epoch >> (5 * (kEpochCode - 1 - i)) & 31U];
  return id + random_name(kRandomCode);
}

bool is_session_id(std::string_view text) noexcept {
  return text.size() == kSessionIdLength && std::all_of(text.begin(), text.end(), [](char c) {
           return kDigits.find(c) != std::string_view::npos;
         });
}

}  // namespace asr
