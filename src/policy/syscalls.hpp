// Which system calls a sandbox may make, as plain values: nothing here makes a call or knows BPF.
//
// Two rule sets lie on top of each other, and a call must pass both. The fence, under the zygote
// and everything it forks, is what the kernel is taken to have at all. The gate, on pid 1 at the
// end of set-up and one per tier, is what a sandbox may not do: all that is worth telling is
// refused there, because an error of the fence would come before anything that the gate says.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "policy/spec.hpp"

namespace asr {

enum class Machine : std::uint8_t { x86_64, aarch64 };

#if defined(__x86_64__)
inline constexpr Machine kThisMachine = Machine::x86_64;
#elif defined(__aarch64__)
inline constexpr Machine kThisMachine = Machine::aarch64;
#else
#error "system call numbers are known for x86_64 and aarch64 only"
#endif

// What becomes of a call.
struct Verdict {
  enum class Kind : std::uint8_t {
    allow,
    refuse,  // the call returns `err`
    kill,    // the process dies of SIGSYS
  };
  Kind kind = Kind::allow;
  int err = 0;

  friend constexpr auto operator<=>(const Verdict&, const Verdict&) = default;
};

inline constexpr Verdict kAllow{};
inline constexpr Verdict kKill{.kind = Verdict::Kind::kill, .err = 0};
constexpr Verdict refuse(int err) { return {.kind = Verdict::Kind::refuse, .err = err}; }

// The kernel reads an `int` argument from half a register; comparing all of it would let
// 0x1'0000'5412 pass where 0x5412 is refused.
inline constexpr std::uint64_t kIntArgument = 0xffff'ffff;
inline constexpr std::uint64_t kLongArgument = ~std::uint64_t{0};

// Holds when the bits of argument `arg` under `mask` are one of `any_of`.
struct ArgCheck {
  unsigned arg = 0;  // 0 to 5
  std::uint64_t mask = kIntArgument;
  std::vector<std::uint64_t> any_of;  // One value only if the mask is wider than an int.
};

// Applies when all checks hold.
struct Clause {
  std::vector<ArgCheck> when;
  Verdict then;
};

struct SyscallRule {
  std::string_view name;
  std::uint32_t number = 0;
  std::vector<Clause> clauses;  // The first that applies decides,
  Verdict otherwise;            // this when none does.
  std::string_view why;         // Empty where it is obvious.
};

struct SyscallRules {
  Machine machine = kThisMachine;
  std::vector<SyscallRule> rules;  // Sorted by number, each number once.
  Verdict unlisted;                // For every other number of this machine's native ABI.
};

using SyscallArgs = std::array<std::uint64_t, 6>;

// Calls of another ABI (32-bit, x32) are no part of the rules: they kill the process, always.
// Number -1 is allowed, always: a tracer writes it to skip a call, and the kernel does nothing.
inline constexpr std::uint32_t kSkippedCall = 0xffff'ffff;
inline constexpr std::uint32_t kX32Bit = 0x4000'0000;

SyscallRules fence_rules(Machine machine = kThisMachine);

// setns() stays open for pid 1, which needs it for every program it starts and is told apart by
// `secret` in the sixth argument, which the kernel ignores. Keep the value out of logs.
SyscallRules gate_rules(SyscallTier tier, std::uint64_t secret, Machine machine = kThisMachine);

// What the rules say: the meaning that a compiled filter must have.
Verdict judge(const SyscallRules& rules, std::uint32_t number, const SyscallArgs& args);

const SyscallRule* find(const SyscallRules& rules, std::string_view name) noexcept;
const SyscallRule* find(const SyscallRules& rules, std::uint32_t number) noexcept;
const SyscallRule* find(SyscallRules&& rules, std::string_view name) = delete;  // would dangle
const SyscallRule* find(SyscallRules&& rules, std::uint32_t number) = delete;

}  // namespace asr
