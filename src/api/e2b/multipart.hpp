// multipart/form-data read as it comes: parts are told in pieces and none is held.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace asr {

// The boundary a Content-Type names; Errc::invalid if it is no multipart/form-data, or names none
// that RFC 2046 allows.
Result<std::string> multipart_boundary(std::string_view content_type);

// Feed it, then ask for what there is until it wants more. Holds at most one piece that was fed
// and a boundary.
class MultipartReader {
 public:
  static constexpr std::size_t kMostHead = 16 * 1024;  // of one part
  static constexpr std::size_t kMostParts = 10000;

  struct Event {
    enum class Kind {
      part,   // one begins
      data,   // some of it
      done,   // of this part there is no more
      end,    // of all
      hungry  // feed
    };
    Kind kind = Kind::hungry;
    std::string name;       // of a part
    std::string filename;   // of a part; empty: it is no file
    std::string_view data;  // valid until the next call
  };

  explicit MultipartReader(const std::string& boundary) : delimiter_("\r\n--" + boundary) {
    buffer_ = "\r\n";  // The first boundary may stand at the very beginning.
  }

  void feed(std::string_view bytes);
  Result<Event> next();
  bool is_over() const noexcept { return state_ == State::over; }

 private:
  enum class State { preamble, after_boundary, head, body, over };

  Result<Event> read_head(std::size_t end);
  Event take_data();

  std::string delimiter_;
  std::string buffer_;
  std::size_t at_ = 0;
  State state_ = State::preamble;
  std::size_t parts_ = 0;
};

// A parameter of a header such as Content-Disposition, unquoted; nothing if it is not there.
std::optional<std::string> header_parameter(std::string_view header, std::string_view name);

}  // namespace asr
