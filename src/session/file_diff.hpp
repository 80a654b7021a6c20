// What became of a sandbox's files, each with its contents before and after compared, as far as
// that can be read.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "engine/changes.hpp"
#include "engine/sandbox.hpp"
#include "net/json.hpp"

namespace asr {

namespace asio = boost::asio;

// Opens a regular file to be read, by its path in the sandbox. Whether it is the sandbox as it is,
// as it was, or a folder of the host's is the caller's business.
using OpenFile = std::function<asio::awaitable<Result<UniqueFd>>(std::string path)>;
OpenFile files_now(std::shared_ptr<Sandbox> sandbox);
OpenFile files_at_start(std::shared_ptr<Sandbox> sandbox);

struct FileDiff {
  enum class State {
    none,        // nothing to compare: no file, or nobody asked
    text,        // compared
    binary,      // no text, before or after
    too_large,   // one of the two is
    too_much,    // after all the others
    unreadable,  // see `why`
  };
  FileChange change;
  State state = State::none;
  std::size_t added_lines = 0;
  std::size_t removed_lines = 0;
  std::string text;  // as `diff -u` has it
  std::string why;
};
std::string_view to_string(FileDiff::State state) noexcept;
json::object json_of(const FileDiff& diff);

struct FileDiffOptions {
  bool text = true;
  std::uint64_t most_file_bytes = 256 << 10;
  std::uint64_t most_read_bytes = 32 << 20;  // of all files, before and after
  std::size_t most_diff_bytes = 4 << 20;     // of all diffs
  std::string names_from;                    // left out at the beginning of names in the diffs
};

// Takes as long as reading and comparing does: not for a thread that others wait for.
asio::awaitable<std::vector<FileDiff>> diff_files(std::vector<FileChange> changes, OpenFile before,
                                                  OpenFile after, FileDiffOptions options);

}  // namespace asr
