#include "os/memory_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace asr {

namespace {

// Kernels from 6.3 on want to be told; older ones do not know the word.
constexpr unsigned kMayBeExecuted = 0x0010;

}  // namespace

Result<MemoryFile> MemoryFile::make(const char* name) {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(::memfd_create(name, flags | kMayBeExecuted));
  if (!fd && errno == EINVAL) fd = UniqueFd(::memfd_create(name, flags));
  if (!fd) return fail_errno("memfd_create");
  return MemoryFile(std::move(fd));
}

Result<void> MemoryFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno("write to memory");
    bytes.remove_prefix(static_cast<std::size_t>(n));
    size_ += static_cast<std::uint64_t>(n);
  }
  return {};
}

Result<UniqueFd> MemoryFile::share() const {
  UniqueFd copy(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 3));
  if (!copy) return fail_errno("dup");
  return copy;
}

Result<UniqueFd> MemoryFile::seal() {
  if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) !=
      0)
    return fail_errno("seal");
  std::string path = "/proc/self/fd/" + std::to_string(fd_.get());
  UniqueFd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reader) return fail_errno("open sealed memory");
  fd_.reset();
  return reader;
}

Result<UniqueFd> sealed_copy(const char* name, std::string_view bytes) {
  MemoryFile file = TRY(MemoryFile::make(name));
  TRY(file.append(bytes));
  return file.seal();
}

}  // namespace asr
