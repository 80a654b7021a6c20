#include "api/e2b/fields.hpp"

namespace asr {

namespace {

auto wrong(const std::string& place, const std::string& what) {
  return fail(Errc::invalid, place + " must be " + what);
}

Result<std::int64_t> whole(const json::value& value, const std::string& place, std::int64_t least,
                           std::int64_t most) {
  std::string bounds =
      "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  boost::system::error_code ec;
  auto number = value.is_number() ? value.to_number<std::int64_t>(ec) : 0;
  if (!value.is_number() || ec || number < least || number > most) return wrong(place, bounds);
  return number;
}

}  // namespace

const json::value* E2bFields::find(std::string_view name) const {
  const json::value* value = body_.if_contains(name);
  return value && !value->is_null() ? value : nullptr;
}

std::string E2bFields::place_of(std::string_view name) const {
  return place_.empty() ? std::string(name) : place_ + "." + std::string(name);
}

Result<std::string> E2bFields::text(std::string_view name) const {
  auto value = TRY(text_if(name));
  if (!value) return fail(Errc::invalid, place_of(name) + " is missing");
  return std::move(*value);
}

Result<std::optional<std::string>> E2bFields::text_if(std::string_view name) const {
  const json::value* value = find(name);
  if (!value) return std::optional<std::string>();
  if (!value->is_string()) return wrong(place_of(name), "a text");
  return std::optional<std::string>(value->get_string());
}

Result<std::optional<bool>> E2bFields::flag(std::string_view name) const {
  const json::value* value = find(name);
  if (!value) return std::optional<bool>();
  if (!value->is_bool()) return wrong(place_of(name), "true or false");
  return std::optional<bool>(value->get_bool());
}

Result<std::optional<std::int64_t>> E2bFields::number_if(std::string_view name, std::int64_t least,
                                                         std::int64_t most) const {
  const json::value* value = find(name);
  if (!value) return std::optional<std::int64_t>();
  return std::optional<std::int64_t>(TRY(whole(*value, place_of(name), least, most)));
}

Result<std::int64_t> E2bFields::number(std::string_view name, std::int64_t standard,
                                       std::int64_t least, std::int64_t most) const {
  return TRY(number_if(name, least, most)).value_or(standard);
}

Result<std::map<std::string, std::string>> E2bFields::texts(std::string_view name,
                                                            std::size_t most) const {
  std::map<std::string, std::string> all;
  const json::object* values = TRY(object(name));
  if (!values) return all;
  if (values->size() > most)
    return fail(Errc::invalid, place_of(name) + " has more than " + std::to_string(most));
  for (const auto& [key, value] : *values) {
    if (value.is_null()) continue;
    if (!value.is_string()) return wrong(place_of(name) + "." + std::string(key), "a text");
    all[std::string(key)] = std::string(value.get_string());
  }
  return all;
}

Result<std::vector<std::string>> E2bFields::list(std::string_view name, std::size_t most) const {
  std::vector<std::string> all;
  const json::array* values = TRY(array(name, most));
  if (!values) return all;
  for (const json::value& value : *values) {
    if (!value.is_string()) return wrong(place_of(name), "a list of texts");
    all.emplace_back(value.get_string());
  }
  return all;
}

Result<const json::object*> E2bFields::object(std::string_view name) const {
  const json::value* value = find(name);
  if (value && !value->is_object()) return wrong(place_of(name), "an object");
  return value ? &value->get_object() : nullptr;
}

Result<const json::array*> E2bFields::array(std::string_view name, std::size_t most) const {
  const json::value* value = find(name);
  if (value && !value->is_array()) return wrong(place_of(name), "a list");
  if (value && value->get_array().size() > most)
    return fail(Errc::invalid, place_of(name) + " has more than " + std::to_string(most));
  return value ? &value->get_array() : nullptr;
}

}  // namespace asr
