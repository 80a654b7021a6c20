// Turns the rules of policy/syscalls.hpp into seccomp programs (classic BPF). Installs nothing.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "policy/syscalls.hpp"

namespace asr {

using FilterProgram = std::vector<sock_filter>;

// A program that gives every call the verdict that judge() gives it, and kills callers of a foreign
// ABI. Fails only for rules that do not fit the format.
Result<FilterProgram> compile(const SyscallRules& rules);

Result<FilterProgram> compile_fence();
Result<FilterProgram> compile_gate(SyscallTier tier, std::uint64_t secret);

}  // namespace asr
