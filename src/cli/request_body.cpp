#include "cli/request_body.hpp"

#include "base/units.hpp"

namespace asr {

Result<void> put_pairs(json::object& body, const char* name,
                       const std::vector<std::string>& pairs) {
  if (pairs.empty()) return {};
  json::object object;
  for (const std::string& pair : pairs) {
    std::size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(Errc::invalid, "'" + pair + "' is not NAME=VALUE");
    object[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  body[name] = std::move(object);
  return {};
}

Result<void> put_seconds(json::object& body, const char* name, const std::string& time) {
  if (time.empty()) return {};
  auto duration = TRY(parse_duration(time));
  body[name] = std::chrono::ceil<std::chrono::seconds>(duration).count();
  return {};
}

}  // namespace asr
