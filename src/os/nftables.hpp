// The machine's packet filter, in the language of nft(8). Of the network namespace of the calling
// thread.
#pragma once

#include <string>

#include "base/result.hpp"

namespace asr {

// All of the commands or none, in one transaction; returns what they print. Blocks.
Result<std::string> run_nft(const std::string& commands);

}  // namespace asr
