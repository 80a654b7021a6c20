// HTTP as values: heads of requests, answers. No sockets, no Beast.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace asr {

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept;
bool is_header_name(std::string_view text) noexcept;

// In the order they came; names are compared without regard to case.
class Headers {
 public:
  void add(std::string name, std::string value);
  void set(std::string_view name, std::string value);  // instead of all of that name
  void remove(std::string_view name);
  // The first of that name; empty if there is none.
  std::string_view get(std::string_view name) const noexcept;
  bool has(std::string_view name) const noexcept { return count(name) > 0; }
  std::size_t count(std::string_view name) const noexcept;
  // Whether a comma-separated list such as Connection names `token`.
  bool lists(std::string_view name, std::string_view token) const noexcept;
  const std::vector<std::pair<std::string, std::string>>& all() const noexcept { return all_; }

 private:
  std::vector<std::pair<std::string, std::string>> all_;
};

struct RequestHead {
  std::string method;
  std::string target;  // as it came: path and query
  std::string path;    // percent-decoded
  std::string query;   // still encoded
  Headers headers;
  std::string peer;  // address of the other side, without its port
  bool tls = false;
  std::optional<std::uint64_t> length;  // of the body, where it was announced
  bool has_body = false;

  // The value of a parameter of the query, decoded; nothing if it is not there.
  std::optional<std::string> parameter(std::string_view name) const;
};

struct Response {
  unsigned status = 200;
  Headers headers;
  std::string body;
};

// %41 and so on; nothing if it is malformed or hides a zero byte.
std::optional<std::string> percent_decode(std::string_view text);
std::string percent_encode(std::string_view text);  // all but letters, digits and -._~
std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query);

// Refuses every head that two readers could understand differently: bare line feeds, folded lines,
// blanks before a colon, control characters, more than one length, a length beside an encoding.
// `raw` ends with the empty line.
enum class TargetForm {
  origin,  // "/path", as servers are asked
  proxy,   // and "http://host/path" and "host:port", as proxies are
};
Result<void> check_head(std::string_view raw, TargetForm form = TargetForm::origin);

// RFC 7233, one range: "bytes=0-99", "bytes=-5". Nothing: answer with the whole.
struct ByteRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;  // included
};
enum class RangeVerdict { whole, part, impossible };
RangeVerdict parse_range(std::string_view header, std::uint64_t size, ByteRange& range);

std::string http_date(std::int64_t unix_seconds);

}  // namespace asr
