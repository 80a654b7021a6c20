// E21-E25, E32, E39 and argument tricks: system calls that nothing in a sandbox needs.
// Outside, every call has arguments that change nothing: a wrong magic, a missing file, the value
// it has already.
#include <asm/ldt.h>
#include <asm/prctl.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "probe.hpp"

namespace probes {

namespace {

const char* const kMissing = "/nonexistent/asr";

#if defined(__x86_64__)
long call32(long number, unsigned long a = 0, unsigned long b = 0, unsigned long c = 0) {
  long result;
  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"(number), "b"(a), "c"(b), "d"(c)
                   : "memory", "r8", "r9", "r10", "r11");
  return static_cast<int>(result);
}

void e21_other_abis(Probe& probe) {
  probe.attempt("getpid through int 0x80", [] { return when(call32(20) == ::getpid()); });
  probe.attempt("unshare through int 0x80", [] {
    long result = call32(310, CLONE_NEWUTS);
    return Outcome{result == 0, static_cast<int>(-result), ""};
  });
  probe.attempt("socketcall through int 0x80", [] {
    // Its arguments must lie below 4 GiB.
    auto* args = static_cast<unsigned*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0));
    args[0] = 1 /* AF_UNIX */, args[1] = 1, args[2] = 0;
    long result = call32(102, 1 /* SYS_SOCKET */, reinterpret_cast<unsigned long>(args));
    return Outcome{result >= 0, static_cast<int>(-result), ""};
  });
  for (auto [number, name] : {std::pair{39L, "getpid"}, {520L, "execve"}, {272L, "unshare"}})
    probe.attempt(std::string(name) + " by its x32 number", Unprovable{"this kernel has no x32"},
                  [n = number] { return reached(::syscall(n | 0x40000000L, 0, 0, 0)); });
  probe.attempt("a number beyond the last", Unprovable{"no kernel has it"},
                [] { return reached(::syscall(100'000, 0, 0, 0)); });
}
#else
void e21_other_abis(Probe&) {}
#endif

void e22_io_uring(Probe& probe) {
  probe.attempt("io_uring_setup", [] {
    io_uring_params params{};
    return from(::syscall(SYS_io_uring_setup, 8, &params));
  });
  probe.attempt("io_uring_enter",
                [] { return reached(::syscall(SYS_io_uring_enter, -1, 0, 0, 0, nullptr, 0)); });
  probe.attempt("io_uring_register",
                [] { return reached(::syscall(SYS_io_uring_register, -1, 0, nullptr, 0)); });
}

void e23_dangerous(Probe& probe) {
  probe.attempt("bpf(MAP_CREATE)", [] {
    bpf_attr attr{};
    attr.map_type = BPF_MAP_TYPE_ARRAY;
    attr.key_size = 4;
    attr.value_size = 4;
    attr.max_entries = 1;
    return from(::syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)));
  });
  probe.attempt("perf_event_open of itself", [] {
    perf_event_attr attr{};
    attr.size = sizeof(attr);
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_TASK_CLOCK;
    attr.exclude_kernel = 1;
    return from(::syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
  });
  probe.attempt("userfaultfd",
                [] { return from(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)); });
  probe.attempt("kexec_load", Unprovable{"never tried outside, or not in this kernel"}, [&] {
    if (probe.outside()) return when(false, "not tried outside");
    return reached(::syscall(SYS_kexec_load, 0, 99, nullptr, 0));
  });
  probe.attempt("init_module",
                [] { return reached(::syscall(SYS_init_module, nullptr, 0, nullptr)); });
  probe.attempt("finit_module", [] { return reached(::syscall(SYS_finit_module, -1, "", 0)); });
  probe.attempt("delete_module", [] {
    return reached(::syscall(SYS_delete_module, "asr_no_such_module", O_NONBLOCK));
  });
  probe.attempt("syslog(read all)", [] {
    char text[256];
    return from(::syscall(SYS_syslog, 3, text, sizeof(text)));
  });
  probe.attempt("acct", [] { return reached(::syscall(SYS_acct, kMissing)); });
  probe.attempt("quotactl", [] {
    return reached(::syscall(SYS_quotactl, 0x80000100 /* Q_SYNC */, kMissing, 0, nullptr));
  });
  probe.attempt("swapon", [] { return reached(::syscall(SYS_swapon, kMissing, 0)); });
  probe.attempt("swapoff", [] { return reached(::syscall(SYS_swapoff, kMissing)); });
  probe.attempt("reboot with a wrong magic",
                [] { return reached(::syscall(SYS_reboot, 0, 0, 0, nullptr)); });
  probe.attempt("sethostname", [] { return from(::sethostname("asr", 3)); });
  probe.attempt("setdomainname", [] { return from(::setdomainname("asr", 3)); });
  probe.attempt("iopl(3)", [] { return from(::syscall(SYS_iopl, 3)); });
  probe.attempt("ioperm", [] { return from(::syscall(SYS_ioperm, 0x80, 1, 1)); });
  probe.attempt("name_to_handle_at", [] {
    alignas(8) char handle[128 + 8] = {};
    unsigned room = 128;
    ::memcpy(handle, &room, sizeof(room));
    int mount_id = 0;
    return from(::syscall(SYS_name_to_handle_at, AT_FDCWD, "/", handle, &mount_id, 0));
  });
  probe.attempt("open_by_handle_at", [] {
    alignas(8) char handle[128 + 8] = {};
    unsigned room = 128;
    ::memcpy(handle, &room, sizeof(room));
    int mount_id = 0;
    int root = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)::syscall(SYS_name_to_handle_at, AT_FDCWD, "/", handle, &mount_id, 0);
    return from(::syscall(SYS_open_by_handle_at, root, handle, O_RDONLY));
  });
  probe.attempt("lookup_dcookie", Unprovable{"kernels since 6.7 have none"},
                [] { return reached(::syscall(SYS_lookup_dcookie, 0UL, nullptr, 0UL)); });
  probe.attempt("move_pages of pid 1", [] {
    return reached(::syscall(SYS_move_pages, 1, 0, nullptr, nullptr, nullptr, 0));
  });
  probe.attempt("migrate_pages of pid 1", [] {
    unsigned long nodes = 1;
    return reached(::syscall(SYS_migrate_pages, 1, 8, &nodes, &nodes));
  });
  probe.attempt("vhangup", [] {
    ::setsid();
    return from(::syscall(SYS_vhangup));
  });
  probe.attempt("process_mrelease", [] { return reached(::syscall(SYS_process_mrelease, -1, 0)); });
  probe.attempt("remap_file_pages",
                [] { return reached(::syscall(SYS_remap_file_pages, 1, 0, 0, 0, 0)); });
  probe.attempt("vmsplice", [] { return reached(::syscall(SYS_vmsplice, -1, nullptr, 0, 0)); });
  probe.attempt("fanotify_mark",
                [] { return reached(::syscall(SYS_fanotify_mark, -1, 0, 0, -1, nullptr)); });
  probe.attempt("statmount", Unprovable{"kernels before 6.8 have none"},
                [] { return reached(::syscall(457, nullptr, nullptr, 0, 0)); });
  probe.attempt("listmount", Unprovable{"kernels before 6.8 have none"},
                [] { return reached(::syscall(458, nullptr, nullptr, 0, 0)); });
}

long keyctl(int operation, long a = 0, long b = 0, long c = 0, long d = 0) {
  return ::syscall(SYS_keyctl, operation, a, b, c, d);
}

// Argument: description of a key in the session keyring of the daemon.
void e24_keys(Probe& probe) {
  probe.attempt("add_key", [] {
    return from(::syscall(SYS_add_key, "user", "asr-probe", "x", 1UL, KEY_SPEC_PROCESS_KEYRING));
  });
  probe.attempt("keyctl(GET_KEYRING_ID, session)",
                [] { return from(keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1)); });
  probe.attempt("keyctl(JOIN_SESSION_KEYRING)",
                [] { return from(keyctl(KEYCTL_JOIN_SESSION_KEYRING)); });
  probe.attempt("request_key", [] {
    return reached(::syscall(SYS_request_key, "user", "asr-no-such-key", nullptr, 0));
  });
  if (probe.args() > 0)
    probe.attempt("read a key of the daemon", [&] {
      std::string name = probe.arg(0);
      long key = keyctl(KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, reinterpret_cast<long>("user"),
                        reinterpret_cast<long>(name.c_str()));
      if (key < 0) return from(-1, "search");
      char text[64];
      return from(keyctl(KEYCTL_READ, key, reinterpret_cast<long>(text), sizeof(text)));
    });
}

void e25_process_modes(Probe& probe) {
  for (auto [mode, name] : {std::pair{0x0400000UL, "READ_IMPLIES_EXEC"},
                            {0x0040000UL, "ADDR_NO_RANDOMIZE"},
                            {0x0100000UL, "MMAP_PAGE_ZERO"},
                            {0x0200000UL, "ADDR_COMPAT_LAYOUT"}})
    probe.attempt(std::string("personality(") + name + ")",
                  [m = mode] { return from(::syscall(SYS_personality, m)); });
  probe.attempt("personality(READ_IMPLIES_EXEC) with bits above the 32nd",
                [] { return from(::syscall(SYS_personality, 0x100000000UL | 0x0400000UL)); });
#if defined(__x86_64__)
  probe.attempt("modify_ldt", [] {
    user_desc entry{};
    entry.entry_number = 1;
    entry.base_addr = 0x1000;
    entry.limit = 0xfff;
    entry.seg_32bit = 1;
    entry.contents = 0;
    return from(::syscall(SYS_modify_ldt, 1, &entry, sizeof(entry)));
  });
  probe.attempt("arch_prctl(ARCH_SET_CPUID)", Unprovable{"not every processor can"},
                [] { return from(::syscall(SYS_arch_prctl, 0x1012, 1)); });
  probe.attempt("map_shadow_stack", Unprovable{"not every processor can"},
                [] { return from(::syscall(453, 0, 0x1000, 0)); });
#endif
  probe.attempt("prctl(PR_SET_MM)", [] {
    unsigned size = 0;
    return from(::prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0));
  });
  probe.attempt("prctl(PR_SET_MM) with bits above the 32nd", [] {
    unsigned size = 0;
    return from(::syscall(SYS_prctl, 0x100000000UL | PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0));
  });
  probe.attempt("memfd_secret", Unprovable{"only where the machine has switched it on"},
                [] { return from(::syscall(SYS_memfd_secret, 0)); });
  probe.attempt("prctl(PR_SET_SECUREBITS)",
                [] { return from(::prctl(PR_SET_SECUREBITS, 1, 0, 0, 0)); });
  probe.attempt("unshare with bits above the 32nd", Unprovable{"the kernel refuses them"},
                [] { return from(::syscall(SYS_unshare, 0x100000000UL | CLONE_NEWUTS)); });
}

// What the page-cache bugs of recent years went through. Not the bugs themselves.
void e32_page_cache_doors(Probe& probe) {
  probe.attempt("an AF_ALG socket", Unprovable{"not every kernel has it"},
                [] { return from(::syscall(SYS_socket, 38, 5, 0)); });
  probe.attempt("an XFRM socket", [] { return from(::syscall(SYS_socket, 16, 3, 6)); });
  probe.attempt("a traffic-control change (NET_ADMIN)", [] {
    int fd = static_cast<int>(::syscall(SYS_socket, 2, 2, 0));
    struct {
      char name[16];
      int index;
      char rest[20];
    } request{};
    ::strcpy(request.name, "lo");
    request.index = 100;
    return from(::ioctl(fd, 0x8943 /* SIOCSIFTXQLEN */, &request));
  });
  probe.attempt("vmsplice of a page into a pipe", [] {
    int ends[2];
    if (::pipe(ends) != 0) return from(-1);
    static char page[4096];
    iovec data{page, sizeof(page)};
    return from(::vmsplice(ends[1], &data, 1, 0));
  });
  probe.attempt("an RDS socket", Unprovable{"not every kernel has it"},
                [] { return from(::syscall(SYS_socket, 21, 5, 0)); });
}

void e39_clock(Probe& probe) {
  probe.attempt("clock_settime to the present time", [] {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return from(::clock_settime(CLOCK_REALTIME, &now));
  });
  probe.attempt("settimeofday to the present time", [] {
    timeval now{};
    ::gettimeofday(&now, nullptr);
    return from(::settimeofday(&now, nullptr));
  });
  probe.attempt("adjtimex with the tick it has", [] {
    timex clock{};
    ::adjtimex(&clock);
    clock.modes = ADJ_TICK;
    return from(::adjtimex(&clock));
  });
  probe.attempt("clock_adjtime with the tick it has", [] {
    timex clock{};
    ::adjtimex(&clock);
    clock.modes = ADJ_TICK;
    return from(::syscall(SYS_clock_adjtime, CLOCK_REALTIME, &clock));
  });
  probe.attempt("a time namespace", [] { return from(::unshare(0x80 /* CLONE_NEWTIME */)); });
  probe.attempt(
      "open the hardware clock",
      Unprovable{::access("/dev/rtc0", F_OK) == 0 || !probe.outside() ? ""
                                                                      : "this machine has none"},
      [] { return from(::open("/dev/rtc0", O_RDONLY | O_CLOEXEC)); });
}

}  // namespace

std::span<const Case> syscall_cases() {
  static constexpr Case cases[] = {
      {"E21", e21_other_abis, {}},    {"E22", e22_io_uring, {}},
      {"E23", e23_dangerous, {}},     {"E24", e24_keys, {}},
      {"E25", e25_process_modes, {}}, {"E32", e32_page_cache_doors, {}},
      {"E39", e39_clock, {}},
  };
  return cases;
}

}  // namespace probes
