#include "api/trace.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cstdlib>

namespace asr {

namespace {

std::string random_hex(std::size_t bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  unsigned char raw[16];
  if (::getrandom(raw, bytes, 0) != static_cast<ssize_t>(bytes)) std::abort();
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) {
    text += kDigits[raw[i] >> 4];
    text += kDigits[raw[i] & 15];
  }
  return text;
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

Trace trace_from(std::string_view traceparent) {
  Trace trace;
  trace.span = random_hex(8);
  // version "-" trace "-" parent "-" flags
  bool theirs = traceparent.size() == 55 && traceparent[2] == '-' && traceparent[35] == '-' &&
                traceparent[52] == '-' && is_hex(traceparent.substr(3, 32)) &&
                is_hex(traceparent.substr(36, 16)) && traceparent.substr(0, 2) != "ff" &&
                traceparent.substr(3, 32).find_first_not_of('0') != std::string_view::npos;
  trace.id = theirs ? std::string(traceparent.substr(3, 32)) : random_hex(16);
  return trace;
}

}  // namespace asr
