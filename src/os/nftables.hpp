// The machine's packet filter, in the language of nft(8). Of the network namespace of the calling
// thread.
#pragma once

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

// All of the commands or none, in one transaction; returns what they print. Blocks.
Result<std::string> run_nft(const std::string& commands);

// Becomes readable whenever somebody changes the filter.
Result<UniqueFd> watch_nft();
// Reads all there is. True if a table was deleted, by whomever, or if too much was going on to
// know.
bool saw_deleted_table(int watch);

}  // namespace asr
