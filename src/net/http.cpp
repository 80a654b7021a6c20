#include "net/http.hpp"

#include <algorithm>
#include <array>
#include <boost/url/encode.hpp>
#include <boost/url/parse_query.hpp>
#include <boost/url/pct_string_view.hpp>
#include <boost/url/rfc/unreserved_chars.hpp>
#include <charconv>
#include <cstdio>
#include <ctime>

namespace asr {

namespace urls = boost::urls;

namespace {

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

std::string_view trim(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool is_token_char(char c) noexcept {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kOthers.find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

auto bad(const char* what) { return fail(Errc::invalid, what); }

// "GET /path HTTP/1.1", single blanks, nothing below a blank or above ~ in the target.
Result<void> check_request_line(std::string_view line, TargetForm form) {
  std::size_t first = line.find(' ');
  std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return bad("malformed request line");
  if (!is_token(line.substr(0, first))) return bad("malformed method");
  std::string_view target = line.substr(first + 1, last - first - 1);
  for (char c : target)
    if (c <= 0x20 || c >= 0x7f) return bad("the target has characters that must be escaped");
  if (target.empty() || (form == TargetForm::origin && target[0] != '/'))
    return bad("the target must begin with /");
  std::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return bad("not a version spoken here");
  return {};
}

struct Framing {
  int lengths = 0;
  int encodings = 0;
  int hosts = 0;
  bool is_version_10 = false;
};

Result<void> check_field(std::string_view line, Framing& framing) {
  std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    return bad("malformed header");
  std::string_view name = line.substr(0, colon);
  std::string_view value = trim(line.substr(colon + 1));
  for (char c : value)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f)
      return bad("a header has control characters");
  if (equal_ignoring_case(name, "host")) ++framing.hosts;
  if (equal_ignoring_case(name, "content-length")) {
    ++framing.lengths;
    if (value.empty() || value.size() > 18 ||
        !std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return bad("malformed Content-Length");
  }
  if (equal_ignoring_case(name, "transfer-encoding")) {
    ++framing.encodings;
    if (!equal_ignoring_case(value, "chunked")) return bad("no other encoding than chunked");
  }
  return {};
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return lower(x) == lower(y); });
}

bool is_header_name(std::string_view text) noexcept { return is_token(text); }

void Headers::add(std::string name, std::string value) {
  all_.emplace_back(std::move(name), std::move(value));
}

void Headers::set(std::string_view name, std::string value) {
  remove(name);
  add(std::string(name), std::move(value));
}

void Headers::remove(std::string_view name) {
  std::erase_if(all_, [&](const auto& field) { return equal_ignoring_case(field.first, name); });
}

std::string_view Headers::get(std::string_view name) const noexcept {
  for (const auto& [key, value] : all_)
    if (equal_ignoring_case(key, name)) return value;
  return {};
}

std::size_t Headers::count(std::string_view name) const noexcept {
  return static_cast<std::size_t>(std::count_if(all_.begin(), all_.end(), [&](const auto& field) {
    return equal_ignoring_case(field.first, name);
  }));
}

bool Headers::lists(std::string_view name, std::string_view token) const noexcept {
  for (const auto& [key, value] : all_) {
    if (!equal_ignoring_case(key, name)) continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      std::size_t comma = std::min(rest.find(','), rest.size());
      if (equal_ignoring_case(trim(rest.substr(0, comma)), token)) return true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return false;
}

std::optional<std::string> RequestHead::parameter(std::string_view name) const {
  for (auto& [key, value] : parse_query(query))
    if (key == name) return std::move(value);
  return std::nullopt;
}

std::optional<std::string> percent_decode(std::string_view text) {
  auto valid = urls::make_pct_string_view(text);
  if (!valid) return std::nullopt;
  std::string out = valid->decode();
  if (out.find('\0') != std::string::npos) return std::nullopt;
  return out;
}

std::string percent_encode(std::string_view text) {
  return urls::encode(text, urls::unreserved_chars);
}

std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> out;
  std::string text(query);  // Boost.URL 1.81 reads on until a zero byte.
  auto parameters = urls::parse_query(text);
  if (!parameters) return out;
  urls::encoding_opts form;
  form.space_as_plus = true;
  for (auto parameter : *parameters)
    out.emplace_back(parameter.key.decode(form), parameter.value.decode(form));
  return out;
}

Result<void> check_head(std::string_view raw, TargetForm form) {
  Framing framing;
  bool first = true;
  while (!raw.empty()) {
    std::size_t end = raw.find('\n');
    if (end == std::string_view::npos || end == 0 || raw[end - 1] != '\r')
      return bad("lines must end with CR LF");
    std::string_view line = raw.substr(0, end - 1);
    raw.remove_prefix(end + 1);
    if (line.empty()) break;
    if (line.find('\r') != std::string_view::npos) return bad("a stray carriage return");
    if (first) {
      TRY(check_request_line(line, form));
      framing.is_version_10 = line.ends_with("1.0");
      first = false;
    } else {
      TRY(check_field(line, framing));
    }
  }
  if (first) return bad("no request line");
  if (framing.lengths > 1 || framing.encodings > 1 || framing.lengths + framing.encodings > 1)
    return bad("the length of the body is ambiguous");
  if (framing.hosts > 1) return bad("more than one Host");
  if (framing.hosts == 0 && !framing.is_version_10) return bad("no Host");
  if (framing.encodings > 0 && framing.is_version_10) return bad("HTTP/1.0 has no chunks");
  return {};
}

RangeVerdict parse_range(std::string_view header, std::uint64_t size, ByteRange& range) {
  constexpr std::string_view kUnit = "bytes=";
  if (!header.starts_with(kUnit)) return RangeVerdict::whole;
  header.remove_prefix(kUnit.size());
  std::size_t dash = header.find('-');
  if (dash == std::string_view::npos || header.find(',') != std::string_view::npos)
    return RangeVerdict::whole;
  auto number = [](std::string_view text, std::uint64_t& value) {
    auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    return ec == std::errc() && end == text.data() + text.size();
  };
  std::string_view from = header.substr(0, dash);
  std::string_view to = header.substr(dash + 1);
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  if (from.empty()) {
    if (!number(to, b)) return RangeVerdict::whole;
    if (b == 0 || size == 0) return RangeVerdict::impossible;
    range = {size - std::min(b, size), size - 1};
    return RangeVerdict::part;
  }
  if (!number(from, a) || (!to.empty() && (!number(to, b) || b < a))) return RangeVerdict::whole;
  if (a >= size) return RangeVerdict::impossible;
  range = {a, to.empty() ? size - 1 : std::min(b, size - 1)};
  return RangeVerdict::part;
}

std::string http_date(std::int64_t unix_seconds) {
  std::time_t time = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  constexpr std::array<const char*, 7> kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<const char*, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  char text[64];
  std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT",
                kDays[static_cast<std::size_t>(parts.tm_wday)], parts.tm_mday,
                kMonths[static_cast<std::size_t>(parts.tm_mon)], parts.tm_year + 1900,
                parts.tm_hour, parts.tm_min, parts.tm_sec);
  return text;
}

}  // namespace asr
