// The zygote's private root: the few mounts every sandbox starts from. clone3() copies a mount
// namespace mount by mount, so what is not needed is not there, the rest of the host included.
//
//   /proc            the host's own, unmasked: the kernel lets a sandbox mount one only where one
//   is visible /dev             a read-only folder with the harmless devices /blank           an
//   empty file and an empty folder, to cover what /proc should not show /layers/N        the
//   environment's directories, read-only /scratch         where a sandbox mounts what it writes
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "wire/zygote_messages.hpp"

namespace asr {

struct Stage {
  std::vector<std::string> masked_files;  // names in /proc
  std::vector<std::string> masked_folders;
  bool idmaps = false;  // every layer can be id-mapped
};

// Moves the calling process into it; nothing else of the host's file systems stays reachable.
Result<Stage> enter_stage(const wire::Configure& configure);

}  // namespace asr
