// Loaded into a program that is to be frozen. Uses no library: whatever it called might be half
// way through something when the memory is written.
#include <linux/prctl.h>
#include <linux/rseq.h>
#include <sys/stat.h>

#include "frozen/mappings.hpp"

// Of the C library, where it has them.
extern "C" {
extern char* __curbrk __attribute__((weak));
extern const long __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));
}

namespace asr::frozen {

namespace {

constexpr std::uint64_t kTextRoom = 4 << 20;
// Runs that are shorter are not worth a mapping of their own.
constexpr std::uint64_t kZeroRun = 64 * kPage;
constexpr std::uint64_t kLongRun = 64 * kPage;
// Runs that are shorter, of pages that changed, are patches, as long as these are few.
constexpr std::uint64_t kShortRun = 16 * kPage;
constexpr std::uint64_t kMostPatched = 4096 * kPage;
constexpr std::uint64_t kFirstGap = 4 * kPage;
constexpr std::uint32_t kRseqSignature = 0x53053053;

// Everything that is needed meanwhile, in memory of its own that is no part of the image.
struct Desk {
  Header header;
  Piece pieces[kMostPieces];
  Patch patches[kMostPatches];
  std::uint64_t patched_bytes;
  alignas(8) char names[kMostNames];
  char text[kTextRoom];  // of /proc/self/maps
  PageFlags flags;
  std::uint64_t kept[kMostLayers];  // the layers that may be built upon
  std::uint64_t kept_count;
  std::uint64_t gap;  // What lies between two pages that changed and is not longer goes with them.
  bool may_patch;
  bool live;    // frozen as it stands: what files and layers hold is left there
  bool thawed;  // the program came out of an image itself
  std::uint64_t heap_begin, heap_end;                // of the program break
  std::uint64_t last_device, last_inode, last_file;  // of the name that was added last
};

bool add(Desk& desk, const Piece& piece) {
  if (piece.begin == piece.end) return true;
  Header& header = desk.header;
  if (header.pieces > 0) {
    Piece& last = desk.pieces[header.pieces - 1];
    bool same = last.end == piece.begin && last.protection == piece.protection &&
                last.kind == piece.kind && last.source == piece.source;
    bool own = piece.kind == Kind::pages && piece.source == 0;
    bool follows = own || piece.kind == Kind::zero || piece.kind == Kind::closed ||
                   last.offset + (last.end - last.begin) == piece.offset;
    if (same && follows && piece.kind != Kind::kernel) {
      last.end = piece.end;
      return true;
    }
  }
  if (header.pieces == kMostPieces) return false;
  desk.pieces[header.pieces++] = piece;
  return true;
}

Piece piece_of(const Mapping& mapping, std::uint64_t begin, std::uint64_t end, Kind kind) {
  Piece piece;
  piece.begin = begin;
  piece.end = end;
  piece.protection = mapping.protection;
  piece.kind = kind;
  return piece;
}

bool is_zero(std::uint64_t page) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(page);
  for (std::uint64_t i = 0; i < kPage / 8; ++i)
    if (words[i] != 0) return false;
  return true;
}

// Long runs of pages that were never written to are left out.
bool add_whole(Desk& desk, const Mapping& mapping) {
  std::uint64_t begin = mapping.begin;
  std::uint64_t zeros = 0;  // pages before `at` in a row
  for (std::uint64_t at = mapping.begin;; at += kPage) {
    bool zero = at < mapping.end && is_zero(at);
    if (zero) {
      zeros += kPage;
      continue;
    }
    if (zeros >= kZeroRun) {
      if (!add(desk, piece_of(mapping, begin, at - zeros, Kind::pages))) return false;
      if (!add(desk, piece_of(mapping, at - zeros, at, Kind::zero))) return false;
      begin = at;
    }
    zeros = 0;
    if (at >= mapping.end) return add(desk, piece_of(mapping, begin, mapping.end, Kind::pages));
  }
}

bool add_patch(Desk& desk, std::uint64_t begin, std::uint64_t end) {
  if (desk.header.patches == kMostPatches || desk.patched_bytes + (end - begin) > kMostPatched)
    return false;
  desk.patches[desk.header.patches++] = {begin, end - begin};
  desk.patched_bytes += end - begin;
  return true;
}

// Pages that the program has written to are its own; the others are what `rest` says, which is
// described for the beginning of the mapping.
bool add_changed(Desk& desk, const Mapping& mapping, Piece rest) {
  bool may_patch = desk.may_patch && (mapping.protection & PROT_WRITE) != 0;
  auto add_rest = [&](std::uint64_t begin, std::uint64_t end) {
    Piece piece = rest;
    piece.begin = begin;
    piece.end = end;
    if (rest.kind != Kind::zero) piece.offset += begin - mapping.begin;
    return add(desk, piece);
  };
  std::uint64_t told = mapping.begin;  // so far
  auto close_run = [&](std::uint64_t begin, std::uint64_t end) {
    if (begin == end) return true;
    if (may_patch && end - begin < kShortRun) return add_patch(desk, begin, end);
    if (!add_rest(told, begin)) return false;
    told = end;
    return add(desk, piece_of(mapping, begin, end, Kind::pages));
  };
  std::uint64_t begin = mapping.begin;  // of the run of own pages, which may be empty
  std::uint64_t end = mapping.begin;
  for (std::uint64_t at = mapping.begin; at < mapping.end; at += kPage) {
    if (!desk.flags.is_own(at)) continue;
    if (at - end > desk.gap || begin == end) {
      if (!close_run(begin, end)) return false;
      begin = at;
    }
    end = at + kPage;
  }
  return close_run(begin, end) && add_rest(told, mapping.end);
}

// Where the layer is in the header; -1: it must not be built upon.
std::int64_t index_of_layer(Desk& desk, std::uint64_t number) {
  Header& header = desk.header;
  for (std::uint64_t i = 1; i < header.layer_count; ++i)
    if (header.layers[i] == number) return static_cast<std::int64_t>(i);
  for (std::uint64_t i = 0; i < desk.kept_count && header.layer_count < kMostLayers; ++i)
    if (desk.kept[i] == number) {
      header.layers[header.layer_count] = number;
      return static_cast<std::int64_t>(header.layer_count++);
    }
  return -1;
}

// Where the name is; -1: the file cannot be told by its name.
std::int64_t index_of_file(Desk& desk, const Mapping& mapping) {
  bool deleted = false;
  std::uint64_t length = length_of(mapping.name, deleted);
  if (deleted || mapping.name[0] != '/') return -1;
  if (desk.header.names > 0 && desk.last_device == mapping.device &&
      desk.last_inode == mapping.inode)
    return static_cast<std::int64_t>(desk.last_file);
  std::uint64_t room = (length + 1 + 7) & ~std::uint64_t{7};
  Header& header = desk.header;
  if (header.names + sizeof(FileName) + room > kMostNames) return -1;
  auto* entry = reinterpret_cast<FileName*>(desk.names + header.names);
  auto* path = reinterpret_cast<char*>(entry + 1);
  for (std::uint64_t i = 0; i < room; ++i) path[i] = i < length ? mapping.name[i] : '\0';
  struct stat info {};
  if (kernel(__NR_stat, path, &info) != 0 || info.st_ino != mapping.inode) return -1;
  *entry = {static_cast<std::uint64_t>(info.st_size), info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
            room};
  desk.last_device = mapping.device;
  desk.last_inode = mapping.inode;
  desk.last_file = header.names;
  header.names += sizeof(FileName) + room;
  return static_cast<std::int64_t>(desk.last_file);
}

bool add_of_file(Desk& desk, const Mapping& mapping) {
  if (std::uint64_t number = layer_number(mapping)) {
    std::int64_t layer = index_of_layer(desk, number);
    if (layer < 0) return add(desk, piece_of(mapping, mapping.begin, mapping.end, Kind::pages));
    Piece rest = piece_of(mapping, 0, 0, Kind::pages);
    rest.source = static_cast<std::uint64_t>(layer);
    rest.offset = mapping.offset;
    return add_changed(desk, mapping, rest);
  }
  std::int64_t file = index_of_file(desk, mapping);
  if (file < 0) return add(desk, piece_of(mapping, mapping.begin, mapping.end, Kind::pages));
  Piece rest = piece_of(mapping, 0, 0, Kind::file);
  rest.source = static_cast<std::uint64_t>(file);
  rest.offset = mapping.offset;
  return add_changed(desk, mapping, rest);
}

int add_shared(Desk& desk, const Mapping& mapping) {
  std::int64_t file = desk.live && mapping.inode != 0 ? index_of_file(desk, mapping) : -1;
  if (file < 0) return -EBUSY;  // Somebody else sees what is written there.
  Piece piece = piece_of(mapping, mapping.begin, mapping.end, Kind::shared);
  piece.source = static_cast<std::uint64_t>(file);
  piece.offset = mapping.offset;
  return add(desk, piece) ? 0 : -E2BIG;
}

int add_mapping(Desk& desk, const Mapping& mapping) {
  Header& header = desk.header;
  bool room = true;
  if (begins(mapping.name, "[vdso]") || begins(mapping.name, "[vvar")) {
    if (begins(mapping.name, "[vdso]")) header.vdso = mapping.begin;
    room = add(desk, piece_of(mapping, mapping.begin, mapping.end, Kind::kernel));
  } else if ((mapping.protection & PROT_READ) == 0) {
    if (mapping.protection != 0) return -EACCES;
    room = add(desk, piece_of(mapping, mapping.begin, mapping.end, Kind::closed));
  } else if (mapping.shared && (mapping.protection & PROT_WRITE) != 0) {
    return add_shared(desk, mapping);
  } else if (mapping.inode != 0) {
    room = desk.live ? add_of_file(desk, mapping)
                     : add(desk, piece_of(mapping, mapping.begin, mapping.end, Kind::pages));
  } else {
    if (begins(mapping.name, "[stack]")) {
      header.stack_begin = mapping.begin;
      header.stack_end = mapping.end;
    }
    if (begins(mapping.name, "[heap]")) {
      desk.heap_begin = mapping.begin;
      desk.heap_end = mapping.end;
    }
    room = desk.live ? add_changed(desk, mapping, piece_of(mapping, 0, 0, Kind::zero))
                     : add_whole(desk, mapping);
  }
  return room ? 0 : -E2BIG;
}

bool was_thawed(const Desk& desk) {
  for (const char* at = desk.text; *at != '\0';)
    if (read_mapping(at).begin == kTable) return true;
  return false;
}

int take_stock(Desk& desk) {
  auto own = reinterpret_cast<std::uint64_t>(&desk);
  desk.header.pieces = desk.header.patches = desk.header.names = 0;
  desk.patched_bytes = 0;
  desk.header.layer_count = 1;
  for (const char* at = desk.text; *at != '\0';) {
    Mapping mapping = read_mapping(at);
    if (begins(mapping.name, "[vsyscall]")) continue;
    if (mapping.begin >= kRealmBegin && mapping.begin < kRealmEnd) continue;
    // That of thaw: the program's own is one of the others.
    if (desk.thawed && begins(mapping.name, "[stack]")) continue;
    if (mapping.begin <= own && own < mapping.end) {
      // The kernel may have joined ours with a neighbour.
      std::uint64_t end = mapping.end;
      mapping.end = own;
      if (int done = mapping.begin < own ? add_mapping(desk, mapping) : 0; done != 0) return done;
      mapping.begin = own + round_up(sizeof(Desk));
      mapping.end = end;
      if (mapping.begin >= end) continue;
    }
    if (int done = add_mapping(desk, mapping); done != 0) return done;
  }
  bool whole = desk.header.vdso != 0 && (desk.thawed || desk.header.stack_end != 0);
  return whole ? 0 : -ENOENT;
}

// Then without patches, and with more and more of what has not changed, until the tables are large
// enough.
int take_stock_somehow(Desk& desk) {
  desk.may_patch = true;
  desk.gap = 0;
  if (int done = take_stock(desk); done != -E2BIG) return done;
  desk.may_patch = false;
  for (desk.gap = kFirstGap; desk.gap <= (1ULL << 30); desk.gap *= 8) {
    int done = take_stock(desk);
    if (done != -E2BIG) return done;
  }
  return -E2BIG;
}

void lay_out(Desk& desk) {
  Header& header = desk.header;
  std::uint64_t at = round_up(sizeof(Header) + header.pieces * sizeof(Piece) +
                              header.patches * sizeof(Patch) + header.names);
  header.patched = at;
  at += desk.patched_bytes;
  for (std::uint64_t i = 0; i < header.pieces; ++i) {
    Piece& piece = desk.pieces[i];
    if (piece.kind != Kind::pages || piece.source != 0) continue;
    piece.offset = at;
    at += piece.end - piece.begin;
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

// Memory that lies in the image from now on, too, and is no longer held twice. Not what this very
// function may write to meanwhile, and not what the kernel treats in a way of its own.
void leave_in_image(const Desk& desk, int descriptor, const Piece& piece, std::uint64_t begin,
                    std::uint64_t end) {
  constexpr std::uint64_t kNear = 1 << 20;  // on the stack
  auto here = address_of(__builtin_frame_address(0));
  auto overlaps = [&](std::uint64_t from, std::uint64_t to) { return begin < to && from < end; };
  if (overlaps(desk.header.stack_begin, desk.header.stack_end) ||
      overlaps(desk.heap_begin, desk.heap_end) || overlaps(here - kNear, here + kNear))
    return;
  kernel(__NR_mmap, begin, end - begin, piece.protection, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
         descriptor, piece.offset + (begin - piece.begin));
}

// `give_up`: pages are taken out of the program's own memory as soon as they are written.
int write_pages(const Desk& desk, int descriptor, const Piece& piece, bool give_up) {
  constexpr std::uint64_t kAtOnce = 4 << 20;
  for (std::uint64_t at = piece.begin; at < piece.end;) {
    std::uint64_t end = piece.end - at < kAtOnce ? piece.end : at + kAtOnce;
    if (int done = write_all(descriptor, at, end - at); done != 0) return done;
    if (give_up && piece.end - piece.begin >= kLongRun)
      leave_in_image(desk, descriptor, piece, at, end);
    at = end;
  }
  return 0;
}

int write_patches(const Desk& desk, int descriptor) {
  constexpr std::uint64_t kAtOnce = 1024;  // as many as the kernel takes
  const Header& header = desk.header;
  for (std::uint64_t i = 0; i < header.patches; i += kAtOnce) {
    std::uint64_t count = header.patches - i < kAtOnce ? header.patches - i : kAtOnce;
    std::uint64_t bytes = 0;
    for (std::uint64_t k = 0; k < count; ++k) bytes += desk.patches[i + k].bytes;
    std::int64_t n = kernel(__NR_writev, descriptor, desk.patches + i, count);
    if (n < 0) return static_cast<int>(n);
    if (static_cast<std::uint64_t>(n) != bytes) return -ENOMEM;  // The file takes no more.
  }
  return 0;
}

int write_image(const Desk& desk, int descriptor, bool give_up) {
  const Header& header = desk.header;
  std::uint64_t table = header.pieces * sizeof(Piece);
  std::uint64_t patches = header.patches * sizeof(Patch);
  int done = write_all(descriptor, address_of(&header), sizeof(header));
  if (done == 0) done = write_all(descriptor, address_of(desk.pieces), table);
  if (done == 0) done = write_all(descriptor, address_of(desk.patches), patches);
  if (done == 0) done = write_all(descriptor, address_of(desk.names), header.names);
  static const char nothing[kPage]{};
  std::uint64_t used = sizeof(header) + table + patches + header.names;
  if (done == 0) done = write_all(descriptor, address_of(nothing), round_up(used) - used);
  if (done == 0) done = write_patches(desk, descriptor);
  for (std::uint64_t i = 0; i < header.pieces && done == 0; ++i) {
    const Piece& piece = desk.pieces[i];
    if (piece.kind == Kind::pages && piece.source == 0)
      done = write_pages(desk, descriptor, piece, give_up);
  }
  return done;
}

int read_maps(Desk& desk) {
  std::int64_t file = kernel(__NR_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return static_cast<int>(file);
  std::uint64_t used = 0;
  std::int64_t n = 1;
  while (n > 0 && used + 1 < kTextRoom) {
    n = kernel(__NR_read, file, desk.text + used, kTextRoom - 1 - used);
    if (n > 0) used += static_cast<std::uint64_t>(n);
  }
  kernel(__NR_close, file);
  desk.text[used] = '\0';
  return n == 0 ? 0 : -E2BIG;
}

int take_thread(Header& header) {
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
  for (int i = 0; i < kSignals; ++i)
    if (kernel(__NR_rt_sigaction, i + 1, nullptr, &header.actions[i], 8) < 0)
      header.actions[i] = {};
  return 0;
}

int prepare(Desk& desk) {
  if (int done = desk.flags.open(); done != 0) return done;
  int done = take_thread(desk.header);
  if (done == 0) done = read_maps(desk);
  desk.thawed = done == 0 && was_thawed(desk);
  if (done == 0) done = take_stock_somehow(desk);
  desk.flags.close();
  if (done == 0) lay_out(desk);
  return done;
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

enum : std::uint32_t {
  kLive = 1,    // Only what has changed is written, and what files hold is left there.
  kGiveUp = 2,  // Long runs of pages are taken from the image from now on: `descriptor` is a file.
};

// Writes the program that calls it to `descriptor`, as the layer `number` on top of those of
// `layers`. Returns 0 in this process, 1 in every one that is made from the image, and a negative
// errno if it cannot be done.
extern "C" __attribute__((visibility("default"))) int asr_freeze(int descriptor,
                                                                 std::uint64_t number,
                                                                 const std::uint64_t* layers,
                                                                 std::uint32_t layer_count,
                                                                 std::uint32_t flags) {
  if (&__curbrk == nullptr) return -ENOSYS;  // A C library whose memory we do not know.
  if (layer_count > kMostLayers) return -EINVAL;
  std::int64_t room = kernel(__NR_mmap, nullptr, round_up(sizeof(Desk)), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (failed(room)) return static_cast<int>(room);
  auto& desk = *reinterpret_cast<Desk*>(room);
  desk.header.magic = kMagic;
  desk.header.layers[0] = number;
  desk.live = (flags & kLive) != 0;
  desk.kept_count = layer_count;
  for (std::uint32_t i = 0; i < layer_count; ++i) desk.kept[i] = layers[i];
  // A handler that ran between two pages would be half in the image.
  std::uint64_t all = ~std::uint64_t{0};
  kernel(__NR_rt_sigprocmask, 0 /* block */, &all, &desk.header.signal_mask, 8);
  if (asr_save_registers(&desk.header.registers) != 0) {
    // The process this runs in has its break elsewhere, where malloc() must not go on: from now on
    // it asks for mappings.
    __curbrk = reinterpret_cast<char*>(~std::uint64_t{0xfff});
    return 1;
  }
  int done = prepare(desk);
  if (done == 0) done = write_image(desk, descriptor, (flags & kGiveUp) != 0);
  kernel(__NR_rt_sigprocmask, 2 /* set */, &desk.header.signal_mask, nullptr, 8);
  kernel(__NR_munmap, room, round_up(sizeof(Desk)));
  return done;
}

}  // namespace asr::frozen
