// Names the daemon gives, led through the sandbox's own root and nowhere else.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

Result<UniqueFd> sandbox_root();

bool is_root(std::string_view path);

// Whether `path` is `folder` or lies in it, by name.
bool is_inside(std::string_view path, std::string_view folder);

// The directory a name is in, opened, and the last component, which is not followed. For the calls
// that have no openat2 of their own: unlink, rename, mkdir. A name that ends in "." or ".." is
// refused.
struct ParentAndName {
  UniqueFd parent;
  std::string name;
};
Result<ParentAndName> resolve_parent(const std::string& path);

// Makes the directories above the last component that are missing.
Result<void> make_parents(const std::string& path);

}  // namespace asr
