// A line of /proc/self/maps, and which of its pages the program has made its own. For freeze, which
// has no library.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "frozen/image.hpp"
#include "frozen/kernel_calls.hpp"

namespace asr::frozen {

struct Mapping {
  std::uint64_t begin = 0, end = 0, offset = 0;
  std::uint64_t device = 0, inode = 0;  // what file it is of; zero: none
  std::uint32_t protection = 0;
  bool shared = false;
  const char* name = nullptr;  // up to the end of the line
};

inline bool begins(const char* name, const char* with) {
  while (*with != '\0')
    if (*name++ != *with++) return false;
  return true;
}

// How long a name is, without what the kernel says of a file that nobody finds any more.
inline std::uint64_t length_of(const char* name, bool& deleted) {
  std::uint64_t length = 0;
  while (name[length] != '\n' && name[length] != '\0') ++length;
  constexpr char kDeleted[] = " (deleted)";
  constexpr std::uint64_t kSize = sizeof(kDeleted) - 1;
  deleted = length > kSize && begins(name + length - kSize, kDeleted);
  return deleted ? length - kSize : length;
}

inline std::uint64_t hexadecimal(const char*& at) {
  std::uint64_t value = 0;
  for (;; ++at) {
    if (*at >= '0' && *at <= '9')
      value = value * 16 + static_cast<std::uint64_t>(*at - '0');
    else if (*at >= 'a' && *at <= 'f')
      value = value * 16 + static_cast<std::uint64_t>(*at - 'a' + 10);
    else
      return value;
  }
}

// begin-end perms offset major:minor inode name
inline Mapping read_mapping(const char*& at) {
  Mapping mapping;
  mapping.begin = hexadecimal(at);
  mapping.end = hexadecimal(++at);
  ++at;
  if (at[0] == 'r') mapping.protection |= PROT_READ;
  if (at[1] == 'w') mapping.protection |= PROT_WRITE;
  if (at[2] == 'x') mapping.protection |= PROT_EXEC;
  mapping.shared = at[3] == 's';
  at += 5;
  mapping.offset = hexadecimal(at);
  mapping.device = hexadecimal(++at) << 32;
  mapping.device |= hexadecimal(++at);
  for (++at; *at >= '0' && *at <= '9'; ++at)
    mapping.inode = mapping.inode * 10 + static_cast<std::uint64_t>(*at - '0');
  while (*at == ' ') ++at;
  mapping.name = at;
  while (*at != '\n' && *at != '\0') ++at;
  if (*at == '\n') ++at;
  return mapping;
}

// The number in the name of a layer's file; zero: it is none.
inline std::uint64_t layer_number(const Mapping& mapping) {
  const char* at = mapping.name;
  if (!begins(at, "/memfd:")) return 0;
  at += sizeof("/memfd:") - 1;
  if (!begins(at, kLayerName)) return 0;
  at += sizeof(kLayerName) - 1;
  return hexadecimal(at);
}

// What the kernel tells of pages, some thousand of them at a time.
class PageFlags {
 public:
  int open() {
    std::int64_t file =
        kernel(__NR_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    if (failed(file)) return static_cast<int>(file);
    file_ = static_cast<int>(file);
    first_ = count_ = 0;
    return 0;
  }
  void close() { kernel(__NR_close, file_); }

  // Whether the page holds what no file holds: the program has written to it.
  bool is_own(std::uint64_t address) {
    std::uint64_t page = address / kPage;
    if (page < first_ || page >= first_ + count_) read_from(page);
    if (page < first_ || page >= first_ + count_) return true;  // Unknown: taken for certain.
    std::uint64_t flags = words_[page - first_];
    bool there = (flags & (kPresent | kSwapped)) != 0;
    return there && (flags & kOfFile) == 0;
  }

 private:
  static constexpr std::uint64_t kPresent = 1ULL << 63;
  static constexpr std::uint64_t kSwapped = 1ULL << 62;
  static constexpr std::uint64_t kOfFile = 1ULL << 61;
  static constexpr std::uint64_t kAtOnce = 4096;

  void read_from(std::uint64_t page) {
    first_ = page;
    std::int64_t n = kernel(__NR_pread64, file_, words_, sizeof(words_), page * 8);
    count_ = n > 0 ? static_cast<std::uint64_t>(n) / 8 : 0;
  }

  int file_ = -1;
  std::uint64_t first_ = 0, count_ = 0;
  std::uint64_t words_[kAtOnce];
};

}  // namespace asr::frozen
