// Small files of the kernel's pseudo file systems, safe path resolution, and deletion that cannot
// fail for lack of descriptors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

// Every byte of a file; more than `most` are an error.
Result<std::string> read_bytes(int dir, const std::string& name, std::size_t most);
// The text of a small file, without its trailing newlines. Not for bytes that may end with one.
Result<std::string> read_small_file(int dir, const std::string& name, std::size_t most = 65536);
Result<std::uint64_t> read_number(int dir, const std::string& name);
// "key value" lines, as in memory.stat: the value of one key, or an error if it is not there.
Result<std::uint64_t> read_keyed(int dir, const std::string& name, std::string_view key);

// One write(2): the kernel takes a value whole or not at all. Never creates the file.
Result<void> write_value(int dir, const std::string& name, std::string_view value);

Result<UniqueFd> open_dir(int dir, const std::string& name);

// How a name may wander on its way to a file.
enum class Resolve {
  in_root,      // `dir` is the root: absolute names and links start there, ".." stops there
  beneath,      // leaving `dir` by any means is an error
  no_symlinks,  // in_root, and a link anywhere on the way is an error
  plain,        // beneath, and a link anywhere on the way is an error
  one_mount,    // plain, and so is another mount
};
// openat2, never following magic links of /proc.
Result<UniqueFd> open_resolved(int dir, const std::string& path, int flags, Resolve resolve,
                               unsigned mode = 0);

// Removes a tree below `dir` without following links, and nothing else even while somebody moves
// parts of it: that is Errc::conflict. Needs three descriptors however deep it is, and memory only
// for one path of names.
Result<void> remove_tree(int dir, const std::string& name);

}  // namespace asr
