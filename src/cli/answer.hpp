// One call to the server, and its answer shown: as JSON, or in words.
#pragma once

#include <functional>
#include <string>

#include "cli/remote.hpp"

namespace asr {

struct Output {
  bool json = false;

  // The exit code that fits.
  int failed(const Error& error) const;
  int show(const Result<json::value>& answer, const std::function<std::string()>& text) const;
};

// To the server of this user.
Result<json::value> call(const std::string& method, const std::string& path,
                         const json::value& body = nullptr);

}  // namespace asr
