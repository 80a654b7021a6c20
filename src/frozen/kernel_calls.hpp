// System calls for programs that have no library. Results as the kernel gives them: errors are
// small negative numbers.
#pragma once

#include <asm/unistd.h>

#include <cstdint>
#include <type_traits>

namespace asr::frozen {

template <class Argument>
inline std::uint64_t word_of(Argument argument) {
  if constexpr (std::is_pointer_v<Argument>)
    return reinterpret_cast<std::uint64_t>(argument);
  else if constexpr (std::is_null_pointer_v<Argument>)
    return 0;
  else
    return static_cast<std::uint64_t>(argument);
}

template <class... Arguments>
inline std::int64_t kernel(long number, Arguments... arguments) {
  static_assert(sizeof...(arguments) <= 6);
  std::uint64_t words[6]{};
  int count = 0;
  ((words[count++] = word_of(arguments)), ...);
  std::int64_t result = 0;
  register std::uint64_t r10 asm("r10") = words[3];
  register std::uint64_t r8 asm("r8") = words[4];
  register std::uint64_t r9 asm("r9") = words[5];
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(words[0]), "S"(words[1]), "d"(words[2]), "r"(r10), "r"(r8),
                 "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

inline bool failed(std::int64_t result) { return result < 0 && result > -4096; }

}  // namespace asr::frozen
