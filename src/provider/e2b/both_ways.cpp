#include "provider/e2b/both_ways.hpp"

#include <charconv>

#include "net/json.hpp"

namespace asr::e2b {

Result<void> BothWays::feed(std::string_view bytes) {
  if (skipping_) {
    std::size_t end = bytes.find('\n');
    if (end == std::string_view::npos) return {};
    bytes.remove_prefix(end + 1);
    skipping_ = false;
  }
  pending_ += bytes;
  if (pending_.size() > kLongestLine && pending_.find('\n') == std::string::npos)
    return fail(Errc::internal, "the interpreter's channel is broken");
  return {};
}

Result<std::optional<BothWays::Line>> BothWays::next() {
  std::size_t end = pending_.find('\n');
  if (end == std::string::npos) return std::optional<Line>();
  std::string text = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  auto broken = [] { return fail(Errc::internal, "the interpreter's channel is broken"); };
  if (text.empty()) return broken();
  std::string_view rest = std::string_view(text).substr(1);
  Line line;
  switch (text[0]) {
    case 'o':
    case 'e':
    case 'r': {
      auto data = from_base64(rest);
      if (!data) return broken();
      line.chunk = {text[0] == 'o'   ? OutputChunk::Stream::out
                    : text[0] == 'e' ? OutputChunk::Stream::err
                                     : OutputChunk::Stream::reply,
                    std::move(*data)};
      return line;
    }
    case 's':
    case 'x': {
      line.kind = text[0] == 's' ? Line::Kind::not_started : Line::Kind::ended;
      auto [stop, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), line.number);
      if (ec != std::errc() || stop != rest.data() + rest.size()) return broken();
      return line;
    }
    default:
      return broken();
  }
}

}  // namespace asr::e2b
