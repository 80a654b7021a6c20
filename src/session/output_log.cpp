#include "session/output_log.hpp"

#include <algorithm>

namespace asr {

namespace {

constexpr std::size_t kPieceBytes = 32 * 1024;  // Small writes are gathered up to this.

}  // namespace

void OutputLog::append(OutputChunk::Stream stream, std::string data) {
  if (data.empty()) return;
  std::size_t size = data.size();
  if (!pieces_.empty() && pieces_.back().stream == stream &&
      pieces_.back().data.size() + size <= kPieceBytes)
    pieces_.back().data += data;
  else
    pieces_.push_back({end_, stream, std::move(data)});
  end_ += size;
  while (kept() > most_) {
    Piece& oldest = pieces_.front();
    std::size_t excess = kept() - most_;
    if (oldest.data.size() <= excess) {
      begin_ += oldest.data.size();
      pieces_.pop_front();
    } else {
      oldest.data.erase(0, excess);
      oldest.offset += excess;
      begin_ += excess;
    }
  }
}

std::vector<OutputLog::Piece> OutputLog::read(std::uint64_t offset, std::size_t most) const {
  std::vector<Piece> out;
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                [](std::uint64_t at, const Piece& p) { return at < p.offset; });
  if (piece != pieces_.begin()) --piece;
  std::size_t taken = 0;
  for (; piece != pieces_.end() && taken < most; ++piece) {
    std::uint64_t skip = offset > piece->offset ? offset - piece->offset : 0;
    if (skip >= piece->data.size()) continue;
    std::string part = piece->data.substr(static_cast<std::size_t>(skip), most - taken);
    taken += part.size();
    out.push_back({piece->offset + skip, piece->stream, std::move(part)});
  }
  return out;
}

std::string OutputLog::text_of(OutputChunk::Stream stream) const {
  std::string text;
  for (const Piece& piece : pieces_)
    if (piece.stream == stream) text += piece.data;
  return text;
}

}  // namespace asr
