// Tar archives byte by byte, so that a test can write what no sane program would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace asr::test {

class TarWriter {
 public:
  // One entry; `type` is the letter of the format: 0 file, 1 hard link, 2 symlink, 3 and 4 devices,
  // 5 directory, 6 FIFO.
  TarWriter& entry(std::string_view name, char type, std::string_view contents = {},
                   std::string_view link = {}, unsigned mode = 0644);
  TarWriter& file(std::string_view name, std::string_view contents, unsigned mode = 0644) {
    return entry(name, '0', contents, {}, mode);
  }
  TarWriter& directory(std::string_view name, unsigned mode = 0755) {
    return entry(name, '5', {}, {}, mode);
  }
  TarWriter& symlink(std::string_view name, std::string_view target) {
    return entry(name, '2', {}, target, 0777);
  }
  TarWriter& hard_link(std::string_view name, std::string_view target) {
    return entry(name, '1', {}, target);
  }
  // A header that promises `size` bytes, of which the archive has only what is appended by raw().
  TarWriter& header_only(std::string_view name, std::uint64_t size);
  TarWriter& raw(std::string_view bytes);

  std::string finish() const;  // with the end mark
  const std::string& unfinished() const { return bytes_; }

 private:
  void header(std::string_view name, char type, std::uint64_t size, std::string_view link,
              unsigned mode);
  std::string bytes_;
};

// `head` and then that many zero bytes, compressed with gzip: zeros take a thousandth of their
// size.
std::string gzip(std::string_view head, std::uint64_t zeros = 0);

}  // namespace asr::test
