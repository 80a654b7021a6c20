#include "api/e2b/connect.hpp"

#include <algorithm>
#include <charconv>

#include "net/http.hpp"

namespace asr {

namespace {

constexpr std::string_view kNames[] = {
    "canceled",       "unknown",           "invalid_argument",   "deadline_exceeded",   "not_found",
    "already_exists", "permission_denied", "resource_exhausted", "failed_precondition", "aborted",
    "unimplemented",  "internal",          "unavailable",        "unauthenticated"};
constexpr unsigned kStatuses[] = {499, 500, 400, 504, 404, 409, 403,
                                  429, 400, 409, 501, 500, 503, 401};

std::string snake_of(std::string_view camel) {
  std::string text;
  for (char c : camel) {
    if (c >= 'A' && c <= 'Z') {
      text += '_';
      c = static_cast<char>(c - 'A' + 'a');
    }
    text += c;
  }
  return text;
}

Error bad_field(std::string_view name, const char* what) {
  return Error(Errc::invalid, "the field " + std::string(name) + " must be " + what);
}

}  // namespace

std::string_view to_string(ConnectCode code) noexcept {
  return kNames[static_cast<std::size_t>(code)];
}

unsigned status_of(ConnectCode code) noexcept { return kStatuses[static_cast<std::size_t>(code)]; }

ConnectError connect_error(const Error& error) {
  auto code = [&] {
    switch (error.code) {
      case Errc::invalid:
        return ConnectCode::invalid_argument;
      case Errc::not_found:
        return ConnectCode::not_found;
      case Errc::conflict:
        return ConnectCode::failed_precondition;
      case Errc::denied:
        return ConnectCode::permission_denied;
      case Errc::exhausted:
        return ConnectCode::resource_exhausted;
      case Errc::timeout:
        return ConnectCode::deadline_exceeded;
      case Errc::unsupported:
        return ConnectCode::unimplemented;
      case Errc::gone:
        return ConnectCode::unavailable;
      default:
        return ConnectCode::internal;
    }
  }();
  std::string message = error.what;
  if (!error.hint.empty()) message += " (" + error.hint + ")";
  return {code, std::move(message)};
}

json::object json_of(const ConnectError& error) {
  return {{"code", to_string(error.code)}, {"message", repair_utf8(error.message)}};
}

void append_envelope(std::string& to, std::uint8_t flags, std::string_view payload) {
  to.push_back(static_cast<char>(flags));
  for (int shift = 24; shift >= 0; shift -= 8)
    to.push_back(static_cast<char>(payload.size() >> static_cast<unsigned>(shift) & 255U));
  to.append(payload);
}

void append_message(std::string& to, const json::value& message) {
  append_envelope(to, 0, to_text(message));
}

void append_end(std::string& to, const std::optional<ConnectError>& error) {
  json::object end;
  if (error) end["error"] = json_of(*error);
  append_envelope(to, Envelope::kEnd, to_text(end));
}

Result<std::optional<Envelope>> EnvelopeReader::next() {
  std::string_view left = std::string_view(buffer_).substr(at_);
  if (left.size() < Envelope::kHead) return std::optional<Envelope>();
  std::size_t size = 0;
  for (std::size_t i = 1; i < Envelope::kHead; ++i)
    size = size << 8U | static_cast<unsigned char>(left[i]);
  if (size > most_)
    return fail(Errc::exhausted, "the message is larger than " + std::to_string(most_) + " bytes");
  if (left.size() < Envelope::kHead + size) return std::optional<Envelope>();
  Envelope envelope;
  envelope.flags = static_cast<std::uint8_t>(left[0]);
  if ((envelope.flags & Envelope::kCompressed) != 0)
    return fail(Errc::unsupported, "compressed messages are not understood");
  envelope.payload = left.substr(Envelope::kHead, size);
  at_ += Envelope::kHead + size;
  if (at_ == buffer_.size() || at_ > 64 * 1024) {  // Not for every small one.
    buffer_.erase(0, at_);
    at_ = 0;
  }
  return std::optional<Envelope>(std::move(envelope));
}

Result<std::chrono::milliseconds> connect_timeout(std::string_view header) {
  std::int64_t value = 0;
  auto [end, ec] = std::from_chars(header.data(), header.data() + header.size(), value);
  if (header.empty()) return std::chrono::milliseconds(0);
  if (ec != std::errc() || end != header.data() + header.size() || value < 0 || header.size() > 10)
    return fail(Errc::invalid, "Connect-Timeout-Ms is no number of at most ten digits");
  return std::chrono::milliseconds(value);
}

std::chrono::milliseconds time_to_be_told(std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kMostEarlier(250);
  return limit - std::min(limit / 20, kMostEarlier);
}

std::chrono::seconds keepalive_interval(std::string_view header) {
  constexpr int kStandard = 90;
  int value = 0;
  auto [end, ec] = std::from_chars(header.data(), header.data() + header.size(), value);
  bool sound =
      ec == std::errc() && end == header.data() + header.size() && value > 0 && value <= 3600;
  return std::chrono::seconds(sound ? value : kStandard);
}

bool is_media(std::string_view header, std::string_view wanted) {
  header = header.substr(0, std::min(header.find(';'), header.size()));
  while (!header.empty() && header.back() == ' ') header.remove_suffix(1);
  return equal_ignoring_case(header, wanted);
}

const json::value* field_of(const json::object& message, std::string_view camel) {
  const json::value* found = message.if_contains(camel);
  if (!found) found = message.if_contains(snake_of(camel));
  return found && !found->is_null() ? found : nullptr;
}

Result<std::string> text_field(const json::object& message, std::string_view camel) {
  const json::value* found = field_of(message, camel);
  if (!found) return std::string();
  if (!found->is_string()) return fail(bad_field(camel, "a text"));
  return std::string(found->get_string());
}

Result<bool> bool_field(const json::object& message, std::string_view camel, bool standard) {
  const json::value* found = field_of(message, camel);
  if (!found) return standard;
  if (!found->is_bool()) return fail(bad_field(camel, "true or false"));
  return found->get_bool();
}

Result<std::int64_t> int_field(const json::object& message, std::string_view camel,
                               std::int64_t standard) {
  const json::value* found = field_of(message, camel);
  if (!found) return standard;
  if (found->is_int64()) return found->get_int64();
  std::int64_t value = 0;
  if (found->is_string()) {
    const auto& text = found->get_string();
    auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (ec == std::errc() && end == text.data() + text.size()) return value;
  }
  return fail(bad_field(camel, "a whole number"));
}

Result<std::string> bytes_field(const json::object& message, std::string_view camel) {
  std::string text = TRY(text_field(message, camel));
  for (char& c : text) c = c == '-' ? '+' : c == '_' ? '/' : c;
  while (text.size() % 4 != 0) text += '=';
  return from_base64(text);
}

}  // namespace asr
