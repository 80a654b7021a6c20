#include "session/caller.hpp"

#include <array>

namespace asr {

namespace {

constexpr std::array<std::string_view, 4> kRoles{"viewer", "user", "operator", "admin"};

}  // namespace

std::optional<Role> parse_role(std::string_view text) noexcept {
  for (std::size_t i = 0; i < kRoles.size(); ++i)
    if (kRoles[i] == text) return static_cast<Role>(i);
  return std::nullopt;
}

std::string_view to_string(Role role) noexcept { return kRoles[static_cast<std::size_t>(role)]; }

}  // namespace asr
