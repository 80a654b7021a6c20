// Marks in a tar stream of saved files, beside what any tar has. They are attributes of entries,
// with names that no attribute of a sandbox's own file has.
#pragma once

namespace asr::wire {

// On the last entry: nothing is missing, and so many entries came before.
inline constexpr const char* kSavedEnd = "sandbox.end";
// On the last entry instead: the rest could not be saved, and why.
inline constexpr const char* kSavedFailure = "sandbox.failure";
// On a folder: it has nothing of the one that a new sandbox has there.
inline constexpr const char* kSavedReplaces = "sandbox.replaces";

}  // namespace asr::wire
