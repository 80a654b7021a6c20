// Paths that a remote sandbox may be asked for.
#pragma once

#include <string>

#include "base/result.hpp"
#include "net/json.hpp"

namespace asr::e2b {

inline Result<void> check_path(const std::string& path) {
  if (path.empty()) return fail(Errc::invalid, "the path is empty");
  if (!path.starts_with('/'))
    return fail(Errc::invalid, "the path " + path + " is not absolute",
                "start it with /, as in /workspace/" + path);
  if (path.size() > 4096) return fail(Errc::invalid, "the path is longer than 4096 bytes");
  if (path.find('\0') != std::string::npos)
    return fail(Errc::invalid, "the path holds a zero byte");
  if (!is_utf8(path))
    return fail(Errc::unsupported, "not supported by this provider: names that are not UTF-8");
  return {};
}

}  // namespace asr::e2b
