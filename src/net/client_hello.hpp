// The first message of a TLS client, read without taking part: which host it wants to speak to.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace asr {

// Takes bytes as they come, in pieces of any size and records cut anywhere, at a cost that grows
// with their number and no faster. Keeps no more than it must.
class ClientHelloReader {
 public:
  enum class State {
    more,       // not complete yet
    complete,   // host() and the rest are known
    not_tls,    // the first byte already is something else
    malformed,  // TLS, but nothing a server should be asked to understand; or too long
  };
  static constexpr std::size_t kMostBytes = 32 * 1024;

  // Once it is not `more`, it stays.
  State feed(std::string_view bytes);
  State state() const noexcept { return state_; }

  // server_name as it was sent; empty if there was none.
  const std::string& host() const noexcept { return host_; }
  // An encrypted hello is inside (or noise that looks like one): another name may be meant.
  bool has_encrypted_hello() const noexcept { return encrypted_; }

 private:
  State take(char byte);
  State parse();
  bool parse_extension(unsigned kind, std::string_view body);

  State state_ = State::more;
  std::size_t fed_ = 0;
  std::string header_;           // of the record that is being read
  std::size_t record_left_ = 0;  // of its content
  std::string message_;
  std::string host_;
  bool encrypted_ = false;
};

}  // namespace asr
