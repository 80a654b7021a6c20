#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <regex>
#include <unordered_map>

#include "net/json.hpp"

namespace asr {

namespace {

std::string escape_pointer(std::string_view name) {
  std::string out;
  for (char c : name) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

// In characters, as the standard counts them; the text is UTF-8.
std::size_t length_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

class Checker {
 public:
  explicit Checker(const json::value& root) : root_(root) {}

  Result<void> check(const json::value& value, const json::value& schema, const std::string& at);

 private:
  Result<void> check_type(const json::value& value, const json::value& type, const std::string& at);
  Result<void> check_choice(const json::value& value, const json::object& schema,
                            const std::string& at);
  Result<void> check_string(std::string_view text, const json::object& schema,
                            const std::string& at);
  Result<void> check_number(double number, const json::object& schema, const std::string& at);
  Result<void> check_array(const json::array& array, const json::object& schema,
                           const std::string& at);
  Result<void> check_object(const json::object& object, const json::object& schema,
                            const std::string& at);
  static bool has_type(const json::value& value, std::string_view type);

  // The place first, so that a reader finds it; the root has no name.
  static tl::unexpected<Error> wrong(const std::string& at, const std::string& what) {
    constexpr std::size_t kLongestPlace = 200;
    std::string place = at.empty() ? "the body" : repair_utf8(at.substr(0, kLongestPlace));
    if (at.size() > kLongestPlace) place += "...";
    return fail(Errc::invalid, place + " " + what);
  }

  const json::value& root_;
};

bool Checker::has_type(const json::value& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_bool();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  if (type == "integer")
    return value.is_int64() || value.is_uint64() ||
           (value.is_double() && std::floor(value.get_double()) == value.get_double() &&
            std::abs(value.get_double()) < 9e15);
  return false;
}

Result<void> Checker::check_type(const json::value& value, const json::value& type,
                                 const std::string& at) {
  if (type.is_string()) {
    std::string_view name(type.get_string());
    if (!has_type(value, name)) return wrong(at, "must be of type " + std::string(name));
    return {};
  }
  std::string names;
  for (const json::value& each : type.as_array()) {
    if (has_type(value, each.get_string())) return {};
    names += (names.empty() ? "" : " or ") + std::string(each.get_string());
  }
  return wrong(at, "must be of type " + names);
}

Result<void> Checker::check_choice(const json::value& value, const json::object& schema,
                                   const std::string& at) {
  if (const json::value* only = schema.if_contains("const"); only && *only != value)
    return wrong(at, "must be " + json::serialize(*only));
  if (const json::value* all = schema.if_contains("enum")) {
    std::string list;
    for (const json::value& each : all->as_array()) {
      if (each == value) return {};
      list += (list.empty() ? "" : ", ") + json::serialize(each);
    }
    return wrong(at, "must be one of " + list);
  }
  for (const char* word : {"oneOf", "anyOf"}) {
    const json::value* all = schema.if_contains(word);
    if (!all) continue;
    int fitting = 0;
    std::string why;
    for (const json::value& each : all->as_array()) {
      auto result = check(value, each, at);
      if (result)
        ++fitting;
      else if (why.empty())
        why = result.error().what;
    }
    if (fitting == 0) return fail(Errc::invalid, why);
    if (fitting > 1 && std::string_view(word) == "oneOf")
      return wrong(at, "fits more than one of the allowed forms");
  }
  return {};
}

Result<void> Checker::check_string(std::string_view text, const json::object& schema,
                                   const std::string& at) {
  if (const json::value* most = schema.if_contains("maxLength");
      most && length_of(text) > most->to_number<std::size_t>())
    return wrong(at, "must have at most " + json::serialize(*most) + " characters");
  if (const json::value* least = schema.if_contains("minLength");
      least && length_of(text) < least->to_number<std::size_t>())
    return wrong(at, "must have at least " + json::serialize(*least) + " characters");
  if (const json::value* pattern = schema.if_contains("pattern")) {
    // Patterns are the project's own and few; compiling one is slow.
    static thread_local std::unordered_map<std::string, std::regex> compiled;
    std::string key(pattern->get_string());
    auto found = compiled.find(key);
    if (found == compiled.end())
      found = compiled.emplace(key, std::regex(key, std::regex::ECMAScript)).first;
    if (!std::regex_search(text.begin(), text.end(), found->second))
      return wrong(at, "must match " + key);
  }
  if (text.find('\0') != std::string_view::npos) return wrong(at, "must not have zero bytes");
  return {};
}

Result<void> Checker::check_number(double number, const json::object& schema,
                                   const std::string& at) {
  if (const json::value* least = schema.if_contains("minimum");
      least && number < least->to_number<double>())
    return wrong(at, "must be at least " + json::serialize(*least));
  if (const json::value* above = schema.if_contains("exclusiveMinimum");
      above && number <= above->to_number<double>())
    return wrong(at, "must be more than " + json::serialize(*above));
  if (const json::value* most = schema.if_contains("maximum");
      most && number > most->to_number<double>())
    return wrong(at, "must be at most " + json::serialize(*most));
  return {};
}

Result<void> Checker::check_array(const json::array& array, const json::object& schema,
                                  const std::string& at) {
  if (const json::value* most = schema.if_contains("maxItems");
      most && array.size() > most->to_number<std::size_t>())
    return wrong(at, "must have at most " + json::serialize(*most) + " entries");
  if (const json::value* least = schema.if_contains("minItems");
      least && array.size() < least->to_number<std::size_t>())
    return wrong(at, "must have at least " + json::serialize(*least) + " entries");
  const json::value* items = schema.if_contains("items");
  for (std::size_t i = 0; items && i < array.size(); ++i)
    TRY(check(array[i], *items, at + "/" + std::to_string(i)));
  return {};
}

Result<void> Checker::check_object(const json::object& object, const json::object& schema,
                                   const std::string& at) {
  const json::value* required = schema.if_contains("required");
  if (required)
    for (const json::value& name : required->as_array())
      if (!object.contains(name.get_string()))
        return wrong(at, "must have \"" + std::string(name.get_string()) + "\"");
  if (const json::value* most = schema.if_contains("maxProperties");
      most && object.size() > most->to_number<std::size_t>())
    return wrong(at, "must have at most " + json::serialize(*most) + " entries");
  const json::value* known = schema.if_contains("properties");
  const json::value* others = schema.if_contains("additionalProperties");
  const json::value* names = schema.if_contains("propertyNames");
  for (const auto& [name, value] : object) {
    std::string here = at + "/" + escape_pointer(name);
    if (names) TRY(check(json::value(name), *names, here));
    const json::value* own = known ? known->as_object().if_contains(name) : nullptr;
    if (own) {
      TRY(check(value, *own, here));
    } else if (others && others->is_bool() && !others->get_bool()) {
      return wrong(here, "is not known here");
    } else if (others && others->is_object()) {
      TRY(check(value, *others, here));
    }
  }
  return {};
}

Result<void> Checker::check(const json::value& value, const json::value& schema,
                            const std::string& at) {
  const json::object& object = schema.as_object();
  if (const json::value* reference = object.if_contains("$ref")) {
    std::string_view pointer(reference->get_string());
    return check(value, root_.at_pointer(pointer.substr(1)), at);
  }
  if (const json::value* type = object.if_contains("type")) TRY(check_type(value, *type, at));
  TRY(check_choice(value, object, at));
  if (value.is_string()) return check_string(value.get_string(), object, at);
  if (value.is_number()) return check_number(value.to_number<double>(), object, at);
  if (value.is_array()) return check_array(value.get_array(), object, at);
  if (value.is_object()) return check_object(value.get_object(), object, at);
  return {};
}

}  // namespace

Result<void> check_schema(const json::value& value, const json::value& schema,
                          const json::value& root) {
  return Checker(root).check(value, schema, "");
}

}  // namespace asr
