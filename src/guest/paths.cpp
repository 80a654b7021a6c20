#include "guest/paths.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include "os/file.hpp"

namespace asr {

namespace {

std::string_view without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

std::string_view last_component(std::string_view path) {
  path = without_trailing_slashes(path);
  std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string parent_of(std::string_view path) {
  path = without_trailing_slashes(path);
  std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return "/";
  return std::string(path.substr(0, slash));
}

}  // namespace

Result<UniqueFd> sandbox_root() {
  UniqueFd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return fail_errno("open /");
  return root;
}

bool is_root(std::string_view path) {
  return path.find_first_not_of('/') == std::string_view::npos;
}

bool is_inside(std::string_view path, std::string_view folder) {
  path = without_trailing_slashes(path);
  folder = without_trailing_slashes(folder);
  return is_root(folder) ||
         (path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/'));
}

Result<ParentAndName> resolve_parent(const std::string& path) {
  std::string_view name = last_component(path);
  if (path.empty() || name.empty() || name == "." || name == "..")
    return fail(Errc::invalid, "\"" + path + "\" does not name a file");
  UniqueFd root = TRY(sandbox_root());
  UniqueFd parent =
      TRY(open_resolved(root.get(), parent_of(path), O_PATH | O_DIRECTORY, Resolve::in_root));
  return ParentAndName{std::move(parent), std::string(name)};
}

Result<void> make_parents(const std::string& path) {
  std::string parent = parent_of(path);
  if (is_root(parent)) return {};
  UniqueFd root = TRY(sandbox_root());
  if (open_resolved(root.get(), parent, O_PATH | O_DIRECTORY, Resolve::in_root)) return {};
  TRY(make_parents(parent));
  ParentAndName place = TRY(resolve_parent(parent));
  if (::mkdirat(place.parent.get(), place.name.c_str(), 0755) != 0 && errno != EEXIST)
    return fail_errno(parent);
  return {};
}

}  // namespace asr
