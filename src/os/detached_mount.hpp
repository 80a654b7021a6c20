// Mounts that are attached nowhere: a descriptor stands for one, and goes to whoever attaches it.
#pragma once

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

// An ext4 file system on this device; nosuid, nodev, and read-only from the first error on. A
// second mount of a device that is mounted shares its file system.
Result<UniqueFd> mount_ext4(const std::string& device);

// The mount that a folder is on, from that folder down, without what is mounted below it.
Result<UniqueFd> clone_mount(int folder);

}  // namespace asr
