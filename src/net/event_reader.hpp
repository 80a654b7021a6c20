// Server-sent events out of a stream of bytes.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace asr {

struct ServerEvent {
  std::string type = "message";
  std::string id;
  std::string data;
};

class EventReader {
 public:
  static constexpr std::size_t kMostBytes = 16 << 20;  // of one event

  // Calls `take` with each event that is complete. The first error, its own or that of `take`, ends
  // it: what follows in `bytes` is not looked at.
  Result<void> feed(std::string_view bytes, const std::function<Result<void>(ServerEvent)>& take);

 private:
  Result<void> end_line(const std::function<Result<void>(ServerEvent)>& take);

  std::string line_;
  ServerEvent event_;
  bool has_data_ = false;
};

}  // namespace asr
