#include "os/file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <vector>

namespace asr {

Result<std::string> read_bytes(int dir, const std::string& name, std::size_t most) {
  UniqueFd fd(::openat(dir, name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno("open " + name);
  std::string text;
  std::string chunk(4096, '\0');
  for (;;) {
    ssize_t n = ::read(fd.get(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read " + name);
    if (n == 0) break;
    text.append(chunk.data(), static_cast<std::size_t>(n));
    if (text.size() > most) return fail(Errc::exhausted, name + " is too long");
  }
  return text;
}

Result<std::string> read_small_file(int dir, const std::string& name, std::size_t most) {
  std::string text = TRY(read_bytes(dir, name, most));
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

namespace {

Result<std::uint64_t> to_number(std::string_view text, const std::string& name) {
  std::uint64_t value = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc()) return fail(Errc::internal, name + " is not a number");
  return value;
}

}  // namespace

Result<std::uint64_t> read_number(int dir, const std::string& name) {
  return to_number(TRY(read_small_file(dir, name)), name);
}

Result<std::uint64_t> read_keyed(int dir, const std::string& name, std::string_view key) {
  std::string text = TRY(read_small_file(dir, name));
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ')
      return to_number(line.substr(key.size() + 1), name);
  }
  return fail(Errc::not_found, name + " has no " + std::string(key));
}

Result<void> write_value(int dir, const std::string& name, std::string_view value) {
  UniqueFd fd(::openat(dir, name.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return fail_errno("open " + name);
  ssize_t n = ::write(fd.get(), value.data(), value.size());
  if (n != static_cast<ssize_t>(value.size())) return fail_errno("write " + name);
  return {};
}

Result<UniqueFd> open_dir(int dir, const std::string& name) {
  UniqueFd fd(::openat(dir, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail_errno("open " + name);
  return fd;
}

Result<UniqueFd> open_resolved(int dir, const std::string& path, int flags, Resolve resolve,
                               unsigned mode) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags) | O_CLOEXEC;
  how.mode = mode;
  how.resolve = RESOLVE_NO_MAGICLINKS;
  bool in_root = resolve == Resolve::in_root || resolve == Resolve::no_symlinks;
  how.resolve |= in_root ? RESOLVE_IN_ROOT : RESOLVE_BENEATH;
  if (resolve != Resolve::in_root && resolve != Resolve::beneath)
    how.resolve |= RESOLVE_NO_SYMLINKS;
  if (resolve == Resolve::one_mount) how.resolve |= RESOLVE_NO_XDEV;
  // EAGAIN: a rename raced with "..". The kernel asks for another try; a hostile renamer must not
  // keep us here for ever.
  for (int tries = 0; tries < 64; ++tries) {
    UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, dir, path.c_str(), &how, sizeof how)));
    if (fd) return fd;
    if (errno != EAGAIN && errno != EINTR) break;
  }
  return fail_errno("open " + path);
}

namespace {

struct CloseDir {
  void operator()(DIR* dir) const noexcept { ::closedir(dir); }
};
using Dir = std::unique_ptr<DIR, CloseDir>;

bool is_dots(const char* name) {
  return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

// Unlinks what is not a directory, until it finds a sub-directory that is not empty: its name, or
// "".
Result<std::string> empty_files(int dir) {
  int copy = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return fail_errno("open directory");
  Dir stream(::fdopendir(copy));
  if (!stream) return fail_errno("fdopendir");
  while (dirent* entry = ::readdir(stream.get())) {
    if (is_dots(entry->d_name)) continue;
    if (::unlinkat(dir, entry->d_name, 0) == 0) continue;
    if (errno != EISDIR && errno != EPERM) return fail_errno("unlink");
    if (::unlinkat(dir, entry->d_name, AT_REMOVEDIR) == 0) continue;
    if (errno != ENOTEMPTY && errno != EEXIST) return fail_errno("rmdir");
    // Not on: looking at all the others again after each would cost the square of their number.
    return std::string(entry->d_name);
  }
  return std::string();
}

// Into a directory.
struct Step {
  std::string name;
  ino_t parent;  // all are on one file system
};

}  // namespace

Result<void> remove_tree(int dir, const std::string& name) {
  if (::unlinkat(dir, name.c_str(), 0) == 0) return {};
  if (errno == ENOENT) return {};
  int refused = errno;
  if (refused != EISDIR && refused != EPERM) return fail_errno("remove " + name);
  UniqueFd top(::openat(dir, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!top && (errno == ENOTDIR || errno == ELOOP)) errno = refused;  // It is no directory.
  if (!top) return fail_errno("remove " + name);
  struct stat root {};
  if (::fstat(top.get(), &root) != 0) return fail_errno("stat " + name);

  // Walks down into the first directory that is not empty and up again through "..", which leads
  // elsewhere once somebody has moved the directory: only where we came from do we go on.
  std::vector<Step> path;
  UniqueFd here = std::move(top);
  ino_t id = root.st_ino;
  for (;;) {
    std::string below = TRY(empty_files(here.get()));
    if (!below.empty()) {
      UniqueFd next(
          ::openat(here.get(), below.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!next) return fail_errno("open " + below);
      struct stat info {};
      if (::fstat(next.get(), &info) != 0 || info.st_dev != root.st_dev)
        return fail(Errc::conflict, below + " is on another file system");
      path.push_back({std::move(below), id});
      id = info.st_ino;
      here = std::move(next);
      continue;
    }
    if (path.empty()) break;
    UniqueFd up(::openat(here.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!up) return fail_errno("open ..");
    struct stat info {};
    if (::fstat(up.get(), &info) != 0) return fail_errno("stat ..");
    if (info.st_dev != root.st_dev || info.st_ino != path.back().parent)
      return fail(Errc::conflict, path.back().name + " was moved while it was being removed");
    here = std::move(up);
    id = info.st_ino;
    if (::unlinkat(here.get(), path.back().name.c_str(), AT_REMOVEDIR) != 0)
      return fail_errno("rmdir");
    path.pop_back();
  }
  here.reset();
  if (::unlinkat(dir, name.c_str(), AT_REMOVEDIR) != 0) return fail_errno("rmdir " + name);
  return {};
}

}  // namespace asr
