// A file as it was when the sandbox began, whatever became of it: read from the layers below.
#include <fcntl.h>
#include <sys/stat.h>

#include <array>

#include "guest/lower_folders.hpp"
#include "guest/work.hpp"

namespace asr {

namespace {

// Part by part, never through a link: layers hold what somebody else has made.
Result<UniqueFd> open_in(LowerFolders folders, std::string_view path, const std::string& whole) {
  for (;;) {
    while (path.starts_with('/')) path.remove_prefix(1);
    std::string part(path.substr(0, path.find('/')));
    path.remove_prefix(part.size());
    if (part.empty() || part == "." || part == "..")
      return fail(Errc::invalid, "\"" + whole + "\" does not name a file");
    bool last = path.find_first_not_of('/') == std::string_view::npos;
    struct stat info {};
    int dir = folders.find(part.c_str(), info);
    if (dir < 0) return fail(Errc::not_found, whole + " was not there before");
    if (!last) {
      folders = folders.below(part.c_str());
      continue;
    }
    if (!S_ISREG(info.st_mode)) return fail(Errc::conflict, whole + " was not a regular file");
    UniqueFd file(
        ::openat(dir, part.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!file) return fail_errno(whole);
    return file;
  }
}

}  // namespace

Result<void> work_on_before(const Work& work, const wire::File& request, const Scratch& scratch) {
  const Scratch::Tree* tree = scratch.tree_of(request.path);
  if (tree == nullptr) return fail(Errc::not_found, request.path + " was not there before");
  LowerFolders folders;
  for (int lower : tree->lowers) folders.add(lower);
  std::string_view below = std::string_view(request.path).substr(tree->path.size());
  UniqueFd file = TRY(open_in(std::move(folders), below, request.path));
  std::array<int, 1> sent{file.get()};
  return work.answer(wire::Opened{}, sent);
}

}  // namespace asr
