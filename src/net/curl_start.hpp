// Before the first use of curl, from any thread.
#pragma once

namespace asr {

void start_curl();

}  // namespace asr
