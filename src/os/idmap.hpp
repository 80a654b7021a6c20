// Mounts that show a directory's files under other owners, so that one copy serves every uid range.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

enum class Access { read_only, writable };

// A detached mount of `path` whose ids are those of the user namespace: id n on disk appears as n
// inside.
Result<UniqueFd> idmapped_clone(const std::string& path, int userns, Access access);

// The same with the owners it has.
Result<UniqueFd> clone_of(const std::string& path);

// The same for a mount that is attached nowhere yet; nosuid and nodev as well.
Result<void> idmap(int mount, int userns, Access access);

// A user namespace without a process, for such mounts: `count` ids from `inside` on are those from
// `outside` on.
Result<UniqueFd> make_userns(std::uint32_t inside, std::uint32_t outside, std::uint32_t count);

// The same with several ranges, for users and for groups.
struct IdRange {
  std::uint32_t inside = 0;
  std::uint32_t outside = 0;
  std::uint32_t count = 0;
};
struct IdMaps {
  std::vector<IdRange> users;
  std::vector<IdRange> groups;
};
Result<UniqueFd> make_userns(const IdMaps& maps);

// `count` ids from `outside` on are 0 and up, but `owner` takes the place of `user`, whose own
// place becomes the owner's if that is one of them.
std::vector<IdRange> with_owner(std::uint32_t owner, std::uint32_t user, std::uint32_t outside,
                                std::uint32_t count);

// Whether the file system of `path` allows it. Tried, not guessed.
bool can_idmap(const std::string& path);

}  // namespace asr
