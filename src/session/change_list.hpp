// What became of a session's files, as lists: from one moment to another, and of a part of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/changes.hpp"

namespace asr {

// Whether two moments are of one sandbox, or one is of another that was made from what was saved.
// There every file has another place and another stamp, but its old time.
enum class Moments { of_one_sandbox, of_two };

// Whether a file that is there in both moments is as it was.
bool is_same(const FileChange& then, const FileChange& now, Moments moments) noexcept;

// What happened between two moments, from what each differs from the beginning by. What lies in a
// folder that is gone is not told; a folder that is back is one entry.
Changes changes_between(const Changes& before, const Changes& after, Moments moments);

// Whether `path` is `folder` or lies in it, by name.
bool is_within(std::string_view path, std::string_view folder) noexcept;

std::string_view to_string(FileChange::Kind kind) noexcept;
std::string_view to_string(FileType type) noexcept;

}  // namespace asr
