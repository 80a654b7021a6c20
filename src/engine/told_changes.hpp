// Changes as a guest tells them, believed only if they make sense.
#pragma once

#include "base/result.hpp"
#include "engine/changes.hpp"
#include "wire/guest_messages.hpp"

namespace asr {

class ToldChanges {
 public:
  // One frame of them. An error ends it: the sandbox talks nonsense.
  Result<void> add(wire::ChangeList list);
  // Everything that was told, in order and each path once.
  Changes take();

 private:
  Changes changes_;
  std::size_t bytes_ = 0;
};

}  // namespace asr
