// Extended attributes that users may set on their files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace asr {

// Those of an entry that is no link: a name, its value, the next name … Bounded; what does not fit,
// or cannot be read, is left out.
std::vector<std::string> attributes_of(int dir, const std::string& name);

// `wanted`, told in the same way, instead of all whose names begin with `prefix`.
Result<void> replace_attributes(int file, std::string_view prefix,
                                const std::vector<std::string>& wanted);

}  // namespace asr
