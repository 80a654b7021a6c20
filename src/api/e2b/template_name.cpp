#include "api/e2b/template_name.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace asr {

namespace {

constexpr std::size_t kLongest = 128;

// The one table: names of E2B's own templates and images, and what stands for them here.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kTemplates{{
    {"base", "host"},
    {"code-interpreter-v1", "host"},
    {"code-interpreter", "host"},
    {"host", "host"},
}};
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kImages{{
    {"e2bdev/base", "host"},
    {"e2bdev/code-interpreter", "host"},
    {"host", "host"},
    {"base", "host"},
}};

bool is_plain(std::string_view text) {
  return text.find_first_not_of('.') != std::string_view::npos && text.size() <= kLongest &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

template <class Table>
std::optional<std::string> look_up(const Table& table, std::string_view name) {
  for (const auto& [known, environment] : table)
    if (known == name) return std::string(environment);
  return std::nullopt;
}

}  // namespace

Result<E2bTemplateName> e2b_template_name(std::string_view text) {
  std::string_view rest = text;
  E2bTemplateName name;
  if (std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    if (!is_plain(rest.substr(0, slash))) rest = "";
    rest.remove_prefix(std::min(slash + 1, rest.size()));
  }
  std::size_t colon = rest.find(':');
  if (colon != std::string_view::npos) {
    name.tag = std::string(rest.substr(colon + 1));
    rest = rest.substr(0, colon);
  }
  name.name = std::string(rest);
  if (!is_plain(name.name) || !is_plain(name.tag))
    return fail(Errc::invalid,
                "\"" + std::string(text.substr(0, kLongest)) + "\" names no template",
                "such as base, my-template or my-template:v2");
  return name;
}

std::optional<std::string> e2b_built_in(std::string_view name) { return look_up(kTemplates, name); }

std::optional<std::string> e2b_known_image(std::string_view image) {
  constexpr std::string_view kLatest = ":latest";
  if (image.ends_with(kLatest)) image.remove_suffix(kLatest.size());
  return look_up(kImages, image);
}

}  // namespace asr
