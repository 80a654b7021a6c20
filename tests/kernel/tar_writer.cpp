#include "tar_writer.hpp"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace asr::test {

namespace {

constexpr std::size_t kBlock = 512;

void put(std::array<char, kBlock>& block, std::size_t at, std::size_t size, std::string_view text) {
  std::copy_n(text.begin(), std::min(size, text.size()),
              block.begin() + static_cast<std::ptrdiff_t>(at));
}

std::string octal(std::uint64_t value, std::size_t digits) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%0*llo", static_cast<int>(digits),
                static_cast<unsigned long long>(value));
  return text.data();
}

}  // namespace

void TarWriter::header(std::string_view name, char type, std::uint64_t size, std::string_view link,
                       unsigned mode) {
  std::array<char, kBlock> block{};
  if (name.size() > 100 || link.size() > 100)
    throw std::invalid_argument("a name of more than 100 bytes");
  put(block, 0, 100, name);
  put(block, 100, 8, octal(mode, 7));
  put(block, 108, 8, octal(1000, 7));
  put(block, 116, 8, octal(1000, 7));
  // Beyond eight gigabytes the size is binary, marked by the first bit.
  if (size < (1ULL << 33)) {
    put(block, 124, 12, octal(size, 11));
  } else {
    block[124] = static_cast<char>(0x80);
    for (std::size_t i = 0; i < 8; ++i) block[135 - i] = static_cast<char>(size >> (8 * i) & 0xff);
  }
  put(block, 136, 12, octal(1'700'000'000, 11));
  put(block, 148, 8, "        ");
  block[156] = type;
  put(block, 157, 100, link);
  put(block, 257, 8, std::string_view("ustar\00000", 8));
  put(block, 329, 8, octal(type == '3' || type == '4' ? 1 : 0, 7));
  put(block, 337, 8, octal(type == '3' || type == '4' ? 3 : 0, 7));
  unsigned sum = 0;
  for (char c : block) sum += static_cast<unsigned char>(c);
  put(block, 148, 8, octal(sum, 6) + std::string("\0 ", 2));
  bytes_.append(block.data(), block.size());
}

TarWriter& TarWriter::entry(std::string_view name, char type, std::string_view contents,
                            std::string_view link, unsigned mode) {
  header(name, type, contents.size(), link, mode);
  bytes_ += contents;
  bytes_.append((kBlock - contents.size() % kBlock) % kBlock, '\0');
  return *this;
}

TarWriter& TarWriter::header_only(std::string_view name, std::uint64_t size) {
  header(name, '0', size, {}, 0644);
  return *this;
}

TarWriter& TarWriter::raw(std::string_view bytes) {
  bytes_ += bytes;
  return *this;
}

std::string TarWriter::finish() const { return bytes_ + std::string(2 * kBlock, '\0'); }

std::string gzip(std::string_view head, std::uint64_t zeros) {
  std::string packed;
  auto append = [](archive*, void* to, const void* data, std::size_t size) -> la_ssize_t {
    static_cast<std::string*>(to)->append(static_cast<const char*>(data), size);
    return static_cast<la_ssize_t>(size);
  };
  std::unique_ptr<archive, int (*)(archive*)> out(::archive_write_new(), ::archive_write_free);
  ::archive_write_add_filter_gzip(out.get());
  ::archive_write_set_format_raw(out.get());
  if (::archive_write_open(out.get(), &packed, nullptr, append, nullptr) != ARCHIVE_OK)
    throw std::runtime_error("no gzip here");
  std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(::archive_entry_new(),
                                                                 ::archive_entry_free);
  ::archive_entry_set_filetype(entry.get(), AE_IFREG);
  ::archive_write_header(out.get(), entry.get());
  ::archive_write_data(out.get(), head.data(), head.size());
  std::string block(1 << 20, '\0');
  for (; zeros > 0; zeros -= std::min<std::uint64_t>(zeros, block.size()))
    ::archive_write_data(out.get(), block.data(), std::min<std::uint64_t>(zeros, block.size()));
  ::archive_write_close(out.get());
  return packed;
}

}  // namespace asr::test
