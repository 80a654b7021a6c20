// What an image holds: this header, a table of pieces, then their pages. Written by the program
// that was frozen and read by thaw, both inside a sandbox; numbers as the processor has them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace asr::frozen {

inline constexpr std::uint64_t kMagic = 0x31306e7a6f726661;  // "afrozn01"
inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint32_t kMostPieces = 8192;
inline constexpr int kSignals = 64;

// How thaw ends when the image cannot be brought to life here. Nothing of it has run then.
inline constexpr int kExitBadImage = 112;
// Where thaw finds the image.
inline constexpr int kImageDescriptor = 3;

enum class Kind : std::uint32_t {
  pages,   // its bytes are in the image
  zero,    // memory of its own that nobody has written to
  closed,  // only the addresses are taken
  kernel,  // code and data that the kernel maps into every process (vdso)
};

struct Piece {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  // of its pages in the image
  std::uint32_t protection = 0;
  Kind kind = Kind::pages;
};

// As the kernel takes it.
struct Action {
  std::uint64_t handler = 0;
  std::uint64_t flags = 0;
  std::uint64_t restorer = 0;
  std::uint64_t mask = 0;
};

// What a function call must leave as it found it, and where it returns to.
struct Registers {
  std::uint64_t rbx = 0, rbp = 0, r12 = 0, r13 = 0, r14 = 0, r15 = 0, rsp = 0, rip = 0;
};

struct Header {
  std::uint64_t magic = kMagic;
  std::uint64_t size = 0;  // of the whole image
  std::uint64_t pieces = 0;
  std::uint64_t stack_begin = 0;  // what of the stack was in use
  std::uint64_t stack_end = 0;
  std::uint64_t vdso = 0;    // where the kernel's code was
  std::uint64_t thread = 0;  // base of the thread's own data
  std::uint64_t tid_address = 0;
  std::uint64_t robust_list = 0;
  std::uint64_t robust_size = 0;
  std::uint64_t rseq = 0;  // zero: the program has none
  std::uint32_t rseq_size = 0;
  std::uint32_t rseq_signature = 0;
  std::uint64_t signal_mask = 0;
  Registers registers;
  Action actions[kSignals];
};

inline constexpr std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kPage - 1) & ~(kPage - 1);
}

}  // namespace asr::frozen
