#include "api/e2b/multipart.hpp"

#include <algorithm>

#include "net/http.hpp"

namespace asr {

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// What browsers and the SDKs do to quotes and line ends in names.
std::string decoded_name(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string_view three = text.substr(i, 3);
    char plain = three == "%22" ? '"' : three == "%0D" ? '\r' : three == "%0A" ? '\n' : '\0';
    out += plain == '\0' ? text[i] : plain;
    if (plain != '\0') i += 2;
  }
  return out;
}

}  // namespace

// Quoted, with backslashes as RFC 2045 has them, or a bare word.
std::optional<std::string> header_parameter(std::string_view header, std::string_view name) {
  std::size_t at = header.find(';');
  while (at != std::string_view::npos && at < header.size()) {
    header.remove_prefix(at + 1);
    std::size_t equal = header.find_first_of("=;");
    if (equal == std::string_view::npos) return std::nullopt;
    if (header[equal] == ';') {
      at = equal;
      continue;
    }
    std::string_view key = trimmed(header.substr(0, equal));
    std::string_view rest = header.substr(equal + 1);
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
    std::string value;
    if (!rest.empty() && rest.front() == '"') {
      std::size_t i = 1;
      for (; i < rest.size() && rest[i] != '"'; ++i) {
        bool escaped =
            rest[i] == '\\' && i + 1 < rest.size() && (rest[i + 1] == '"' || rest[i + 1] == '\\');
        if (escaped) ++i;
        value += rest[i];
      }
      if (i >= rest.size()) return std::nullopt;  // It never ends.
      rest.remove_prefix(i + 1);
    } else {
      value = trimmed(rest.substr(0, std::min(rest.find(';'), rest.size())));
    }
    if (equal_ignoring_case(key, name)) return value;
    header = rest;
    at = header.find(';');
  }
  return std::nullopt;
}

Result<std::string> multipart_boundary(std::string_view content_type) {
  std::string_view type =
      content_type.substr(0, std::min(content_type.find(';'), content_type.size()));
  if (!equal_ignoring_case(trimmed(type), "multipart/form-data"))
    return fail(Errc::invalid, "the body is no multipart/form-data");
  auto boundary = header_parameter(content_type, "boundary");
  auto is_plain = [](unsigned char c) { return c > 32 && c < 127; };
  if (!boundary || boundary->empty() || boundary->size() > 70 ||
      !std::all_of(boundary->begin(), boundary->end(), is_plain))
    return fail(Errc::invalid, "the Content-Type names no proper boundary");
  return *std::move(boundary);
}

void MultipartReader::feed(std::string_view bytes) {
  buffer_.erase(0, at_);
  at_ = 0;
  buffer_.append(bytes);
}

auto MultipartReader::read_head(std::size_t end) -> Result<Event> {
  std::string_view lines = std::string_view(buffer_).substr(at_, end - at_);
  Event event;
  event.kind = Event::Kind::part;
  bool found = false;
  while (!lines.empty()) {
    std::size_t stop = std::min(lines.find("\r\n"), lines.size());
    std::string_view line = lines.substr(0, stop);
    lines.remove_prefix(std::min(stop + 2, lines.size()));
    std::size_t colon = line.find(':');
    if (colon == std::string_view::npos)
      return fail(Errc::invalid, "a part of the body has a malformed header");
    if (!equal_ignoring_case(line.substr(0, colon), "content-disposition")) continue;
    std::string_view value = line.substr(colon + 1);
    event.name = header_parameter(value, "name").value_or("");
    event.filename = decoded_name(header_parameter(value, "filename").value_or(""));
    if (auto coded = header_parameter(value, "filename*")) {
      constexpr std::string_view kUtf8 = "utf-8''";
      if (coded->size() > kUtf8.size() &&
          equal_ignoring_case(coded->substr(0, kUtf8.size()), kUtf8))
        if (auto plain = percent_decode(std::string_view(*coded).substr(kUtf8.size())))
          event.filename = *std::move(plain);
    }
    found = true;
  }
  if (!found) return fail(Errc::invalid, "a part of the body has no Content-Disposition");
  at_ = end + 4;
  state_ = State::body;
  return event;
}

// All that cannot be the beginning of a boundary.
auto MultipartReader::take_data() -> Event {
  std::string_view left = std::string_view(buffer_).substr(at_);
  std::size_t boundary = left.find(delimiter_);
  Event event;
  if (boundary == 0) {
    at_ += delimiter_.size();
    state_ = State::after_boundary;
    event.kind = Event::Kind::done;
    return event;
  }
  std::size_t size = boundary;
  if (boundary == std::string_view::npos) {
    std::size_t tail = std::min(left.size(), delimiter_.size() - 1);
    size = left.size() - tail;
    while (tail > 0 && !delimiter_.starts_with(left.substr(left.size() - tail))) --tail;
    size = left.size() - tail;
  }
  if (size == 0) return event;  // hungry
  event.kind = Event::Kind::data;
  event.data = left.substr(0, size);
  at_ += size;
  return event;
}

auto MultipartReader::next() -> Result<Event> {
  for (;;) {
    std::string_view left = std::string_view(buffer_).substr(at_);
    switch (state_) {
      case State::preamble: {
        Event event = take_data();
        if (event.kind == Event::Kind::hungry) return event;
        continue;  // What stands before the first boundary is nothing.
      }
      case State::after_boundary: {
        if (left.size() < 2) return Event();
        if (left.starts_with("--")) {
          state_ = State::over;
          continue;
        }
        std::size_t blanks = std::min(left.find_first_not_of(" \t"), left.size());
        if (blanks > 100 || (blanks + 2 <= left.size() && left.substr(blanks, 2) != "\r\n"))
          return fail(Errc::invalid, "the body has a malformed boundary");
        if (blanks + 2 > left.size()) return Event();
        at_ += blanks + 2;
        if (++parts_ > kMostParts) return fail(Errc::exhausted, "the body has too many parts");
        state_ = State::head;
        continue;
      }
      case State::head: {
        std::size_t end = left.find("\r\n\r\n");
        if (left.starts_with("\r\n"))
          return fail(Errc::invalid, "a part of the body has no Content-Disposition");
        if (end == std::string_view::npos ? left.size() > kMostHead : end > kMostHead)
          return fail(Errc::exhausted, "a part of the body has too large a head");
        if (end == std::string_view::npos) return Event();
        return read_head(at_ + end);
      }
      case State::body:
        return take_data();
      case State::over: {
        at_ = buffer_.size();  // What stands behind the last boundary is nothing.
        Event event;
        event.kind = Event::Kind::end;
        return event;
      }
    }
  }
}

}  // namespace asr
