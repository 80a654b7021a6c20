// The memory of this very process.
#pragma once

#include "base/result.hpp"

namespace asr {

// Lets go of all code: it lies in files, and what is still needed comes back when it is run. After
// a start, most of it is not.
Result<void> let_go_of_code();

}  // namespace asr
