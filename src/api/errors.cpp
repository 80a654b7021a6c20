#include "api/errors.hpp"

namespace asr {

unsigned status_of(const Error& error) noexcept {
  switch (error.code) {
    case Errc::invalid:
      return 400;
    case Errc::not_found:
      return 404;
    case Errc::conflict:
      return 409;
    case Errc::denied:
      return 403;
    case Errc::exhausted:
      return 429;
    case Errc::timeout:
      return 408;
    case Errc::unsupported:
      return 501;
    case Errc::gone:
      return 410;
    case Errc::provider:  // Not this server: the one behind it.
      return 502;
    default:
      return 500;
  }
}

json::object json_of(const Error& error, const std::string& trace_id) {
  json::object inner{{"code", to_string(error.code)},
                     {"fault", to_string(error.fault())},
                     {"message", repair_utf8(error.what)},
                     {"hint", repair_utf8(error.hint)},
                     {"trace_id", trace_id}};
  return {{"error", std::move(inner)}};
}

Response error_response(const Error& error, const std::string& trace_id) {
  return error_response(status_of(error), error, trace_id);
}

Response error_response(unsigned status, const Error& error, const std::string& trace_id) {
  Response response;
  response.status = status;
  response.headers.add("Content-Type", "application/json");
  response.body = to_text(json_of(error, trace_id));
  return response;
}

}  // namespace asr
