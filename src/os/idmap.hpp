// Mounts that show a directory's files under other owners, so that one copy serves every uid range.
#pragma once

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

enum class Access { read_only, writable };

// A detached mount of `path` whose ids are those of the user namespace: id n on disk appears as n
// inside.
Result<UniqueFd> idmapped_clone(const std::string& path, int userns, Access access);

// Whether the file system of `path` allows it. Tried, not guessed.
bool can_idmap(const std::string& path);

}  // namespace asr
