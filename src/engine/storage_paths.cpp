#include "engine/storage_paths.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/file.hpp"

namespace asr {

namespace {

Result<void> check_owner(int fd, const std::string& path, mode_t others) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail_errno("stat " + path);
  if (info.st_uid == ::geteuid() && (info.st_mode & others) == 0) return {};
  return fail(Errc::denied, path + " is not the engine's alone",
              "disks and volumes lie in a folder that only the engine's user may write to");
}

}  // namespace

Result<UniqueFd> open_storage_root(const std::filesystem::path& path) {
  std::error_code ec;
  std::filesystem::create_directories(path.parent_path(), ec);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_errno("mkdir " + path.native());
  UniqueFd root = TRY(open_dir(AT_FDCWD, path.native()));
  TRY(check_owner(root.get(), path.native(), 0022));
  return root;
}

Result<UniqueFd> open_storage_file(int root, const std::string& path) {
  UniqueFd file = TRY(open_resolved(root, path, O_RDWR | O_NONBLOCK, Resolve::plain));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return fail_errno("stat " + path);
  if (!S_ISREG(info.st_mode)) return fail(Errc::invalid, path + " is not a file");
  TRY(check_owner(file.get(), path, 0077));
  return file;
}

Result<UniqueFd> open_storage_folder(int root, const std::string& path) {
  return open_resolved(root, path, O_RDONLY | O_DIRECTORY, Resolve::plain);
}

Result<StoragePlace> make_place(int root, const std::string& path) {
  StoragePlace place;
  place.folder = TRY(open_dir(root, "."));
  std::size_t from = 0;
  for (std::size_t to = 0; (to = path.find('/', from)) != std::string::npos; from = to + 1) {
    std::string part = path.substr(from, to - from);
    if (::mkdirat(place.folder.get(), part.c_str(), 0700) != 0 && errno != EEXIST)
      return fail_errno("mkdir " + part);
    place.folder =
        TRY(open_resolved(place.folder.get(), part, O_RDONLY | O_DIRECTORY, Resolve::plain));
  }
  place.name = path.substr(from);
  return place;
}

}  // namespace asr
