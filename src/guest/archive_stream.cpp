#include "guest/archive_stream.hpp"

#include <unistd.h>

namespace asr {

Error archive_error(archive* a, const std::string& what) {
  const char* text = ::archive_error_string(a);
  return Error(Errc::invalid, what + ": " + (text != nullptr ? text : "unknown error"));
}

bool leads_outside(const std::string& name) {
  return name == ".." || name.starts_with("../") || name.find("/../") != std::string::npos ||
         name.ends_with("/..");
}

Result<void> read_contents(archive* in, archive_entry* entry, int fd, const std::string& name) {
  const void* block = nullptr;
  std::size_t size = 0;
  la_int64_t offset = 0;
  for (;;) {
    int status = ::archive_read_data_block(in, &block, &size, &offset);
    if (status == ARCHIVE_EOF) break;
    if (status < ARCHIVE_WARN) return fail(archive_error(in, name));
    while (size > 0) {
      ssize_t n = ::pwrite(fd, block, size, offset);
      if (n < 0) return fail_errno(name);
      block = static_cast<const char*>(block) + n;
      size -= static_cast<std::size_t>(n);
      offset += n;
    }
  }
  // A sparse end has no block of its own.
  if (::archive_entry_size(entry) > 0 && ::ftruncate(fd, ::archive_entry_size(entry)) != 0)
    return fail_errno(name);
  return {};
}

}  // namespace asr
