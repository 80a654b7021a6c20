// Loop devices: a file as a block device, which goes by itself when its last user does.
#pragma once

#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

struct LoopDevice {
  unsigned number = 0;
  UniqueFd fd;  // With this and every mount of it closed, the device is free again.
};

// Needs root and /dev/loop-control; unsupported without.
Result<LoopDevice> attach_loop(int image);
std::string loop_path(unsigned number);

// The device that has this very file behind it, if there is one: a second would see the same bytes
// and know nothing of the first.
std::optional<unsigned> loop_of(int image);

}  // namespace asr
