#include "store/paging.hpp"

#include <charconv>
#include <optional>

namespace asr {

namespace {

constexpr std::size_t kLongestCursor = 512;
constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string base64url(std::string_view bytes) {
  std::string text;
  std::uint32_t held = 0;
  int bits = 0;
  for (char c : bytes) {
    held = held << 8U | static_cast<unsigned char>(c);
    for (bits += 8; bits >= 6; bits -= 6) text.push_back(kAlphabet[held >> (bits - 6) & 63U]);
  }
  if (bits > 0) text.push_back(kAlphabet[held << (6 - bits) & 63U]);
  return text;
}

std::optional<std::string> from_base64url(std::string_view text) {
  std::string bytes;
  std::uint32_t held = 0;
  int bits = 0;
  for (char c : text) {
    std::size_t value = std::string_view(kAlphabet).find(c);
    if (value == std::string_view::npos) return std::nullopt;
    held = held << 6U | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>(held >> bits & 255U));
  }
  return bytes;
}

}  // namespace

Result<std::int64_t> checked_limit(std::int64_t limit) {
  if (limit < 1 || limit > kMostPerPage)
    return fail(Errc::invalid, "the limit must be between 1 and " + std::to_string(kMostPerPage));
  return limit;
}

std::string to_cursor(const Position& position) {
  return base64url(std::to_string(position.created_ms) + ":" + position.id);
}

Result<Position> from_cursor(std::string_view cursor) {
  auto refuse = [] {
    return fail(Errc::invalid, "the cursor is not one that a list has given",
                "take it unchanged from the page before, or leave it out to begin anew");
  };
  if (cursor.size() > kLongestCursor) return refuse();
  auto text = from_base64url(cursor);
  if (!text) return refuse();
  Position position;
  const char* end = text->data() + text->size();
  auto [rest, ec] = std::from_chars(text->data(), end, position.created_ms);
  if (ec != std::errc() || rest == end || *rest != ':') return refuse();
  position.id.assign(rest + 1, end);
  // There is one way to write a position: whoever made another one did not get it from us.
  if (position.id.empty() || to_cursor(position) != cursor) return refuse();
  return position;
}

}  // namespace asr
