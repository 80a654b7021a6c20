// How the command line speaks: errors with what to do next, results as JSON.
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <string>

#include "base/result.hpp"
#include "engine/command.hpp"
#include "engine/sandbox.hpp"

namespace asr {

// "agent-sandbox: what (hint)" on stderr; the exit code that fits.
int complain(const Error& error);

// The same as one line of JSON on stdout, for those who asked for JSON.
int print_json_error(const Error& error);

// What the output looks like in JSON: text where it is UTF-8. Other bytes become U+FFFD, and
// *_base64 has all of it.
// `more` comes last.
std::string json_result(const RunResult& result, const Sandbox& sandbox, const Usage& usage,
                        const boost::json::object& more = {});

boost::json::object json_of(const Error& error);
double millis(std::chrono::nanoseconds time);

}  // namespace asr
