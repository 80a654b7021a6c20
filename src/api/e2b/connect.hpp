// Connect-RPC as E2B's clients speak it: JSON only, nothing compressed. Bytes and values; no
// sockets.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "net/json.hpp"

namespace asr {

enum class ConnectCode {
  canceled,
  unknown,
  invalid_argument,
  deadline_exceeded,
  not_found,
  already_exists,
  permission_denied,
  resource_exhausted,
  failed_precondition,
  aborted,
  unimplemented,
  internal,
  unavailable,
  unauthenticated,
};
std::string_view to_string(ConnectCode code) noexcept;
// Of an answer that is not a stream.
unsigned status_of(ConnectCode code) noexcept;

struct ConnectError {
  ConnectCode code = ConnectCode::unknown;
  std::string message;
};
// What a failure of ours is called there.
ConnectError connect_error(const Error& error);
json::object json_of(const ConnectError& error);

// One message of a stream: a flag, a length of four bytes, the payload.
struct Envelope {
  static constexpr std::size_t kHead = 5;
  static constexpr std::uint8_t kCompressed = 1;
  static constexpr std::uint8_t kEnd = 2;

  std::uint8_t flags = 0;
  std::string payload;
};
void append_envelope(std::string& to, std::uint8_t flags, std::string_view payload);
void append_message(std::string& to, const json::value& message);
// A stream always has one, and it is the last; what went wrong stands in it.
void append_end(std::string& to, const std::optional<ConnectError>& error = std::nullopt);

// Envelopes out of a stream of bytes that come as they like. More than `most` of one is
// Errc::exhausted.
class EnvelopeReader {
 public:
  explicit EnvelopeReader(std::size_t most) : most_(most) {}

  void feed(std::string_view bytes) { buffer_.append(bytes); }
  // Nothing while the next one is not complete.
  Result<std::optional<Envelope>> next();
  bool is_between() const noexcept { return at_ == buffer_.size(); }

 private:
  std::size_t most_;
  std::string buffer_;
  std::size_t at_ = 0;  // what of it was given out
};

// "Connect-Timeout-Ms": none or zero is no limit. Errc::invalid if it is no number of at most ten
// digits.
Result<std::chrono::milliseconds> connect_timeout(std::string_view header);
// How long something may take for its end to be told before a client gives up that waits so long.
std::chrono::milliseconds time_to_be_told(std::chrono::milliseconds limit);
// "Keepalive-Ping-Interval" in seconds; what makes no sense is 90.
std::chrono::seconds keepalive_interval(std::string_view header);

// Whether a Content-Type is `wanted`, whatever is said behind a semicolon.
bool is_media(std::string_view header, std::string_view wanted);

// Fields of a message, as protobuf's JSON has them: "pty", but also "include_entry" for
// "includeEntry"; null is as if it were not there.
const json::value* field_of(const json::object& message, std::string_view camel);
Result<std::string> text_field(const json::object& message, std::string_view camel);
Result<bool> bool_field(const json::object& message, std::string_view camel, bool standard);
// A number, or a text with one: 64 bits do not fit into JSON's numbers everywhere.
Result<std::int64_t> int_field(const json::object& message, std::string_view camel,
                               std::int64_t standard);
// Base64, with or without padding, in either alphabet.
Result<std::string> bytes_field(const json::object& message, std::string_view camel);

}  // namespace asr
