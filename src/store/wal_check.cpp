#include "store/wal_check.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <vector>

namespace asr {

namespace {

// https://www.sqlite.org/fileformat2.html#the_write_ahead_log
constexpr std::size_t kHeaderSize = 32;
constexpr std::size_t kFrameHeaderSize = 24;
constexpr std::uint32_t kMagic =
    0x377f0682;  // The lowest bit says: checksums over big-endian words.

std::uint32_t big_endian(const unsigned char* at) {
  return static_cast<std::uint32_t>(at[0]) << 24U | static_cast<std::uint32_t>(at[1]) << 16U |
         static_cast<std::uint32_t>(at[2]) << 8U | at[3];
}

std::uint32_t little_endian(const unsigned char* at) {
  return static_cast<std::uint32_t>(at[3]) << 24U | static_cast<std::uint32_t>(at[2]) << 16U |
         static_cast<std::uint32_t>(at[1]) << 8U | at[0];
}

struct Checksum {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  friend bool operator==(const Checksum&, const Checksum&) = default;

  static Checksum stored(const unsigned char* at) { return {big_endian(at), big_endian(at + 4)}; }
  Checksum over(std::span<const unsigned char> data, bool big) const {
    Checksum sum = *this;
    for (std::size_t i = 0; i + 8 <= data.size(); i += 8) {
      const unsigned char* at = data.data() + i;
      sum.first += (big ? big_endian(at) : little_endian(at)) + sum.second;
      sum.second += (big ? big_endian(at + 4) : little_endian(at + 4)) + sum.first;
    }
    return sum;
  }
};

struct Header {
  bool big;
  std::size_t page_size;
  std::array<unsigned char, 8> salts;
  Checksum sum;
};

std::optional<Header> parse_header(std::span<const unsigned char, kHeaderSize> bytes) {
  std::uint32_t magic = big_endian(bytes.data());
  std::uint32_t page_size = big_endian(bytes.data() + 8);
  if ((magic & ~1U) != kMagic || page_size < 512 || page_size > 65536 ||
      !std::has_single_bit(page_size))
    return std::nullopt;
  Header header{(magic & 1U) != 0, page_size, {}, Checksum::stored(bytes.data() + 24)};
  if (Checksum().over(bytes.first(24), header.big) != header.sum) return std::nullopt;
  std::memcpy(header.salts.data(), bytes.data() + 16, header.salts.size());
  return header;
}

bool fill(std::ifstream& in, std::span<unsigned char> buffer) {
  in.read(reinterpret_cast<char*>(buffer.data()), static_cast<std::streamsize>(buffer.size()));
  return in.gcount() == static_cast<std::streamsize>(buffer.size());
}

// A frame's checksum goes on from that of the frame before it. Frames with other salts are left
// over from an earlier use of the file.
WalVerdict walk(std::ifstream& in, const Header& header) {
  WalVerdict verdict;
  std::vector<unsigned char> frame(kFrameHeaderSize + header.page_size);
  std::span<const unsigned char> bytes(frame);
  Checksum sum = header.sum;
  bool broken = false;
  while (fill(in, frame)) {
    bool ours = std::memcmp(frame.data() + 8, header.salts.data(), header.salts.size()) == 0;
    sum = sum.over(bytes.first(8), header.big).over(bytes.subspan(kFrameHeaderSize), header.big);
    Checksum stored = Checksum::stored(frame.data() + 16);
    bool whole = ours && sum == stored;
    if (!broken && whole) {
      ++verdict.readable;
    } else if (broken && ours) {
      ++verdict.lost;
    }
    broken = broken || !whole;
    sum = stored;
  }
  return verdict;
}

}  // namespace

Result<WalVerdict> check_wal(const std::filesystem::path& path) {
  std::error_code ec;
  std::uintmax_t size = std::filesystem::file_size(path, ec);
  if (ec == std::errc::no_such_file_or_directory) return WalVerdict();
  if (ec) return fail(errno_error(ec.value(), "look at " + path.native()));
  if (size < kHeaderSize) return WalVerdict();
  std::ifstream in(path, std::ios::binary);
  std::array<unsigned char, kHeaderSize> bytes{};
  if (!fill(in, bytes)) return fail(Errc::os, path.native() + " cannot be read");
  if (auto header = parse_header(bytes)) return walk(in, *header);
  // Nobody can tell how many frames; SQLite will take none.
  return WalVerdict{.readable = 0, .lost = size > kHeaderSize ? 1U : 0U};
}

}  // namespace asr
