// The thread that runs through a request: W3C trace context.
#pragma once

#include <string>
#include <string_view>

namespace asr {

struct Trace {
  std::string id;    // 32 hexadecimal digits, the caller's where it sent some
  std::string span;  // ours
  std::string header() const { return "00-" + id + "-" + span + "-01"; }
};

Trace trace_from(std::string_view traceparent);

}  // namespace asr
