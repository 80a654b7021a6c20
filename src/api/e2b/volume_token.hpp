// What opens the files of one volume: derived from its id and the server's secret, as the tokens of
// sandboxes are.
#pragma once

#include <string>

#include "api/e2b/control_plane.hpp"

namespace asr {

std::string e2b_volume_token(const E2bParts& parts, const std::string& id);

}  // namespace asr
