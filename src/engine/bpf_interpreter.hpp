// Classic BPF as seccomp runs it, for tests only: what a program answers, whether the kernel would
// take it, and which calls the kernel would remember as always allowed.
#pragma once

#include <linux/bpf_common.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace asr::bpf {

// Empty, or why seccomp(2) would refuse the program with EINVAL. Stricter than the kernel: it knows
// only the instructions that the kernel's allow cache knows.
inline std::string problem_of(std::span<const sock_filter> program) {
  const std::size_t size = program.size();
  if (size == 0 || size > BPF_MAXINSNS) return "its length";
  for (std::size_t i = 0; i < size; ++i) {
    const sock_filter& op = program[i];
    const std::string where = " at " + std::to_string(i);
    const std::size_t room = size - i - 1;  // instructions behind this one
    switch (op.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (op.k % 4 != 0 || op.k >= sizeof(seccomp_data)) return "a load outside the data" + where;
        break;
      case BPF_ALU | BPF_AND | BPF_K:
      case BPF_RET | BPF_K:
        break;
      case BPF_JMP | BPF_JA:
        if (op.k >= room) return "a jump out of the program" + where;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
      case BPF_JMP | BPF_JGE | BPF_K:
      case BPF_JMP | BPF_JGT | BPF_K:
      case BPF_JMP | BPF_JSET | BPF_K:
        if (op.jt >= room || op.jf >= room) return "a jump out of the program" + where;
        break;
      default:
        return "an unknown instruction" + where;
    }
  }
  return program.back().code == (BPF_RET | BPF_K) ? "" : "its end";
}

namespace detail {

inline bool jumps(const sock_filter& op, std::uint32_t accumulator) {
  switch (BPF_OP(op.code)) {
    case BPF_JEQ:
      return accumulator == op.k;
    case BPF_JGE:
      return accumulator >= op.k;
    case BPF_JGT:
      return accumulator > op.k;
    default:
      return (accumulator & op.k) != 0;
  }
}

// `read` gives the word at an offset, or nothing to stop there.
template <class Read>
std::optional<std::uint32_t> walk(std::span<const sock_filter> program, Read read) {
  std::uint32_t accumulator = 0;
  for (std::size_t at = 0; at < program.size(); ++at) {
    const sock_filter& op = program[at];
    switch (BPF_CLASS(op.code)) {
      case BPF_LD: {
        std::optional<std::uint32_t> word = read(op.k);
        if (!word) return std::nullopt;
        accumulator = *word;
        break;
      }
      case BPF_ALU:
        accumulator &= op.k;
        break;
      case BPF_JMP:
        if (BPF_OP(op.code) == BPF_JA)
          at += op.k;
        else
          at += jumps(op, accumulator) ? op.jt : op.jf;
        break;
      default:
        return op.k;
    }
  }
  throw std::logic_error("the program ran over its end");
}

}  // namespace detail

// The action, as SECCOMP_RET_*, of a program without problem_of().
inline std::uint32_t run(std::span<const sock_filter> program, const seccomp_data& data) {
  return *detail::walk(program, [&](std::uint32_t offset) {
    std::uint32_t word = 0;
    std::memcpy(&word, reinterpret_cast<const char*>(&data) + offset, sizeof word);
    return std::optional(word);
  });
}

// Whether the kernel, looking at architecture and number only, finds that the call is allowed, and
// so never runs the program for it.
inline bool always_allows(std::span<const sock_filter> program, std::uint32_t arch,
                          std::uint32_t number) {
  auto action = detail::walk(program, [&](std::uint32_t offset) -> std::optional<std::uint32_t> {
    if (offset == offsetof(seccomp_data, arch)) return arch;
    if (offset == offsetof(seccomp_data, nr)) return number;
    return std::nullopt;
  });
  return action == SECCOMP_RET_ALLOW;
}

}  // namespace asr::bpf
