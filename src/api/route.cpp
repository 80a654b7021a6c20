#include "api/route.hpp"

#include <charconv>

namespace asr {

namespace {

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    path.remove_prefix(1);  // the slash
    std::size_t end = std::min(path.find('/'), path.size());
    parts.push_back(path.substr(0, end));
    path.remove_prefix(end);
  }
  return parts;
}

bool fits(const std::vector<std::string_view>& pattern, const std::vector<std::string_view>& path,
          std::vector<std::string>& parts) {
  if (pattern.size() != path.size()) return false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i].starts_with('{')) {
      if (path[i].empty()) return false;
      parts.emplace_back(path[i]);
    } else if (pattern[i] != path[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

Result<std::int64_t> Call::number(std::string_view name, std::int64_t standard, std::int64_t least,
                                  std::int64_t most) const {
  auto text = head().parameter(name);
  if (!text) return standard;
  std::int64_t value = 0;
  auto [end, ec] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (ec != std::errc() || end != text->data() + text->size() || value < least || value > most)
    return fail(Errc::invalid, "the parameter " + std::string(name) +
                                   " must be a whole number from " + std::to_string(least) +
                                   " to " + std::to_string(most));
  return value;
}

Result<std::string> Call::required(std::string_view name) const {
  auto text = head().parameter(name);
  if (!text || text->empty())
    return fail(Errc::invalid, "the parameter " + std::string(name) + " is missing");
  return std::move(*text);
}

Result<std::optional<bool>> Call::flag(std::string_view name) const {
  auto text = head().parameter(name);
  if (!text) return std::optional<bool>();
  if (*text != "true" && *text != "false")
    return fail(Errc::invalid, "the parameter " + std::string(name) + " must be true or false");
  return std::optional<bool>(*text == "true");
}

void Router::add(std::vector<Route> routes) {
  for (Route& route : routes) routes_.push_back(std::move(route));
}

Router::Match Router::find(std::string_view method, std::string_view path) const {
  Match match;
  auto wanted = split(path);
  for (const Route& route : routes_) {
    std::vector<std::string> parts;
    if (!fits(split(route.path), wanted, parts)) continue;
    // HEAD is GET without its body.
    if (route.method == method || (method == "HEAD" && route.method == "GET")) {
      match.route = &route;
      match.parts = std::move(parts);
      return match;
    }
    match.allowed += (match.allowed.empty() ? "" : ", ") + route.method;
  }
  return match;
}

}  // namespace asr
