#include "guest/compared_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/unique_fd.hpp"

namespace asr {

namespace {

constexpr std::size_t kLongestTarget = 4096;

UniqueFd open_file(int dir, const char* name, std::uint64_t size) noexcept {
  UniqueFd fd(::openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  bool same = fd && ::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode) &&
              static_cast<std::uint64_t>(info.st_size) == size;
  return same ? std::move(fd) : UniqueFd();
}

}  // namespace

bool have_same_contents(int a_dir, int b_dir, const char* name, std::uint64_t size) noexcept {
  UniqueFd a = open_file(a_dir, name, size);
  UniqueFd b = open_file(b_dir, name, size);
  if (!a || !b) return false;
  std::array<char, 16384> from_a;
  std::array<char, 16384> from_b;
  while (size > 0) {
    ssize_t n = ::read(a.get(), from_a.data(), from_a.size());
    if (n <= 0 || ::read(b.get(), from_b.data(), static_cast<std::size_t>(n)) != n) return false;
    if (std::memcmp(from_a.data(), from_b.data(), static_cast<std::size_t>(n)) != 0) return false;
    size -= std::min(size, static_cast<std::uint64_t>(n));
  }
  return true;
}

bool has_contents(int dir, const char* name, std::string_view contents) noexcept {
  UniqueFd fd = open_file(dir, name, contents.size());
  if (!fd) return false;
  std::array<char, 4096> chunk;
  while (!contents.empty()) {
    ssize_t n = ::read(fd.get(), chunk.data(), std::min(chunk.size(), contents.size()));
    if (n <= 0 ||
        !contents.starts_with(std::string_view(chunk.data(), static_cast<std::size_t>(n))))
      return false;
    contents.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool have_same_target(int a_dir, int b_dir, const char* name) noexcept {
  std::array<char, kLongestTarget> a;
  std::array<char, kLongestTarget> b;
  ssize_t size = ::readlinkat(a_dir, name, a.data(), a.size());
  return size >= 0 && ::readlinkat(b_dir, name, b.data(), b.size()) == size &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(size)) == 0;
}

}  // namespace asr
