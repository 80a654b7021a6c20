#include "api/e2b/answer.hpp"

#include "api/errors.hpp"

namespace asr {

unsigned e2b_status_of(const Error& error) noexcept {
  switch (error.code) {
    case Errc::gone:
      return 404;  // What has ended is not there.
    case Errc::unsupported:
      return 400;
    case Errc::timeout:
      return 504;
    default:
      return status_of(error);
  }
}

json::object e2b_error(unsigned status, const Error& error) {
  std::string message = repair_utf8(error.what);
  if (!error.hint.empty()) message += " (" + repair_utf8(error.hint) + ")";
  return {{"code", status}, {"message", std::move(message)}};
}

Response e2b_error_response(unsigned status, const Error& error) {
  Response response;
  response.status = status;
  response.headers.add("Content-Type", "application/json");
  response.body = to_text(e2b_error(status, error));
  return response;
}

}  // namespace asr
