// How the command line speaks: errors with what to do next, results as JSON.
#pragma once

#include <string>

#include "base/result.hpp"
#include "engine/command.hpp"
#include "engine/sandbox.hpp"

namespace asr {

// "agent-sandbox: what (hint)" on stderr; the exit code that fits.
int complain(const Error& error);

// A JSON string literal. Bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

std::string json_result(const RunResult& result, const Sandbox& sandbox, const Usage& usage);
std::string json_error(const Error& error);

}  // namespace asr
