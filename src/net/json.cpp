#include "net/json.hpp"

#include <openssl/evp.h>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <set>
#include <vector>

namespace asr {

namespace {

constexpr std::size_t kDeepest = 64;

json::parse_options strict() {
  json::parse_options options;
  options.max_depth = kDeepest;
  return options;
}

// Finds a name that occurs twice in one object: two readers could take different ones. Counts.
struct NamesHandler {
  constexpr static std::size_t max_object_size = std::size_t(-1);
  constexpr static std::size_t max_array_size = std::size_t(-1);
  constexpr static std::size_t max_key_size = std::size_t(-1);
  constexpr static std::size_t max_string_size = std::size_t(-1);

  std::vector<std::set<std::string>> objects;
  std::string key;
  std::string twice;
  std::size_t most_values = kAnyNumber;
  std::size_t values = 0;

  bool count(json::error_code& ec) {
    if (++values <= most_values) return true;
    ec = json::error::array_too_large;  // Told in other words.
    return false;
  }
  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code& ec) {
    objects.emplace_back();
    return count(ec);
  }
  bool on_object_end(std::size_t, json::error_code&) {
    objects.pop_back();
    return true;
  }
  bool on_array_begin(json::error_code& ec) { return count(ec); }
  bool on_array_end(std::size_t, json::error_code&) { return true; }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    key.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view rest, std::size_t, json::error_code&) {
    key.append(rest.data(), rest.size());
    if (!objects.back().insert(key).second && twice.empty()) twice = key;
    key.clear();
    return true;
  }
  bool on_string_part(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_string(json::string_view, std::size_t, json::error_code& ec) { return count(ec); }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, json::error_code& ec) { return count(ec); }
  bool on_uint64(std::uint64_t, json::string_view, json::error_code& ec) { return count(ec); }
  bool on_double(double, json::string_view, json::error_code& ec) { return count(ec); }
  bool on_bool(bool, json::error_code& ec) { return count(ec); }
  bool on_null(json::error_code& ec) { return count(ec); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
};

// Length of the UTF-8 sequence at the start of `text`; 0 if there is none.
std::size_t utf8_length(std::string_view text) noexcept {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char lead = byte(0);
  std::size_t length = lead < 0x80         ? 1
                       : (lead >> 5) == 6  ? 2
                       : (lead >> 4) == 14 ? 3
                       : (lead >> 3) == 30 ? 4
                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  std::uint32_t point = length == 1 ? lead : lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    point = point << 6 | (byte(i) & 0x3FU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (point < kLeast[length] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return 0;
  return length;
}

}  // namespace

Result<json::value> parse_json(std::string_view text, std::size_t most_values) {
  json::error_code ec;
  json::basic_parser<NamesHandler> names(strict());
  names.handler().most_values = most_values;
  names.write_some(false, text.data(), text.size(), ec);
  if (names.handler().values > most_values)
    return fail(Errc::invalid, "the JSON has more than " + std::to_string(most_values) + " values");
  if (!ec && !names.handler().twice.empty())
    return fail(Errc::invalid, "the name \"" + repair_utf8(names.handler().twice.substr(0, 200)) +
                                   "\" occurs twice");
  json::value value;
  if (!ec) value = json::parse(text, ec, {}, strict());
  if (ec) return fail(Errc::invalid, "malformed JSON: " + ec.message());
  return value;
}

namespace {

void append_text(std::string& out, const json::value& value) {
  switch (value.kind()) {
    case json::kind::object: {
      out += '{';
      bool first = true;
      for (const auto& [name, member] : value.get_object()) {
        if (!std::exchange(first, false)) out += ',';
        out += json::serialize(json::string(name));
        out += ':';
        append_text(out, member);
      }
      out += '}';
      return;
    }
    case json::kind::array: {
      out += '[';
      bool first = true;
      for (const json::value& member : value.get_array()) {
        if (!std::exchange(first, false)) out += ',';
        append_text(out, member);
      }
      out += ']';
      return;
    }
    case json::kind::double_: {
      char number[40];
      auto end = std::to_chars(number, number + sizeof number, value.get_double()).ptr;
      out.append(number, end);
      return;
    }
    default:
      out += json::serialize(value);
  }
}

}  // namespace

std::string to_text(const json::value& value) {
  std::string out;
  append_text(out, value);
  return out;
}

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    std::size_t length = utf8_length(text);
    if (length == 0)
      clean += "\xEF\xBF\xBD";
    else
      clean += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return clean;
}

std::string base64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  int length = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                 reinterpret_cast<const unsigned char*>(bytes.data()),
                                 static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

Result<std::string> from_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3 + 3, '\0');
  int length = text.size() % 4 != 0
                   ? -1
                   : ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                       reinterpret_cast<const unsigned char*>(text.data()),
                                       static_cast<int>(text.size()));
  if (length < 0) return fail(Errc::invalid, "malformed base64");
  std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  bytes.resize(static_cast<std::size_t>(length) - padding);
  return bytes;
}

void put_bytes(json::object& object, std::string_view name, std::string_view bytes) {
  if (is_utf8(bytes)) {
    object[name] = bytes;
    return;
  }
  object[name] = repair_utf8(bytes);
  object[std::string(name) + "_base64"] = base64(bytes);
}

}  // namespace asr
