// Whether two files are the same by what is in them. Neither is believed to be what it was a moment
// ago: no link is followed, no FIFO waited for, and whatever is odd is a difference.
#pragma once

#include <cstdint>
#include <string_view>

namespace asr {

// Files called `name` in two folders; both have this size, as far as anybody knows.
bool have_same_contents(int a_dir, int b_dir, const char* name, std::uint64_t size) noexcept;
bool has_contents(int dir, const char* name, std::string_view contents) noexcept;
// The same for links.
bool have_same_target(int a_dir, int b_dir, const char* name) noexcept;

}  // namespace asr
