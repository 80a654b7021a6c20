// The two programs of this folder, as bytes that are put into sandboxes.
#pragma once

#include <string_view>

namespace asr::frozen {

// Empty on machines for which they are not written.
std::string_view freeze_library();
std::string_view thaw_program();

}  // namespace asr::frozen
