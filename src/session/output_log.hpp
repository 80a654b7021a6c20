// What a command wrote: the last of it, bounded, with the place of each byte.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/sandbox.hpp"

namespace asr {

// Both streams share one count of bytes, so that an offset is a moment: who has seen everything up
// to it misses nothing by going on there.
class OutputLog {
 public:
  struct Piece {
    std::uint64_t offset = 0;
    OutputChunk::Stream stream = OutputChunk::Stream::out;
    std::string data;
  };

  // `first`: where the count begins, when what came before is forgotten already.
  explicit OutputLog(std::size_t most, std::uint64_t first = 0)
      : most_(most), begin_(first), end_(first) {}

  void append(OutputChunk::Stream stream, std::string data);

  std::uint64_t begin() const noexcept { return begin_; }  // the oldest byte that is kept
  std::uint64_t end() const noexcept { return end_; }
  std::size_t kept() const noexcept { return static_cast<std::size_t>(end_ - begin_); }

  // From `offset` on, or from the oldest that is kept; about `most` bytes.
  std::vector<Piece> read(std::uint64_t offset, std::size_t most) const;
  std::string text_of(OutputChunk::Stream stream) const;
  const std::deque<Piece>& pieces() const noexcept { return pieces_; }  // all that is kept

 private:
  std::size_t most_;
  std::deque<Piece> pieces_;
  std::uint64_t begin_;
  std::uint64_t end_;
};

}  // namespace asr
