// How a template is referred to: "name", "name:tag", "team/name:tag", or an id. And which names
// are environments this server always has.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace asr {

struct E2bTemplateName {
  std::string name;
  std::string tag = "default";

  friend bool operator==(const E2bTemplateName&, const E2bTemplateName&) = default;
};

// The team is read and forgotten: what a key sees is its own.
Result<E2bTemplateName> e2b_template_name(std::string_view text);

// The environment behind a name E2B's clients know, such as "base"; none: it is nobody's.
std::optional<std::string> e2b_built_in(std::string_view name);
// The same for an image, such as "e2bdev/base".
std::optional<std::string> e2b_known_image(std::string_view image);

}  // namespace asr
