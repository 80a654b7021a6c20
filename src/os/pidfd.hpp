// Processes by descriptor: a pid may be somebody else's tomorrow, a pidfd never is.
#pragma once

#include <chrono>
#include <span>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

Result<UniqueFd> open_pidfd(int pid);
Result<void> send_signal(int pidfd, int signal);  // A process that is gone is not an error.

// True when the process has ended within the time.
bool wait_for_end(int pidfd, std::chrono::milliseconds most);

// A program from a descriptor, its only inherited descriptors being `inherit[i]` at 3 + i, with an
// empty environment. The caller reaps it.
struct Spawned {
  int pid = -1;
  UniqueFd pidfd;
};
Result<Spawned> spawn_image(int executable, const char* const* argv, std::span<const int> inherit);

}  // namespace asr
