#include "session/file_diff.hpp"

#include <unistd.h>

#include <optional>

#include "session/change_list.hpp"
#include "session/text_diff.hpp"

namespace asr {

namespace {

using State = FileDiff::State;
using Kind = FileChange::Kind;

// A file's contents, or why they are not to be had.
struct Contents {
  State state = State::text;
  std::string bytes;
  std::string why;
};

Contents contents_of(int file, std::uint64_t most) {
  Contents contents;
  std::string chunk(64 << 10, '\0');
  for (;;) {
    ssize_t n = ::read(file, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {State::unreadable, {}, errno_error(errno, "read").what};
    if (n == 0) break;
    contents.bytes.append(chunk.data(), static_cast<std::size_t>(n));
    if (contents.bytes.size() > most) return {State::too_large, {}, {}};
  }
  if (!is_text(contents.bytes)) return {State::binary, {}, {}};
  return contents;
}

enum class Missing { is_empty, is_an_error };

asio::awaitable<Contents> read(OpenFile open, std::string path, std::uint64_t most,
                               Missing missing) {
  auto opening = open(std::move(path));
  auto file = co_await std::move(opening);
  if (file) co_return contents_of(file->get(), most);
  // Before, something else was there: a folder, a link, a file that no longer stands for it.
  Errc code = file.error().code;
  bool was_no_file = code == Errc::not_found || code == Errc::conflict;
  if (was_no_file && missing == Missing::is_empty) co_return Contents{};
  co_return Contents{State::unreadable, {}, file.error().what};
}

DiffNames names_of(const FileChange& change, std::string_view from) {
  std::string name = change.path;
  if (!from.empty() && is_within(name, from)) name.erase(0, from.size());
  return {change.kind == Kind::added ? "" : name, change.kind == Kind::removed ? "" : name};
}

// As root where the sandbox has one: a file that only its owner may read has changed, too.
asio::awaitable<Result<UniqueFd>> open_now(std::shared_ptr<Sandbox> sandbox, std::string path) {
  auto opening = sandbox->open_read(path, "root");
  auto file = co_await std::move(opening);
  if (file || file.error().code != Errc::unsupported) co_return file;
  auto again = sandbox->open_read(std::move(path), "user");
  co_return co_await std::move(again);
}

asio::awaitable<FileDiff> diff_file(FileChange change, OpenFile before, OpenFile after,
                                    FileDiffOptions options) {
  FileDiff diff;
  diff.change = std::move(change);
  const FileChange& what = diff.change;
  if (!options.text || what.type != FileType::file) co_return diff;
  Contents old_one, new_one;
  if (what.size > options.most_file_bytes || what.size_before > options.most_file_bytes) {
    diff.state = State::too_large;
    co_return diff;
  }
  if (what.kind != Kind::added) {
    auto reading = read(before, what.path, options.most_file_bytes, Missing::is_empty);
    old_one = co_await std::move(reading);
  }
  if (what.kind != Kind::removed) {
    auto reading = read(after, what.path, options.most_file_bytes, Missing::is_an_error);
    new_one = co_await std::move(reading);
  }
  for (Contents* each : {&old_one, &new_one}) {
    if (each->state == State::text) continue;
    diff.state = each->state;
    diff.why = std::move(each->why);
    co_return diff;
  }
  TextDiff lines = diff_texts(old_one.bytes, new_one.bytes);
  diff.state = State::text;
  diff.added_lines = lines.added;
  diff.removed_lines = lines.removed;
  diff.text = unified(lines, names_of(what, options.names_from));
  co_return diff;
}

}  // namespace

OpenFile files_now(std::shared_ptr<Sandbox> sandbox) {
  return [sandbox = std::move(sandbox)](std::string path) {
    return open_now(sandbox, std::move(path));
  };
}

OpenFile files_at_start(std::shared_ptr<Sandbox> sandbox) {
  return [sandbox = std::move(sandbox)](std::string path) {
    return sandbox->open_before(std::move(path));
  };
}

std::string_view to_string(State state) noexcept {
  switch (state) {
    case State::none:
      return "none";
    case State::text:
      return "text";
    case State::binary:
      return "binary";
    case State::too_large:
      return "too_large";
    case State::too_much:
      return "too_much";
    case State::unreadable:
      break;
  }
  return "unreadable";
}

json::object json_of(const FileDiff& diff) {
  const FileChange& change = diff.change;
  json::object out;
  put_bytes(out, "path", change.path);
  out["change"] = to_string(change.kind);
  out["type"] = to_string(change.type);
  out["size"] = change.size;
  out["size_before"] = change.size_before;
  out["mode"] = change.mode;
  if (change.type == FileType::symlink) put_bytes(out, "target", change.target);
  if (diff.state == State::none) return out;
  if (diff.state != State::text) {
    out["no_diff"] = to_string(diff.state);
    if (!diff.why.empty()) out["why"] = repair_utf8(diff.why);
    return out;
  }
  out["added_lines"] = diff.added_lines;
  out["removed_lines"] = diff.removed_lines;
  put_bytes(out, "diff", diff.text);
  return out;
}

asio::awaitable<std::vector<FileDiff>> diff_files(std::vector<FileChange> changes, OpenFile before,
                                                  OpenFile after, FileDiffOptions options) {
  std::vector<FileDiff> diffs;
  diffs.reserve(changes.size());
  std::size_t room = options.most_diff_bytes;
  std::uint64_t to_read = options.most_read_bytes;
  for (FileChange& change : changes) {
    bool large =
        change.size > options.most_file_bytes || change.size_before > options.most_file_bytes;
    bool is_read = change.type == FileType::file && !large;
    std::uint64_t sizes = is_read ? change.size + change.size_before : 0;
    if (options.text && sizes > to_read) {
      diffs.push_back({std::move(change), State::too_much, 0, 0, {}, {}});
      continue;
    }
    auto comparing = diff_file(std::move(change), before, after, options);
    FileDiff diff = co_await std::move(comparing);
    if (options.text) to_read -= sizes;
    if (diff.text.size() > room) {
      diff.text.clear();
      diff.state = State::too_much;
    }
    room -= diff.text.size();
    diffs.push_back(std::move(diff));
  }
  co_return diffs;
}

}  // namespace asr
