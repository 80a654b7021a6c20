// JSON from strangers: bounded, strict, and errors that say where.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace asr {

namespace json = boost::json;

// UTF-8 only, at most 64 levels, no name twice in one object. A value takes many times the memory
// of its text: whoever takes long texts says how many values there may be.
inline constexpr std::size_t kAnyNumber = static_cast<std::size_t>(-1);
Result<json::value> parse_json(std::string_view text, std::size_t most_values = kAnyNumber);

// As text, numbers as people write them: 0.5, not 5E-1.
std::string to_text(const json::value& value);

// Bytes as JSON: `name` is the text; where it is not UTF-8, wrong bytes become U+FFFD and
// `name`_base64 has all of it.
void put_bytes(json::object& object, std::string_view name, std::string_view bytes);

bool is_utf8(std::string_view text) noexcept;
std::string repair_utf8(std::string_view text);
std::string base64(std::string_view bytes);
Result<std::string> from_base64(std::string_view text);

// Checks `value` against a schema: the part of JSON Schema that this project's documents use (type,
// enum, const, properties, required, additionalProperties, items, oneOf, anyOf, lengths, ranges,
// pattern, $ref into `root`). The error names the place as a JSON pointer.
Result<void> check_schema(const json::value& value, const json::value& schema,
                          const json::value& root);

}  // namespace asr
