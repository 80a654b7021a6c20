// What cells give, as E2B's code interpreter tells it. Pure.
#pragma once

#include <string>
#include <string_view>

#include "net/json.hpp"

namespace asr {

// JSON in ASCII alone: E2B's client takes each packet for a text of its own.
std::string ascii_json(const json::value& value);

// One line of the answer.
std::string cell_line(std::string_view type, json::object fields = {});

// A result of ours, by MIME type, as fields of theirs.
json::object result_fields(const json::object& bundle);

// Without one pair of quotes around it.
std::string without_quotes(std::string text);

}  // namespace asr
