// Tar streams of what a user may read.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "guest/packer.hpp"
#include "guest/paths.hpp"
#include "guest/work.hpp"
#include "os/file.hpp"

namespace asr {

namespace {

constexpr int kDeepest = 256;

Result<void> add_below(Packer& packer, int dir, const std::string& path, int depth) {
  if (depth > kDeepest) return fail(Errc::exhausted, path + ": too many nested directories");
  int copy = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return fail_errno(path);
  std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(copy), ::closedir);
  if (!stream) return fail_errno(path);
  while (dirent* entry = ::readdir(stream.get())) {
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    std::string own_path = path.empty() ? name : path + "/" + name;
    UniqueFd folder = TRY(packer.add(dir, name.c_str(), own_path));
    if (folder) TRY(add_below(packer, folder.get(), own_path, depth + 1));
  }
  return {};
}

}  // namespace

Result<void> work_on_archive_out(const Work& work, const wire::File& request) {
  UniqueFd root = TRY(sandbox_root());
  UniqueFd top =
      TRY(open_resolved(root.get(), request.path, O_RDONLY | O_NONBLOCK, Resolve::in_root));
  struct stat info {};
  if (::fstat(top.get(), &info) != 0) return fail_errno(request.path);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe");
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  std::array<int, 1> sent{reader.get()};
  TRY(work.answer(wire::Opened{}, sent));
  reader.reset();

  ArchiveWriter out(::archive_write_new());
  ::archive_write_set_format_pax_restricted(out.get());
  ::archive_write_set_bytes_per_block(out.get(), 65536);
  ::archive_write_set_bytes_in_last_block(out.get(), 512);
  // The answer went out with the pipe, so a failure now can only be an early end of the stream,
  // which tar readers notice: the archive lacks its end mark.
  if (::archive_write_open_fd(out.get(), writer.get()) != ARCHIVE_OK) ::_exit(0);
  Packer packer(out.get(), Packer::Detail::plain);
  if (S_ISDIR(info.st_mode)) {
    if (!add_below(packer, top.get(), "", 0)) ::_exit(0);
  } else {
    ParentAndName place = TRY(resolve_parent(request.path));
    if (!packer.add(place.parent.get(), place.name.c_str(), place.name)) ::_exit(0);
  }
  ::archive_write_close(out.get());
  ::_exit(0);
}

}  // namespace asr
