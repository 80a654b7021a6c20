// Executed in the place of a program that was frozen: puts the image where it was, gives the thread
// back what the kernel knew of it, and goes on in the middle of the program. Uses no library and
// lies where programs never do.
#include <asm/prctl.h>
#include <elf.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "frozen/image.hpp"
#include "frozen/kernel_calls.hpp"

namespace asr::frozen {

namespace {

constexpr std::uint64_t kGrowth = 8 << 20;  // as far as the stack may still grow
constexpr std::uint64_t kNear = 256 << 10;  // what we take for our own stack

[[noreturn]] void give_up() {
  kernel(__NR_exit_group, kExitBadImage);
  __builtin_trap();
}

void demand(bool fine) {
  if (!fine) give_up();
}

bool overlap(std::uint64_t a, std::uint64_t a_end, std::uint64_t b, std::uint64_t b_end) {
  return a < b_end && b < a_end;
}

struct Birth {
  std::uint64_t stack = 0;  // where the kernel has put arguments and environment
  std::uint64_t stack_end = 0;
  std::uint64_t vdso = 0;
  const char* name = nullptr;
};

Birth look_around(const std::uint64_t* words) {
  Birth birth;
  birth.stack = reinterpret_cast<std::uint64_t>(words) & ~(kPage - 1);
  std::uint64_t count = *words++;
  if (count > 0) birth.name = reinterpret_cast<const char*>(words[0]);
  words += count + 1;
  while (*words != 0) ++words;
  for (++words; words[0] != AT_NULL; words += 2) {
    if (words[0] == AT_SYSINFO_EHDR) birth.vdso = words[1];
    if (words[0] == AT_EXECFN) birth.stack_end = round_up(words[1] + kPage);  // the topmost string
  }
  return birth;
}

// One mapping of the kernel's. It may be moved, but not onto itself.
void move(std::uint64_t from, std::uint64_t to, std::uint64_t size) {
  if (from == to) return;
  if (overlap(from, from + size, to, to + size)) {
    demand(!failed(kernel(__NR_mremap, from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, kWaiting)));
    from = kWaiting;
  }
  demand(!failed(kernel(__NR_mremap, from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to)));
}

void move_kernel_pieces(const Header& header, const Piece* pieces, const Birth& birth) {
  for (std::uint64_t i = 0; i < header.pieces; ++i) {
    const Piece& piece = pieces[i];
    if (piece.kind != Kind::kernel) continue;
    demand(!overlap(piece.begin, piece.end, birth.stack - kNear, birth.stack_end));
    move(birth.vdso + (piece.begin - header.vdso), piece.begin, piece.end - piece.begin);
  }
}

void take(std::uint64_t begin, std::uint64_t size, std::uint32_t protection, int flags,
          int descriptor, std::uint64_t offset) {
  std::int64_t at = kernel(__NR_mmap, begin, size, protection,
                           MAP_NORESERVE | MAP_FIXED_NOREPLACE | flags, descriptor, offset);
  demand(at == static_cast<std::int64_t>(begin));
}

// A file of the sandbox, if it is still the one that was mapped.
int open_same(const FileName& name, int flags) {
  const auto* path = reinterpret_cast<const char*>(&name + 1);
  std::int64_t file = kernel(__NR_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0);
  demand(!failed(file));
  struct stat info {};
  demand(kernel(__NR_fstat, file, &info) == 0 && S_ISREG(info.st_mode));
  // What is written to meanwhile is meant to be another.
  bool same = static_cast<std::uint64_t>(info.st_size) == name.size &&
              info.st_mtim.tv_sec == name.seconds && info.st_mtim.tv_nsec == name.nanoseconds;
  demand(same || flags == O_RDWR);
  return static_cast<int>(file);
}

const Patch* patches_of(const Header& header, const Piece* pieces) {
  return reinterpret_cast<const Patch*>(pieces + header.pieces);
}

void put_in_place(const Header& header, const Piece* pieces) {
  const auto* names = reinterpret_cast<const char*>(patches_of(header, pieces) + header.patches);
  int file = -1;  // that was opened last
  std::uint64_t opened = 0;
  int opened_for = -1;
  for (std::uint64_t i = 0; i < header.pieces; ++i) {
    const Piece& piece = pieces[i];
    std::uint64_t size = piece.end - piece.begin;
    if (piece.kind == Kind::pages) {
      demand(piece.source < header.layer_count);
      int layer = kImageDescriptor + static_cast<int>(piece.source);
      take(piece.begin, size, piece.protection, MAP_PRIVATE, layer, piece.offset);
    } else if (piece.kind == Kind::file || piece.kind == Kind::shared) {
      int wanted = piece.kind == Kind::file ? O_RDONLY : O_RDWR;
      if (file < 0 || opened != piece.source || opened_for != wanted) {
        demand(piece.source + sizeof(FileName) < header.names);
        if (file >= 0) kernel(__NR_close, file);
        file = open_same(*reinterpret_cast<const FileName*>(names + piece.source), wanted);
        opened = piece.source;
        opened_for = wanted;
      }
      int flags = piece.kind == Kind::file ? MAP_PRIVATE : MAP_SHARED;
      take(piece.begin, size, piece.protection, flags, file, piece.offset);
    } else if (piece.kind != Kind::kernel) {
      take(piece.begin, size, piece.protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
  }
  if (file >= 0) kernel(__NR_close, file);
  if (header.stack_begin != 0)
    take(header.stack_begin - kGrowth, kGrowth, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
         -1, 0);
}

void read_patches(const Header& header, const Patch* patches) {
  constexpr std::uint64_t kAtOnce = 1024;  // as many as the kernel takes
  std::uint64_t offset = header.patched;
  for (std::uint64_t i = 0; i < header.patches; i += kAtOnce) {
    std::uint64_t count = header.patches - i < kAtOnce ? header.patches - i : kAtOnce;
    std::uint64_t bytes = 0;
    for (std::uint64_t k = 0; k < count; ++k) bytes += patches[i + k].bytes;
    std::int64_t n = kernel(__NR_preadv, kImageDescriptor, patches + i, count, offset, 0);
    demand(n == static_cast<std::int64_t>(bytes));
    offset += bytes;
  }
}

void restore_thread(const Header& header) {
  demand(kernel(__NR_arch_prctl, ARCH_SET_FS, header.thread) == 0);
  std::int64_t tid = kernel(__NR_set_tid_address, header.tid_address);
  if (header.tid_address != 0) *reinterpret_cast<int*>(header.tid_address) = static_cast<int>(tid);
  if (header.robust_list != 0) kernel(__NR_set_robust_list, header.robust_list, header.robust_size);
  if (header.rseq != 0) kernel(__NR_rseq, header.rseq, header.rseq_size, 0, header.rseq_signature);
  for (int i = 0; i < kSignals; ++i)
    kernel(__NR_rt_sigaction, i + 1, &header.actions[i], nullptr, 8);
  kernel(__NR_rt_sigprocmask, 2 /* set */, &header.signal_mask, nullptr, 8);
}

[[noreturn]] void go_on(const Registers& registers) {
  asm volatile(
      "mov 0(%0), %%rbx\n"
      "mov 8(%0), %%rbp\n"
      "mov 16(%0), %%r12\n"
      "mov 24(%0), %%r13\n"
      "mov 32(%0), %%r14\n"
      "mov 40(%0), %%r15\n"
      "mov 48(%0), %%rsp\n"
      "mov $1, %%eax\n"
      "jmp *56(%0)\n"
      :
      : "D"(&registers)
      : "memory");
  __builtin_unreachable();
}

const char* last_part(const char* path) {
  const char* part = path;
  for (; *path != '\0'; ++path)
    if (*path == '/') part = path + 1;
  return part;
}

}  // namespace

extern "C" [[noreturn]] void asr_thaw(const std::uint64_t* stack) {
  Birth birth = look_around(stack);
  demand(birth.vdso != 0 && birth.stack_end != 0);
  // Only the first page tells how long the table is.
  std::uint64_t room = round_up(sizeof(Header) + kMostPieces * sizeof(Piece) +
                                kMostPatches * sizeof(Patch) + kMostNames);
  take(kTable, room, PROT_READ, MAP_PRIVATE, kImageDescriptor, 0);
  const auto& header = *reinterpret_cast<const Header*>(kTable);
  const auto* pieces = reinterpret_cast<const Piece*>(kTable + sizeof(Header));
  demand(header.magic == kMagic && header.pieces <= kMostPieces && header.patches <= kMostPatches &&
         header.names <= kMostNames && header.layer_count <= kMostLayers);
  move_kernel_pieces(header, pieces, birth);
  put_in_place(header, pieces);
  read_patches(header, patches_of(header, pieces));
  for (std::uint64_t i = 0; i < header.layer_count; ++i) kernel(__NR_close, kImageDescriptor + i);
  if (birth.name != nullptr) kernel(__NR_prctl, PR_SET_NAME, last_part(birth.name), 0, 0, 0);
  restore_thread(header);
  // The header stays mapped: registers are read from it at the very end.
  go_on(header.registers);
}

asm(R"(
    .text
    .globl _start
    .type _start, @function
_start:
    xor %ebp, %ebp
    mov %rsp, %rdi
    and $-16, %rsp
    call asr_thaw
    hlt
)");

}  // namespace asr::frozen
