// Messages of a Connect stream: a flag, a length, JSON. They come from a server that is not
// believed: lengths are bounded before anything is kept.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "net/json.hpp"

namespace asr::e2b {

std::string envelope(const json::value& message);

class Envelopes {
 public:
  static constexpr std::size_t kLongest = 4 << 20;

  struct Message {
    bool last = false;  // the end of the stream, with its error if there is one
    json::object body;
  };

  void feed(std::string_view bytes) { pending_ += bytes; }
  // The next that is complete. Errc::internal once nothing sensible can follow.
  Result<std::optional<Message>> next();

 private:
  std::string pending_;
  std::size_t taken_ = 0;  // bytes of pending_ that were told already
};

}  // namespace asr::e2b
