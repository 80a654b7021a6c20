// What options say, as members of a request to the server.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "net/json.hpp"

namespace asr {

// An object of NAME=VALUE pairs; none if there are none.
Result<void> put_pairs(json::object& body, const char* name, const std::vector<std::string>& pairs);
// A time such as 2h, in seconds; none if nothing was said.
Result<void> put_seconds(json::object& body, const char* name, const std::string& time);

}  // namespace asr
