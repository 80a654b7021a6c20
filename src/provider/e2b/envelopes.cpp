#include "provider/e2b/envelopes.hpp"

namespace asr::e2b {

namespace {

constexpr std::size_t kHead = 5;
constexpr unsigned char kLast = 0x02;

}  // namespace

std::string envelope(const json::value& message) {
  std::string text = to_text(message);
  auto size = static_cast<std::uint32_t>(text.size());
  std::string out(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8)
    out += static_cast<char>(static_cast<unsigned char>(size >> shift));
  return out + text;
}

Result<std::optional<Envelopes::Message>> Envelopes::next() {
  std::string_view rest = std::string_view(pending_).substr(taken_);
  if (rest.size() < kHead) return std::optional<Message>();
  auto flags = static_cast<unsigned char>(rest[0]);
  std::size_t size = 0;
  for (std::size_t i = 1; i < kHead; ++i) size = size << 8 | static_cast<unsigned char>(rest[i]);
  if ((flags & ~kLast) != 0)
    return fail(Errc::provider, "the other side sends messages of an unknown kind");
  if (size > kLongest) return fail(Errc::provider, "the other side sends too long a message");
  if (rest.size() < kHead + size) return std::optional<Message>();
  auto value = parse_json(rest.substr(kHead, size), 100'000);
  if (!value || !value->is_object())
    return fail(Errc::provider, "the other side sends messages that are not JSON");
  taken_ += kHead + size;
  if (taken_ > pending_.size() / 2) {
    pending_.erase(0, taken_);
    taken_ = 0;
  }
  return Message{(flags & kLast) != 0, std::move(value->get_object())};
}

}  // namespace asr::e2b
