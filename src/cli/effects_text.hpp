// What something did in its sandbox, in a few lines for people.
#pragma once

#include <string>

#include "net/json.hpp"

namespace asr {

// `effects` as the API tells them. Empty if there is nothing to tell.
std::string effects_text(const json::value& effects);

}  // namespace asr
