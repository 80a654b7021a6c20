// How answers look to E2B's clients: a failure is {"code": <the HTTP status>, "message": …}, and
// that number is what they look at.
#pragma once

#include "base/result.hpp"
#include "net/http.hpp"
#include "net/json.hpp"

namespace asr {

unsigned e2b_status_of(const Error& error) noexcept;
json::object e2b_error(unsigned status, const Error& error);
Response e2b_error_response(unsigned status, const Error& error);

}  // namespace asr
