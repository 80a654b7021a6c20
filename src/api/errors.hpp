// How failures look to a client: one JSON shape everywhere.
#pragma once

#include <string>

#include "base/result.hpp"
#include "net/http.hpp"
#include "net/json.hpp"

namespace asr {

unsigned status_of(const Error& error) noexcept;
json::object json_of(const Error& error, const std::string& trace_id);
Response error_response(const Error& error, const std::string& trace_id);
Response error_response(unsigned status, const Error& error, const std::string& trace_id);

}  // namespace asr
