// Loaded into a program that is to be frozen. Uses no library: whatever it called might be half
// way through something when the memory is written.
#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <linux/rseq.h>
#include <sys/mman.h>

#include "frozen/image.hpp"
#include "frozen/kernel_calls.hpp"

// Of the C library, where it has them.
extern "C" {
extern char* __curbrk __attribute__((weak));
extern const long __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));
}

namespace asr::frozen {

namespace {

constexpr std::uint64_t kTextRoom = 1 << 20;
constexpr std::uint64_t kZeroRun =
    64 * kPage;  // Shorter runs are not worth a mapping of their own.
constexpr std::uint32_t kRseqSignature = 0x53053053;

char text[kTextRoom];  // of /proc/self/maps
Piece pieces[kMostPieces];
Header header;

struct Line {
  std::uint64_t begin = 0, end = 0, inode = 0;
  std::uint32_t protection = 0;
  bool shared = false;
  const char* name = nullptr;  // up to the end of the line
};

std::uint64_t hexadecimal(const char*& at) {
  std::uint64_t value = 0;
  for (;; ++at) {
    if (*at >= '0' && *at <= '9')
      value = value * 16 + static_cast<std::uint64_t>(*at - '0');
    else if (*at >= 'a' && *at <= 'f')
      value = value * 16 + static_cast<std::uint64_t>(*at - 'a' + 10);
    else
      return value;
  }
}

// begin-end perms offset major:minor inode name
Line read_line(const char*& at) {
  Line line;
  line.begin = hexadecimal(at);
  line.end = hexadecimal(++at);
  ++at;
  if (at[0] == 'r') line.protection |= PROT_READ;
  if (at[1] == 'w') line.protection |= PROT_WRITE;
  if (at[2] == 'x') line.protection |= PROT_EXEC;
  line.shared = at[3] == 's';
  at += 5;
  hexadecimal(at);
  hexadecimal(++at);
  hexadecimal(++at);
  for (++at; *at >= '0' && *at <= '9'; ++at)
    line.inode = line.inode * 10 + static_cast<std::uint64_t>(*at - '0');
  while (*at == ' ') ++at;
  line.name = at;
  while (*at != '\n' && *at != '\0') ++at;
  if (*at == '\n') ++at;
  return line;
}

bool begins(const char* name, const char* with) {
  while (*with != '\0')
    if (*name++ != *with++) return false;
  return true;
}

bool is_zero(std::uint64_t page) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(page);
  for (std::uint64_t i = 0; i < kPage / 8; ++i)
    if (words[i] != 0) return false;
  return true;
}

bool add(std::uint64_t begin, std::uint64_t end, std::uint32_t protection, Kind kind) {
  if (begin == end) return true;
  if (header.pieces > 0) {
    Piece& last = pieces[header.pieces - 1];
    if (last.end == begin && last.protection == protection && last.kind == kind &&
        kind != Kind::kernel) {
      last.end = end;
      return true;
    }
  }
  if (header.pieces == kMostPieces) return false;
  pieces[header.pieces++] = {begin, end, 0, protection, kind};
  return true;
}

// Long runs of pages that were never written to are left out.
bool add_anonymous(const Line& line) {
  std::uint64_t begin = line.begin;
  std::uint64_t zeros = 0;  // pages before `at` in a row
  for (std::uint64_t at = line.begin;; at += kPage) {
    bool zero = at < line.end && is_zero(at);
    if (zero) {
      zeros += kPage;
      continue;
    }
    if (zeros >= kZeroRun) {
      if (!add(begin, at - zeros, line.protection, Kind::pages)) return false;
      if (!add(at - zeros, at, line.protection, Kind::zero)) return false;
      begin = at;
    }
    zeros = 0;
    if (at >= line.end) return add(begin, line.end, line.protection, Kind::pages);
  }
}

int take_stock(const char* at) {
  header.pieces = 0;
  while (*at != '\0') {
    Line line = read_line(at);
    bool room = true;
    if (begins(line.name, "[vsyscall]")) continue;
    if (begins(line.name, "[vdso]") || begins(line.name, "[vvar")) {
      if (begins(line.name, "[vdso]")) header.vdso = line.begin;
      room = add(line.begin, line.end, line.protection, Kind::kernel);
    } else if ((line.protection & PROT_READ) == 0) {
      if (line.protection != 0) return -EACCES;
      room = add(line.begin, line.end, 0, Kind::closed);
    } else if (line.shared && (line.protection & PROT_WRITE) != 0) {
      return -EBUSY;  // Somebody else sees what is written there.
    } else if (line.inode == 0) {
      if (begins(line.name, "[stack]")) {
        header.stack_begin = line.begin;
        header.stack_end = line.end;
      }
      room = add_anonymous(line);
    } else {
      room = add(line.begin, line.end, line.protection, Kind::pages);
    }
    if (!room) return -E2BIG;
  }
  return header.vdso != 0 && header.stack_end != 0 ? 0 : -ENOENT;
}

void lay_out() {
  std::uint64_t at = round_up(sizeof(Header) + header.pieces * sizeof(Piece));
  for (std::uint64_t i = 0; i < header.pieces; ++i) {
    if (pieces[i].kind != Kind::pages) continue;
    pieces[i].offset = at;
    at += pieces[i].end - pieces[i].begin;
  }
  header.size = at;
}

int write_all(int descriptor, std::uint64_t from, std::uint64_t bytes) {
  while (bytes > 0) {
    std::int64_t n = kernel(__NR_write, descriptor, from, bytes < (1 << 20) ? bytes : (1 << 20));
    if (n == -EINTR) continue;
    if (n <= 0) return n < 0 ? static_cast<int>(n) : -EIO;
    from += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::uint64_t>(n);
  }
  return 0;
}

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

int write_image(int descriptor) {
  std::uint64_t table = header.pieces * sizeof(Piece);
  int done = write_all(descriptor, address_of(&header), sizeof(header));
  if (done == 0) done = write_all(descriptor, address_of(pieces), table);
  static const char nothing[kPage]{};
  std::uint64_t used = sizeof(header) + table;
  if (done == 0) done = write_all(descriptor, address_of(nothing), round_up(used) - used);
  for (std::uint64_t i = 0; i < header.pieces && done == 0; ++i)
    if (pieces[i].kind == Kind::pages)
      done = write_all(descriptor, pieces[i].begin, pieces[i].end - pieces[i].begin);
  return done;
}

int read_maps() {
  std::int64_t file = kernel(__NR_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return static_cast<int>(file);
  std::uint64_t used = 0;
  std::int64_t n = 1;
  while (n > 0 && used + 1 < kTextRoom) {
    n = kernel(__NR_read, file, text + used, kTextRoom - 1 - used);
    if (n > 0) used += static_cast<std::uint64_t>(n);
  }
  kernel(__NR_close, file);
  text[used] = '\0';
  return n == 0 ? 0 : -E2BIG;
}

int take_thread() {
  std::uint64_t thread = 0;
  asm("mov %%fs:0, %0" : "=r"(thread));
  header.thread = thread;
  if (kernel(__NR_prctl, PR_GET_TID_ADDRESS, &header.tid_address, 0, 0, 0) < 0) return -ENOSYS;
  if (kernel(__NR_get_robust_list, 0, &header.robust_list, &header.robust_size) < 0)
    header.robust_list = 0;
  header.rseq = 0;
  if (&__rseq_size != nullptr && &__rseq_offset != nullptr && __rseq_size > 0) {
    header.rseq = thread + static_cast<std::uint64_t>(__rseq_offset);
    header.rseq_size = __rseq_size < 32 ? 32 : __rseq_size;
    header.rseq_signature = kRseqSignature;
  }
  kernel(__NR_rt_sigprocmask, 0, nullptr, &header.signal_mask, 8);
  for (int i = 0; i < kSignals; ++i)
    if (kernel(__NR_rt_sigaction, i + 1, nullptr, &header.actions[i], 8) < 0)
      header.actions[i] = {};
  return 0;
}

}  // namespace

// Returns 0 now and 1 when somebody jumps to where it returned.
extern "C" int asr_save_registers(Registers* registers);
asm(R"(
    .text
    .hidden asr_save_registers
    .globl asr_save_registers
    .type asr_save_registers, @function
asr_save_registers:
    mov %rbx, 0(%rdi)
    mov %rbp, 8(%rdi)
    mov %r12, 16(%rdi)
    mov %r13, 24(%rdi)
    mov %r14, 32(%rdi)
    mov %r15, 40(%rdi)
    lea 8(%rsp), %rax
    mov %rax, 48(%rdi)
    mov (%rsp), %rax
    mov %rax, 56(%rdi)
    xor %eax, %eax
    ret
)");

// Writes the program that calls it to `descriptor`. Returns 0 in this process, 1 in every one that
// is made from the image, and a negative errno if it cannot be done.
extern "C" __attribute__((visibility("default"))) int asr_freeze(int descriptor) {
  if (&__curbrk == nullptr) return -ENOSYS;  // A C library whose memory we do not know.
  header = Header{};
  if (int done = take_thread(); done != 0) return done;
  if (asr_save_registers(&header.registers) != 0) {
    // The process this runs in has its break elsewhere, where malloc() must not go on: from now on
    // it asks for mappings.
    __curbrk = reinterpret_cast<char*>(~std::uint64_t{0xfff});
    return 1;
  }
  int done = read_maps();
  if (done == 0) done = take_stock(text);
  if (done != 0) return done;
  lay_out();
  return write_image(descriptor);
}

}  // namespace asr::frozen
