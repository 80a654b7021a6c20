// Names from inside a sandbox that are to be names in a folder of the host's.
#pragma once

#include <string_view>

namespace asr {

// Whether a link with this target, at this path of a folder, leads to a place in that folder
// whatever the folder's other links do: ".." only at its beginning, and not too many of them.
bool stays_inside(std::string_view path, std::string_view target) noexcept;

// "a/b/c": no "..", no empty part, nothing too long.
bool is_plain_path(std::string_view path) noexcept;

}  // namespace asr
