// What holds for one sandbox, and by what: told to whoever made it, never assumed.
#pragma once

#include "engine/cgroups.hpp"
#include "policy/isolation.hpp"
#include "policy/spec.hpp"
#include "wire/guest_messages.hpp"

namespace asr {

// Whether every volume that can be written to has a size.
enum class VolumeSizes { limited, unlimited };

Isolation isolation_of(const SandboxSpec& spec, const wire::Hello& hello, const Cgroups& cgroups,
                       bool rootless, VolumeSizes volumes);

}  // namespace asr
