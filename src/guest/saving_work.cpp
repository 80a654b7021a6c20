// Everything that was written, as a stream; and a sandbox that begins with what such a stream says.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

#include "guest/changes.hpp"
#include "guest/packer.hpp"
#include "guest/restorer.hpp"
#include "guest/work.hpp"

namespace asr {

namespace {

constexpr int kPipeBytes = 1 << 20;
constexpr off_t kMostOfAList = 64 << 20;
constexpr std::size_t kReadBytes = 256 * 1024;

// Deep trees take a descriptor for each level.
void allow_many_descriptors() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &files);
}

// Each ends with a zero byte.
Result<std::set<std::string, std::less<>>> paths_in(const UniqueFd& list) {
  std::set<std::string, std::less<>> paths;
  if (!list) return paths;
  struct stat info {};
  if (::fstat(list.get(), &info) != 0) return fail_errno("stat");
  if (info.st_size > kMostOfAList) return fail(Errc::exhausted, "too many paths");
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  if (::pread(list.get(), text.data(), text.size(), 0) != info.st_size) return fail_errno("read");
  for (std::size_t from = 0; from < text.size();) {
    std::size_t end = std::min(text.find('\0', from), text.size());
    paths.insert(text.substr(from, end - from));
    from = end + 1;
  }
  return paths;
}

class Saver final : public ChangeWalk::Visitor {
 public:
  // `only`: of these and nothing else, if there are any.
  Saver(archive* out, std::set<std::string, std::less<>> only)
      : packer_(out, Packer::Detail::saving), only_(std::move(only)) {}

  bool visit(const Written& written) override {
    done_ = save(written);
    return done_.has_value();
  }

  Result<void> finish(const Result<WalkEnd>& end) {
    if (!done_) return packer_.add_failure(done_.error());
    if (!end) return packer_.add_failure(end.error());
    if (*end != WalkEnd::complete)
      return packer_.add_failure(Error(Errc::exhausted, "too many nested folders"));
    return packer_.add_end();
  }

 private:
  Result<void> save(const Written& written) {
    bool all = only_.empty();
    if (!all && !only_.contains(written.path)) return {};
    // The folder before it says so already; and what the launch writes, the next launch writes.
    if (written.hidden && all) return {};
    bool folder = written.now != nullptr && S_ISDIR(written.now->st_mode);
    if (written.launched && written.verdict == Written::Verdict::same && !folder) return {};
    path_ = written.path == "/" ? "." : written.path.substr(1);
    if (written.now == nullptr) return packer_.add_removed(path_);
    TRY(packer_.add(written.dir, written.name, path_,
                    {.overlay = written.overlay, .replaces = written.replaces && all}));
    return {};
  }

  Packer packer_;
  std::set<std::string, std::less<>> only_;
  std::string path_;
  Result<void> done_;
};

}  // namespace

Result<void> work_on_saving(const Work& work, const Scratch& scratch, UniqueFd only) {
  allow_many_descriptors();
  auto paths = TRY(paths_in(only));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe");
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  (void)::fcntl(writer.get(), F_SETPIPE_SZ, kPipeBytes);  // A smaller one will do, too.
  std::array<int, 1> sent{reader.get()};
  TRY(work.answer(wire::Opened{}, sent));
  reader.reset();

  // From here on a failure can only be told in the stream itself, which otherwise ends early.
  ArchiveWriter out(::archive_write_new());
  ::archive_write_set_format_pax(out.get());
  // Names are bytes, and attributes are, too.
  ::archive_write_set_options(out.get(), "hdrcharset=BINARY,xattrheader=LIBARCHIVE");
  ::archive_write_set_bytes_per_block(out.get(), 65536);
  ::archive_write_set_bytes_in_last_block(out.get(), 512);
  if (::archive_write_open_fd(out.get(), writer.get()) != ARCHIVE_OK) ::_exit(0);
  Saver saver(out.get(), std::move(paths));
  ChangeWalk walk(scratch, {});
  auto end = walk.run(saver);
  if (saver.finish(end)) ::archive_write_close(out.get());
  ::_exit(0);
}

Result<void> work_on_restoring(const Work& work, const Scratch& scratch, UniqueFd tar) {
  allow_many_descriptors();
  ::umask(0);                  // Modes are those that were saved.
  ::signal(SIGXFSZ, SIG_IGN);  // A file beyond the limit is an error, not the end of us.
  UniqueFd root(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return fail_errno("open /");
  ArchiveReader in(::archive_read_new());
  ::archive_read_support_format_tar(in.get());
  if (::archive_read_open_fd(in.get(), tar.get(), kReadBytes) != ARCHIVE_OK)
    return fail(archive_error(in.get(), "not a stream of saved files"));
  Restorer restorer(in.get(), std::move(root), scratch);
  wire::ArchiveDone done;
  done.entries = TRY(restorer.run());
  return work.answer(done);
}

}  // namespace asr
