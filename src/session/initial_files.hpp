// Files that somebody wants in a sandbox before anything runs there.
#pragma once

#include <memory>
#include <vector>

#include "engine/sandbox.hpp"
#include "session/request.hpp"

namespace asr {

// Writes them as the sandbox's user, with the folders they lie in. An error names the file.
asio::awaitable<Result<void>> put_files(std::shared_ptr<Sandbox> sandbox,
                                        std::vector<InitialFile> files);

}  // namespace asr
