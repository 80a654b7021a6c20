// What a guest has measured, believed only if it makes sense.
#pragma once

#include "engine/effects.hpp"
#include "engine/memory_peaks.hpp"
#include "wire/guest_messages.hpp"

namespace asr {

// `memory`: what watched meanwhile, if anything could.
Effects effects_of(wire::Measured told, MemoryPeaks::Watch* memory);

// Nothing is known, for one reason.
Effects unknown_effects(const std::string& why);

}  // namespace asr
