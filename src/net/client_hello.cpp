#include "net/client_hello.hpp"

#include <algorithm>
#include <optional>
#include <set>

namespace asr {

namespace {

constexpr char kHandshake = 22;
constexpr char kClientHello = 1;
constexpr std::size_t kRecordHeader = 5;
constexpr std::size_t kMostRecord = 16 * 1024;
constexpr std::size_t kMessageHeader = 4;
constexpr unsigned kServerName = 0;
constexpr unsigned kEncryptedHello = 0xfe0d;

// Numbers and lists off the front of a text; once something is missing, everything is.
class Fields {
 public:
  explicit Fields(std::string_view text) : text_(text) {}

  std::string_view bytes(std::size_t n) {
    if (n > text_.size()) broken_ = true;
    std::string_view taken = text_.substr(0, broken_ ? 0 : n);
    text_.remove_prefix(taken.size());
    return taken;
  }
  std::size_t number(std::size_t width) {
    std::size_t value = 0;
    for (char c : bytes(width)) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }
  std::string_view list(std::size_t width) { return bytes(number(width)); }
  bool ok() const noexcept { return !broken_; }
  bool at_end() const noexcept { return text_.empty(); }

 private:
  std::string_view text_;
  bool broken_ = false;
};

std::size_t length_in(std::string_view message) {
  Fields fields(message.substr(1));
  return fields.number(3);
}

// One name, of the one kind there is.
std::optional<std::string> name_in(std::string_view body) {
  Fields outer(body);
  Fields names(outer.list(2));
  bool is_host = names.number(1) == 0;
  std::string name(names.list(2));
  if (!outer.ok() || !outer.at_end() || !names.ok() || !names.at_end() || !is_host || name.empty())
    return std::nullopt;
  return name;
}

}  // namespace

ClientHelloReader::State ClientHelloReader::feed(std::string_view bytes) {
  while (state_ == State::more && !bytes.empty()) {
    // Content of a record is taken as a whole, the rest byte by byte.
    std::size_t n = std::min(record_left_, bytes.size());
    if (fed_ + std::max<std::size_t>(n, 1) > kMostBytes) return state_ = State::malformed;
    if (n > 0) {
      message_.append(bytes.substr(0, n));
      record_left_ -= n;
      state_ = parse();
    } else {
      state_ = take(bytes[n++]);
    }
    fed_ += n;
    bytes.remove_prefix(n);
  }
  return state_;
}

ClientHelloReader::State ClientHelloReader::take(char byte) {
  header_ += byte;
  if (header_.size() == 1 && byte != kHandshake)
    return message_.empty() ? State::not_tls : State::malformed;
  if (header_.size() == 2 && byte != 3) return State::malformed;
  if (header_.size() < kRecordHeader) return State::more;
  Fields fields(std::string_view(header_).substr(3));
  record_left_ = fields.number(2);
  header_.clear();
  bool sensible = record_left_ > 0 && record_left_ <= kMostRecord;
  return sensible ? State::more : State::malformed;
}

// Looks at the message once it is whole.
ClientHelloReader::State ClientHelloReader::parse() {
  if (message_[0] != kClientHello) return State::malformed;
  if (message_.size() < kMessageHeader) return State::more;
  std::size_t length = length_in(message_);
  if (length > kMostBytes) return State::malformed;
  if (message_.size() < kMessageHeader + length) return State::more;
  Fields fields(std::string_view(message_).substr(kMessageHeader, length));
  std::size_t version = fields.number(2);
  fields.bytes(32);  // random
  fields.list(1);    // session
  fields.list(2);    // cipher suites
  fields.list(1);    // compression
  if (!fields.ok() || version < 0x0301) return State::malformed;
  if (fields.at_end()) return State::complete;
  Fields extensions(fields.list(2));
  if (!fields.ok() || !fields.at_end()) return State::malformed;
  std::set<unsigned> seen;
  while (!extensions.at_end()) {
    auto kind = static_cast<unsigned>(extensions.number(2));
    std::string_view body = extensions.list(2);
    // Of two names, who knows which one the server takes.
    if (!extensions.ok() || !seen.insert(kind).second || !parse_extension(kind, body))
      return State::malformed;
  }
  return State::complete;
}

bool ClientHelloReader::parse_extension(unsigned kind, std::string_view body) {
  if (kind == kEncryptedHello) encrypted_ = true;
  if (kind != kServerName) return true;
  auto name = name_in(body);
  if (name) host_ = std::move(*name);
  return name.has_value();
}

}  // namespace asr
