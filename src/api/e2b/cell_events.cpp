#include "api/e2b/cell_events.hpp"

#include <array>
#include <cstdint>

namespace asr {

namespace {

constexpr std::pair<std::string_view, std::string_view> kFields[] = {
    {"text/plain", "text"},
    {"text/html", "html"},
    {"text/markdown", "markdown"},
    {"image/svg+xml", "svg"},
    {"image/png", "png"},
    {"image/jpeg", "jpeg"},
    {"application/pdf", "pdf"},
    {"text/latex", "latex"},
    {"application/json", "json"},
    {"application/javascript", "javascript"},
    {"application/vnd.agent-sandbox.data+json", "data"},
    {"application/vnd.agent-sandbox.chart+json", "chart"}};

void escape(std::string& out, std::uint32_t unit) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4)
    out += kDigits[unit >> static_cast<unsigned>(shift) & 15U];
}

// Column to list of values, where ours has column to index to value.
json::value by_column(const json::value& data) {
  if (!data.is_object()) return data;
  json::object columns;
  for (const auto& [name, column] : data.get_object()) {
    if (!column.is_object()) return data;  // a series
    json::array values;
    for (const auto& [index, value] : column.get_object()) values.push_back(value);
    columns[name] = std::move(values);
  }
  return columns;
}

}  // namespace

std::string ascii_json(const json::value& value) {
  std::string text = to_text(value);  // valid UTF-8
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      out += text[i++];
      continue;
    }
    std::size_t more = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
    std::uint32_t point = byte & (0x3FU >> more);
    for (std::size_t k = 1; k <= more && i + k < text.size(); ++k)
      point = point << 6U | (static_cast<unsigned char>(text[i + k]) & 0x3FU);
    i += more + 1;
    if (point >= 0x10000) {
      escape(out, 0xD800 + ((point - 0x10000) >> 10U));
      escape(out, 0xDC00 + ((point - 0x10000) & 0x3FFU));
    } else {
      escape(out, point);
    }
  }
  return out;
}

std::string cell_line(std::string_view type, json::object fields) {
  fields["type"] = type;
  return ascii_json(fields) + "\n";
}

std::string without_quotes(std::string text) {
  bool quoted = text.size() >= 2 && text.front() == text.back() &&
                (text.front() == '\'' || text.front() == '"');
  return quoted ? text.substr(1, text.size() - 2) : text;
}

json::object result_fields(const json::object& bundle) {
  json::object out;
  json::object extra;
  const json::value* main = bundle.if_contains("is_main");
  out["is_main_result"] = main && main->is_bool() && main->get_bool();
  for (const auto& [mime, value] : bundle) {
    if (mime == "is_main") continue;
    std::string_view field;
    for (const auto& [known, name] : kFields)
      if (known == std::string_view(mime)) field = name;
    if (field.empty())
      extra[mime] = value;
    else if (field == "text" && value.is_string())
      out["text"] = without_quotes(std::string(value.get_string()));
    else if (field == "data")
      out["data"] = by_column(value);
    else
      out[field] = value;
  }
  if (!extra.empty()) out["extra"] = std::move(extra);
  return out;
}

}  // namespace asr
