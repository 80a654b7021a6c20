// Streams of saved files as somebody hostile would write them, made into files in a folder of our
// own: entries of every kind with names and links that lead everywhere, in any order.
//
// What must hold: no crash, and nothing outside of the folder is made, changed or removed.
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/id.hpp"
#include "guest/archive_stream.hpp"
#include "guest/restorer.hpp"
#include "os/file.hpp"
#include "wire/saved_files.hpp"

namespace asr {
namespace {

namespace fs = std::filesystem;

constexpr int kMostEntries = 24;
constexpr std::size_t kMostBytes = 1 << 20;

// Ours, with a neighbour that must not notice anything.
class Ground {
 public:
  Ground() : dir_(fs::temp_directory_path() / ("asr-fuzz-saved-" + random_name(10))) {
    fs::create_directories(dir_ / "outside");
    std::ofstream(dir_ / "outside/f") << "before";
    ::chmod((dir_ / "outside/f").c_str(), 0644);
    rlimit size{kMostBytes, kMostBytes};
    (void)::setrlimit(RLIMIT_FSIZE, &size);
    ::signal(SIGXFSZ, SIG_IGN);
  }
  ~Ground() { (void)remove_tree(AT_FDCWD, dir_.native()); }

  UniqueFd clear() {
    if (!remove_tree(AT_FDCWD, (dir_ / "inside").native())) std::abort();
    fs::create_directories(dir_ / "inside/proc");
    fs::create_directory_symlink("../outside", dir_ / "inside/link");
    return UniqueFd(::open((dir_ / "inside").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }

  void check() const {
    std::ifstream file(dir_ / "outside/f");
    std::string text(std::istreambuf_iterator<char>(file), {});
    auto count = [](const fs::path& path) {
      return std::distance(fs::directory_iterator(path), fs::directory_iterator());
    };
    struct stat info {};
    if (text != "before" || count(dir_) != 2 || count(dir_ / "outside") != 1 ||
        count(dir_ / "inside/proc") != 0 || ::lstat((dir_ / "outside/f").c_str(), &info) != 0 ||
        info.st_nlink != 1 || (info.st_mode & 07777) != 0644) {
      std::fprintf(stderr, "something got out\n");
      std::abort();
    }
  }

 private:
  fs::path dir_;
};

std::string some_name(FuzzedDataProvider& input) {
  constexpr std::array kParts{"a", "b", "c", "..", ".", "", "link", "outside", "f", "proc"};
  std::string name;
  for (int parts = input.ConsumeIntegralInRange(1, 4); parts > 0; --parts) {
    if (!name.empty() || input.ConsumeIntegralInRange(0, 15) == 0) name += '/';
    name += input.PickValueInArray(kParts);
  }
  return name;
}

void describe(archive_entry* entry, FuzzedDataProvider& input) {
  constexpr std::array<unsigned, 7> kTypes{AE_IFREG, AE_IFREG, AE_IFDIR, AE_IFDIR,
                                           AE_IFLNK, AE_IFIFO, AE_IFCHR};
  unsigned type = input.PickValueInArray(kTypes);
  ::archive_entry_set_pathname(entry, some_name(input).c_str());
  ::archive_entry_set_filetype(entry, type);
  ::archive_entry_set_perm(entry, input.ConsumeIntegral<std::uint16_t>() & 07777);
  ::archive_entry_set_uid(entry, input.ConsumeIntegralInRange(-1, 70000));
  ::archive_entry_set_gid(entry, input.ConsumeIntegralInRange(-1, 70000));
  ::archive_entry_set_mtime(entry, input.ConsumeIntegral<std::int64_t>(), 0);
  if (type == AE_IFLNK) ::archive_entry_set_symlink(entry, some_name(input).c_str());
  if (type == AE_IFREG && input.ConsumeIntegralInRange(0, 3) == 0)
    ::archive_entry_set_hardlink(entry, some_name(input).c_str());
  if (type == AE_IFCHR && input.ConsumeIntegralInRange(0, 7) == 0)
    ::archive_entry_set_rdev(entry, 0x103);
  if (type == AE_IFDIR && input.ConsumeBool())
    ::archive_entry_xattr_add_entry(entry, wire::kSavedReplaces, "y", 1);
  if (input.ConsumeIntegralInRange(0, 7) == 0)
    ::archive_entry_xattr_add_entry(entry, input.ConsumeRandomLengthString(20).c_str(), "v", 1);
}

// A tar in memory; mostly whole, as far as its entries allow.
std::string some_stream(FuzzedDataProvider& input) {
  std::string bytes(256 * 1024, '\0');
  std::size_t used = 0;
  ArchiveWriter out(::archive_write_new());
  ::archive_write_set_format_pax(out.get());
  ::archive_write_set_options(out.get(), "hdrcharset=BINARY,xattrheader=LIBARCHIVE");
  ::archive_write_set_bytes_in_last_block(out.get(), 512);
  if (::archive_write_open_memory(out.get(), bytes.data(), bytes.size(), &used) != ARCHIVE_OK)
    std::abort();
  ArchiveEntry entry(::archive_entry_new());
  int count = 0;
  while (count < kMostEntries && input.remaining_bytes() > 0) {
    ::archive_entry_clear(entry.get());
    describe(entry.get(), input);
    std::string contents = input.ConsumeRandomLengthString(100);
    bool file = ::archive_entry_filetype(entry.get()) == AE_IFREG &&
                ::archive_entry_hardlink(entry.get()) == nullptr;
    ::archive_entry_set_size(entry.get(), file ? static_cast<la_int64_t>(contents.size()) : 0);
    if (::archive_write_header(out.get(), entry.get()) < ARCHIVE_WARN) continue;
    if (file) (void)::archive_write_data(out.get(), contents.data(), contents.size());
    ++count;
  }
  ::archive_entry_clear(entry.get());
  ::archive_entry_set_pathname(entry.get(), ".");
  ::archive_entry_set_filetype(entry.get(), AE_IFDIR);
  std::string text = std::to_string(count);
  ::archive_entry_xattr_add_entry(entry.get(), wire::kSavedEnd, text.data(), text.size());
  (void)::archive_write_header(out.get(), entry.get());
  ::archive_write_close(out.get());
  bytes.resize(used);
  return bytes;
}

}  // namespace
}  // namespace asr

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace asr;
  static Ground ground;
  static const Scratch scratch = [] {
    Scratch made;
    made.foreign = {"/proc"};
    made.one_id = ::geteuid() != 0;
    return made;
  }();
  FuzzedDataProvider input(data, size);
  std::string bytes = input.ConsumeIntegralInRange(0, 15) == 0
                          ? input.ConsumeRemainingBytesAsString()
                          : some_stream(input);
  ArchiveReader in(::archive_read_new());
  ::archive_read_support_format_tar(in.get());
  UniqueFd root = ground.clear();
  if (::archive_read_open_memory(in.get(), bytes.data(), bytes.size()) == ARCHIVE_OK)
    (void)Restorer(in.get(), std::move(root), scratch).run();
  ground.check();
  return 0;
}
