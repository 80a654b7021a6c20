// Landlock for one purpose: processes of a sandbox reach no abstract socket and signal no process
// outside. It never restricts files: the mount view does that, and a ruleset that handles any file
// right also forbids renames between directories.
#pragma once

#include "base/result.hpp"

namespace asr {

inline constexpr int kLandlockScopes = 6;  // The ABI that brought scopes, with Linux 6.12.

// The ABI version, from 1; an error of kind unsupported when the kernel has none or it is off.
Result<int> landlock_abi();

// Shuts the calling thread and its future children off from abstract sockets and processes outside
// of them, for good. 0 when applied; -1 and errno when not, with EOPNOTSUPP for an ABI without
// scopes. Needs no_new_privs. Fit for after fork(): allocates nothing, keeps no descriptor.
int restrict_scopes(int abi) noexcept;

}  // namespace asr
