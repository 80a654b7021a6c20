// What an image holds: this header, a table of pieces, one of patches, the names of files, then
// pages. Written by the program that was frozen and read by thaw, both inside a sandbox; numbers as
// the processor has them.
//
// A program that was made from an image and is frozen again writes only what it has changed: the
// rest it leaves in the images it came from, the layers below.
#pragma once

#include <cstddef>
#include <cstdint>

namespace asr::frozen {

inline constexpr std::uint64_t kMagic = 0x33306e7a6f726661;  // "afrozn03"
inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint32_t kMostPieces = 16384;
inline constexpr std::uint32_t kMostPatches = 16384;
inline constexpr std::uint32_t kMostNames = 1 << 20;  // bytes
inline constexpr std::uint32_t kMostLayers = 8;
inline constexpr int kSignals = 64;

// How thaw ends when the image cannot be brought to life here. Nothing of it has run then.
inline constexpr int kExitBadImage = 112;
// Where thaw finds the image; the layers below it follow.
inline constexpr int kImageDescriptor = 3;
// Where thaw lies and works, far from where the kernel puts programs, libraries and stacks. What it
// leaves there is no part of the program.
inline constexpr std::uint64_t kRealmBegin = 0x10000000000;
inline constexpr std::uint64_t kTable = 0x20000000000;    // where the header is looked at
inline constexpr std::uint64_t kWaiting = 0x21000000000;  // where the vdso may have to wait
inline constexpr std::uint64_t kRealmEnd = 0x22000000000;
// What the file of a layer is called, before its number in hexadecimal digits.
inline constexpr char kLayerName[] = "layer-";

enum class Kind : std::uint32_t {
  pages,   // its bytes are in a layer
  zero,    // memory of its own that nobody has written to
  closed,  // only the addresses are taken
  kernel,  // code and data that the kernel maps into every process (vdso)
  file,    // a file of the sandbox, as it is there
  shared,  // the same, and what is written there is written to the file
};

struct Piece {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;  // in the layer or the file
  std::uint32_t protection = 0;
  Kind kind = Kind::pages;
  std::uint64_t source = 0;  // of pages: which layer; of a file: where its name is
};

// A few pages within a piece that are other than the piece says. A mapping of their own would cost
// more than copying them: they are read into place, all at once, in the order of the table. As
// readv() takes it.
struct Patch {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

// A file that was mapped: if it is another one now, the image does not come to life. The path
// follows, with a zero at its end, then zeros up to a multiple of eight.
struct FileName {
  std::uint64_t size = 0;
  std::int64_t seconds = 0;  // when it was changed last
  std::int64_t nanoseconds = 0;
  std::uint64_t length = 0;  // of the path with its zeros
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
  std::uint64_t patches = 0;               // behind the pieces
  std::uint64_t patched = 0;               // where in the image their pages begin
  std::uint64_t names = 0;                 // bytes behind the patches
  std::uint64_t layer_count = 1;           // this one included
  std::uint64_t layers[kMostLayers] = {};  // their numbers, this one first
  std::uint64_t stack_begin = 0;           // what of the stack was in use; zero: it is a piece
  std::uint64_t stack_end = 0;             // like any other, with all the room it had
  std::uint64_t vdso = 0;                  // where the kernel's code was
  std::uint64_t thread = 0;                // base of the thread's own data
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
