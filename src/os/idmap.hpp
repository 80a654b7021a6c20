// Mounts that show a directory's files under other owners, so that one copy serves every uid range.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

enum class Access { read_only, writable };

// A detached mount of `path` whose ids are those of the user namespace: id n on disk appears as n
// inside.
Result<UniqueFd> idmapped_clone(const std::string& path, int userns, Access access);

// The same for a mount that is attached nowhere yet; nosuid and nodev as well.
Result<void> idmap(int mount, int userns, Access access);

// A user namespace without a process, for such mounts: `count` ids from `inside` on are those from
// `outside` on.
Result<UniqueFd> make_userns(std::uint32_t inside, std::uint32_t outside, std::uint32_t count);

// Whether the file system of `path` allows it. Tried, not guessed.
bool can_idmap(const std::string& path);

}  // namespace asr
