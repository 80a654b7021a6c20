// Turns the rules of policy/syscalls.hpp into seccomp programs (classic BPF). Installs nothing.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "policy/syscalls.hpp"

namespace asr {

using FilterProgram = std::vector<sock_filter>;

enum class Refusals {
  quiet,  // The call returns its error.
  told,   // It waits for whoever listens to the filter to give it one; but not for ENOSYS: programs
          // that ask for what is new do so often, and mean nothing by it.
};

// A program that gives every call the verdict that judge() gives it, and kills callers of a foreign
// ABI. Fails only for rules that do not fit the format.
Result<FilterProgram> compile(const SyscallRules& rules, Refusals refusals);

Result<FilterProgram> compile_fence();
Result<FilterProgram> compile_gate(SyscallTier tier, std::uint64_t secret, Refusals refusals);

}  // namespace asr
