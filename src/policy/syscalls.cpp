#include "policy/syscalls.hpp"

#include <algorithm>
#include <cerrno>
#include <span>

namespace asr {
namespace {

constexpr int kNone = -1;  // The machine has no such call.

struct Known {
  std::string_view name;
  int x86_64;
  int aarch64;
  std::string_view why = {};

  constexpr int on(Machine machine) const { return machine == Machine::x86_64 ? x86_64 : aarch64; }
};

// What programs use whatever the arguments: the part of Docker's list that asks for no capability,
// less what kRefused and kAbsent name. ptrace and process_vm_* are for debuggers: they reach only
// processes of the same sandbox.
// clang-format off
constexpr Known kAllowed[] = {
    {"read", 0, 63}, {"write", 1, 64}, {"open", 2, kNone}, {"close", 3, 57}, {"stat", 4, kNone},
    {"fstat", 5, 80}, {"lstat", 6, kNone}, {"poll", 7, kNone}, {"lseek", 8, 62}, {"mmap", 9, 222},
    {"mprotect", 10, 226}, {"munmap", 11, 215}, {"brk", 12, 214}, {"rt_sigaction", 13, 134},
    {"rt_sigprocmask", 14, 135}, {"rt_sigreturn", 15, 139}, {"pread64", 17, 67},
    {"pwrite64", 18, 68}, {"readv", 19, 65}, {"writev", 20, 66}, {"access", 21, kNone},
    {"pipe", 22, kNone}, {"select", 23, kNone}, {"sched_yield", 24, 124}, {"mremap", 25, 216},
    {"msync", 26, 227}, {"mincore", 27, 232}, {"madvise", 28, 233}, {"shmget", 29, 194},
    {"shmat", 30, 196}, {"shmctl", 31, 195}, {"dup", 32, 23}, {"dup2", 33, kNone},
    {"pause", 34, kNone}, {"nanosleep", 35, 101}, {"getitimer", 36, 102}, {"alarm", 37, kNone},
    {"setitimer", 38, 103}, {"getpid", 39, 172}, {"sendfile", 40, 71}, {"connect", 42, 203},
    {"accept", 43, 202}, {"sendto", 44, 206}, {"recvfrom", 45, 207}, {"sendmsg", 46, 211},
    {"recvmsg", 47, 212}, {"shutdown", 48, 210}, {"bind", 49, 200}, {"listen", 50, 201},
    {"getsockname", 51, 204}, {"getpeername", 52, 205}, {"setsockopt", 54, 208},
    {"getsockopt", 55, 209}, {"fork", 57, kNone}, {"vfork", 58, kNone}, {"execve", 59, 221},
    {"exit", 60, 93}, {"wait4", 61, 260}, {"kill", 62, 129}, {"uname", 63, 160},
    {"semget", 64, 190}, {"semop", 65, 193}, {"semctl", 66, 191}, {"shmdt", 67, 197},
    {"msgget", 68, 186}, {"msgsnd", 69, 189}, {"msgrcv", 70, 188}, {"msgctl", 71, 187},
    {"fcntl", 72, 25}, {"flock", 73, 32}, {"fsync", 74, 82}, {"fdatasync", 75, 83},
    {"truncate", 76, 45}, {"ftruncate", 77, 46}, {"getdents", 78, kNone}, {"getcwd", 79, 17},
    {"chdir", 80, 49}, {"fchdir", 81, 50}, {"rename", 82, kNone}, {"mkdir", 83, kNone},
    {"rmdir", 84, kNone}, {"creat", 85, kNone}, {"link", 86, kNone}, {"unlink", 87, kNone},
    {"symlink", 88, kNone}, {"readlink", 89, kNone}, {"chmod", 90, kNone}, {"fchmod", 91, 52},
    {"chown", 92, kNone}, {"fchown", 93, 55}, {"lchown", 94, kNone}, {"umask", 95, 166},
    {"gettimeofday", 96, 169}, {"getrlimit", 97, 163}, {"getrusage", 98, 165}, {"sysinfo", 99, 179},
    {"times", 100, 153}, {"ptrace", 101, 117}, {"getuid", 102, 174}, {"getgid", 104, 176},
    {"setuid", 105, 146}, {"setgid", 106, 144}, {"geteuid", 107, 175}, {"getegid", 108, 177},
    {"setpgid", 109, 154}, {"getppid", 110, 173}, {"getpgrp", 111, kNone}, {"setsid", 112, 157},
    {"setreuid", 113, 145}, {"setregid", 114, 143}, {"getgroups", 115, 158},
    {"setgroups", 116, 159}, {"setresuid", 117, 147}, {"getresuid", 118, 148},
    {"setresgid", 119, 149}, {"getresgid", 120, 150}, {"getpgid", 121, 155}, {"setfsuid", 122, 151},
    {"setfsgid", 123, 152}, {"getsid", 124, 156}, {"capget", 125, 90}, {"capset", 126, 91},
    {"rt_sigpending", 127, 136}, {"rt_sigtimedwait", 128, 137}, {"rt_sigqueueinfo", 129, 138},
    {"rt_sigsuspend", 130, 133}, {"sigaltstack", 131, 132}, {"utime", 132, kNone},
    {"statfs", 137, 43}, {"fstatfs", 138, 44}, {"getpriority", 140, 141}, {"setpriority", 141, 140},
    {"sched_setparam", 142, 118}, {"sched_getparam", 143, 121}, {"sched_setscheduler", 144, 119},
    {"sched_getscheduler", 145, 120}, {"sched_get_priority_max", 146, 125},
    {"sched_get_priority_min", 147, 126}, {"sched_rr_get_interval", 148, 127}, {"mlock", 149, 228},
    {"munlock", 150, 229}, {"mlockall", 151, 230}, {"munlockall", 152, 231},
    {"setrlimit", 160, 164}, {"sync", 162, 81}, {"gettid", 186, 178}, {"readahead", 187, 213},
    {"setxattr", 188, 5}, {"lsetxattr", 189, 6}, {"fsetxattr", 190, 7}, {"getxattr", 191, 8},
    {"lgetxattr", 192, 9}, {"fgetxattr", 193, 10}, {"listxattr", 194, 11}, {"llistxattr", 195, 12},
    {"flistxattr", 196, 13}, {"removexattr", 197, 14}, {"lremovexattr", 198, 15},
    {"fremovexattr", 199, 16}, {"tkill", 200, 130}, {"time", 201, kNone}, {"futex", 202, 98},
    {"sched_setaffinity", 203, 122}, {"sched_getaffinity", 204, 123},
    {"epoll_create", 213, kNone}, {"getdents64", 217, 61}, {"set_tid_address", 218, 96},
    {"restart_syscall", 219, 128}, {"semtimedop", 220, 192}, {"fadvise64", 221, 223},
    {"timer_create", 222, 107}, {"timer_settime", 223, 110}, {"timer_gettime", 224, 108},
    {"timer_getoverrun", 225, 109}, {"timer_delete", 226, 111}, {"clock_gettime", 228, 113},
    {"clock_getres", 229, 114}, {"clock_nanosleep", 230, 115}, {"exit_group", 231, 94},
    {"epoll_wait", 232, kNone}, {"epoll_ctl", 233, 21}, {"tgkill", 234, 131},
    {"utimes", 235, kNone}, {"mq_open", 240, 180}, {"mq_unlink", 241, 181},
    {"mq_timedsend", 242, 182}, {"mq_timedreceive", 243, 183}, {"mq_notify", 244, 184},
    {"mq_getsetattr", 245, 185}, {"waitid", 247, 95}, {"ioprio_set", 251, 30},
    {"ioprio_get", 252, 31}, {"inotify_init", 253, kNone}, {"inotify_add_watch", 254, 27},
    {"inotify_rm_watch", 255, 28}, {"openat", 257, 56}, {"mkdirat", 258, 34}, {"fchownat", 260, 54},
    {"futimesat", 261, kNone}, {"newfstatat", 262, 79}, {"unlinkat", 263, 35},
    {"renameat", 264, 38}, {"linkat", 265, 37}, {"symlinkat", 266, 36}, {"readlinkat", 267, 78},
    {"fchmodat", 268, 53}, {"faccessat", 269, 48}, {"pselect6", 270, 72}, {"ppoll", 271, 73},
    {"set_robust_list", 273, 99}, {"get_robust_list", 274, 100}, {"splice", 275, 76},
    {"tee", 276, 77}, {"sync_file_range", 277, 84}, {"utimensat", 280, 88},
    {"epoll_pwait", 281, 22}, {"signalfd", 282, kNone}, {"timerfd_create", 283, 85},
    {"eventfd", 284, kNone}, {"fallocate", 285, 47}, {"timerfd_settime", 286, 86},
    {"timerfd_gettime", 287, 87}, {"accept4", 288, 242}, {"signalfd4", 289, 74},
    {"eventfd2", 290, 19}, {"epoll_create1", 291, 20}, {"dup3", 292, 24}, {"pipe2", 293, 59},
    {"inotify_init1", 294, 26}, {"preadv", 295, 69}, {"pwritev", 296, 70},
    {"rt_tgsigqueueinfo", 297, 240}, {"recvmmsg", 299, 243}, {"prlimit64", 302, 261},
    {"syncfs", 306, 267}, {"sendmmsg", 307, 269}, {"getcpu", 309, 168},
    {"process_vm_readv", 310, 270}, {"process_vm_writev", 311, 271}, {"sched_setattr", 314, 274},
    {"sched_getattr", 315, 275}, {"renameat2", 316, 276}, {"seccomp", 317, 277},
    {"getrandom", 318, 278}, {"memfd_create", 319, 279}, {"execveat", 322, 281},
    {"membarrier", 324, 283}, {"mlock2", 325, 284}, {"copy_file_range", 326, 285},
    {"preadv2", 327, 286}, {"pwritev2", 328, 287}, {"pkey_mprotect", 329, 288},
    {"pkey_alloc", 330, 289}, {"pkey_free", 331, 290}, {"statx", 332, 291},
    {"rseq", 334, 293}, {"pidfd_send_signal", 424, 424},
    {"pidfd_open", 434, 434}, {"close_range", 436, 436}, {"openat2", 437, 437},
    {"faccessat2", 439, 439}, {"epoll_pwait2", 441, 441}, {"landlock_create_ruleset", 444, 444},
    {"landlock_add_rule", 445, 445}, {"landlock_restrict_self", 446, 446},
    {"futex_waitv", 449, 449}, {"cachestat", 451, 451}, {"fchmodat2", 452, 452},
    {"futex_wake", 454, 454}, {"futex_wait", 455, 455}, {"futex_requeue", 456, 456},
    {"mseal", 462, 462}, {"setxattrat", 463, 463}, {"getxattrat", 464, 464},
    {"listxattrat", 465, 465}, {"removexattrat", 466, 466},
};
// clang-format on

// What the zygote and pid 1 need to make a sandbox. Every gate takes these away from the workload.
constexpr Known kSetUp[] = {
    {"clone3", 435, 435},        {"clone", 56, 220},         {"mount", 165, 40},
    {"umount2", 166, 39},        {"pivot_root", 155, 41},    {"chroot", 161, 51},
    {"unshare", 272, 97},        {"setns", 308, 268},        {"sethostname", 170, 161},
    {"setdomainname", 171, 162}, {"fsopen", 430, 430},       {"fsconfig", 431, 431},
    {"fsmount", 432, 432},       {"fspick", 433, 433},       {"move_mount", 429, 429},
    {"open_tree", 428, 428},     {"mount_setattr", 442, 442}};

// Dangerous, the host's, or both: EPERM.
constexpr Known kRefused[] = {
    {"syslog", 103, 116, "the kernel log is the host's"},
    {"uselib", 134, kNone, "obsolete"},
    {"ustat", 136, kNone, "obsolete"},
    {"sysfs", 139, kNone, "obsolete"},
    {"vhangup", 153, 58, "hangs up a terminal for all who share it"},
    {"modify_ldt", 154, kNone, "segments: rarely used, often broken in the kernel"},
    {"_sysctl", 156, kNone, "obsolete"},
    {"adjtimex", 159, 171, "one clock for all sandboxes"},
    {"acct", 163, 89, "process accounting is the host's"},
    {"settimeofday", 164, 170, "one clock for all sandboxes"},
    {"swapon", 167, 224, "swap is the host's"},
    {"swapoff", 168, 225, "swap is the host's"},
    {"reboot", 169, 142, "in a pid namespace it ends pid 1"},
    {"iopl", 172, kNone, "hardware ports"},
    {"ioperm", 173, kNone, "hardware ports"},
    {"create_module", 174, kNone, "kernel code"},
    {"init_module", 175, 105, "kernel code"},
    {"delete_module", 176, 106, "kernel code"},
    {"quotactl", 179, 60, "disk quotas are the host's"},
    {"nfsservctl", 180, 42, "obsolete"},
    {"lookup_dcookie", 212, 18, "host paths by number"},
    {"clock_settime", 227, 112, "one clock for all sandboxes"},
    {"mbind", 237, 235, "placement of memory is the host's"},
    {"set_mempolicy", 238, 237, "placement of memory is the host's"},
    {"get_mempolicy", 239, 236, "libnuma takes EPERM for a machine without NUMA"},
    {"kexec_load", 246, 104, "kernel code"},
    {"add_key", 248, 217, "keyrings are shared per host uid, not per namespace"},
    {"request_key", 249, 218, "keyrings; starts a helper of the host"},
    {"keyctl", 250, 219, "keyrings are shared per host uid, not per namespace"},
    {"migrate_pages", 256, 238, "placement of memory is the host's"},
    {"vmsplice", 278, 75, "user pages in pipes: half of the page-cache write bugs"},
    {"move_pages", 279, 239, "placement of memory is the host's"},
    {"perf_event_open", 298, 241, "side channels and a large attack surface"},
    {"fanotify_init", 300, 262, "watches whole file systems"},
    {"fanotify_mark", 301, 263, "watches whole file systems"},
    {"name_to_handle_at", 303, 264, "half of opening files past the mount view"},
    {"open_by_handle_at", 304, 265, "opens files past the mount view"},
    {"clock_adjtime", 305, 266, "one clock for all sandboxes"},
    {"kcmp", 312, 272, "compares kernel pointers"},
    {"finit_module", 313, 273, "kernel code"},
    {"kexec_file_load", 320, 294, "kernel code"},
    {"bpf", 321, 280, "kernel code"},
    {"userfaultfd", 323, 282, "holds the kernel still in the middle of a copy: widens races"},
    {"pidfd_getfd", 438, 438, "takes descriptors out of other processes"},
    {"process_madvise", 440, 440, "changes other processes' memory; allocators do without"},
    {"quotactl_fd", 443, 443, "disk quotas are the host's"},
    {"memfd_secret", 447, 447, "memory that cannot be reclaimed or looked at"},
    {"set_mempolicy_home_node", 450, 450, "placement of memory is the host's"},
};

// Answered as a kernel without the call would: ENOSYS makes callers fall back, EPERM makes them
// fail.
constexpr Known kAbsent[] = {
    {"io_setup", 206, 0,
     "one pot of requests for the whole machine, which one sandbox could empty"},
    {"io_destroy", 207, 1, "of no use without io_setup"},
    {"io_getevents", 208, 4, "of no use without io_setup"},
    {"io_submit", 209, 2, "of no use without io_setup"},
    {"io_cancel", 210, 3, "of no use without io_setup"},
    {"io_pgetevents", 333, 292, "of no use without io_setup"},
    {"get_kernel_syms", 177, kNone, "never implemented"},
    {"query_module", 178, kNone, "never implemented"},
    {"getpmsg", 181, kNone, "never implemented"},
    {"putpmsg", 182, kNone, "never implemented"},
    {"afs_syscall", 183, kNone, "never implemented"},
    {"tuxcall", 184, kNone, "never implemented"},
    {"security", 185, kNone, "never implemented"},
    {"set_thread_area", 205, kNone, "32-bit only"},
    {"get_thread_area", 211, kNone, "32-bit only"},
    {"epoll_ctl_old", 214, kNone, "never implemented"},
    {"epoll_wait_old", 215, kNone, "never implemented"},
    {"remap_file_pages", 216, 234, "deprecated; mmap does it"},
    {"vserver", 236, kNone, "never implemented"},
    {"uretprobe", 335, kNone, "for the kernel's own trampolines, which need no permission"},
    {"uprobe", 336, kNone, "for the kernel's own trampolines, which need no permission"},
    {"io_uring_setup", 425, 425, "opens and connects past seccomp"},
    {"io_uring_enter", 426, 426, "opens and connects past seccomp"},
    {"io_uring_register", 427, 427, "opens and connects past seccomp"},
    {"process_mrelease", 448, 448, "for out-of-memory daemons"},
    {"map_shadow_stack", 453, 453, "shadow stacks cannot be enabled: arch_prctl says no"},
    {"statmount", 457, 457, "mounts by number; callers fall back to mountinfo"},
    {"listmount", 458, 458, "mounts by number; callers fall back to mountinfo"},
    {"lsm_get_self_attr", 459, 459, "new, and nobody needs it yet"},
    {"lsm_set_self_attr", 460, 460, "new, and nobody needs it yet"},
    {"lsm_list_modules", 461, 461, "new, and nobody needs it yet"},
    {"open_tree_attr", 467, 467, "new; open_tree and mount_setattr do it"},
    {"file_getattr", 468, 468, "new; the ioctl does it"},
    {"file_setattr", 469, 469, "new; the ioctl does it"},
    {"listns", 470, 470, "namespaces by number"},
};

// Constants by value: headers older than the kernel lack some of them.
constexpr std::uint64_t kUnix = 1, kInet = 2, kInet6 = 10, kNetlink = 16;  // AF_*
constexpr std::uint64_t kStream = 1, kDatagram = 2, kRaw = 3, kSeqPacket = 5,
                        kPacket = 10;  // SOCK_*
constexpr std::uint64_t kSocketType =
    0xf;  // The rest of the argument is SOCK_CLOEXEC and the like.
constexpr std::uint64_t kIcmp = 1, kTcp = 6, kUdp = 17, kIcmp6 = 58;  // IPPROTO_*
constexpr std::uint64_t kNetlinkRoute = 0;
constexpr std::uint64_t kNewNs = 0x0002'0000, kNewUser = 0x1000'0000, kNewPid = 0x2000'0000,
                        kNewNet = 0x4000'0000;  // CLONE_*
// CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}, and NEWTIME, which clone() takes for a part of a
// signal.
constexpr std::uint64_t kNamespaces = 0x7e00'0000 | kNewNs | 0x80;

std::vector<Clause> socket_clauses() {
  return {
      {{{0, kIntArgument, {kUnix}}, {1, kSocketType, {kStream, kDatagram, kSeqPacket}}}, kAllow},
      // Listed protocols only: SCTP, DCCP, L2TP, SMC and MPTCP are all reachable through AF_INET.
      {{{0, kIntArgument, {kInet, kInet6}},
        {1, kSocketType, {kStream, kDatagram}},
        {2, kIntArgument, {0, kTcp, kUdp, kIcmp, kIcmp6}}},
       kAllow},
      // getifaddrs() uses it, with either type.
      {{{0, kIntArgument, {kNetlink}},
        {1, kSocketType, {kRaw, kDatagram}},
        {2, kIntArgument, {kNetlinkRoute}}},
       kAllow},
      {{{0, kIntArgument, {kUnix, kInet, kInet6}}, {1, kSocketType, {kRaw, kPacket}}},
       refuse(EPERM)},
      {{{0, kIntArgument, {kUnix, kInet, kInet6, kNetlink}}}, refuse(EPROTONOSUPPORT)},
  };
}

// Regular files, FIFOs, sockets; the kernel looks at the low 16 bits of the mode only.
std::vector<Clause> mknod_clauses(unsigned mode) {
  return {{{{mode, 0170000, {0, 0100000, 0010000, 0140000}}}, kAllow}};
}

// The calls whose arguments decide, but for their numbers.
struct ArgumentRule {
  Known call;
  std::vector<Clause> clauses;
  Verdict otherwise;
};

std::vector<ArgumentRule> gate_argument_rules() {
  constexpr Verdict no = refuse(EPERM);
  return {
      {{"ioctl", 16, 29,
        "TIOCSTI TIOCLINUX TIOCCONS TIOCSETD: typing into, or taking over, a terminal"},
       {{{{1, kIntArgument, {0x5412, 0x541c, 0x541d, 0x5423}}}, no}},
       kAllow},
      {{"socket", 41, 198, "no vsock, no crypto, no raw packets, no odd protocols"},
       socket_clauses(),
       refuse(EAFNOSUPPORT)},
      {{"socketpair", 53, 199, "as socket"}, socket_clauses(), refuse(EAFNOSUPPORT)},
      {{"mknod", 133, kNone, "no devices"}, mknod_clauses(1), no},
      {{"mknodat", 259, 33, "no devices"}, mknod_clauses(2), no},
      {{"personality", 135, 92, "Linux, Linux32, UNAME26 and asking; never READ_IMPLIES_EXEC"},
       {{{{0, kIntArgument, {0, 0x8, 0x2'0000, 0x2'0008, 0xffff'ffff}}}, kAllow}},
       no},
      {{"prctl", 157, 167, "PR_SET_MM forges what /proc says of a process"},
       {{{{0, kIntArgument, {35}}}, no}},
       kAllow},
  };
}

// The others get what a kernel without them says; glibc asks for shadow stacks at each start.
ArgumentRule arch_prctl_rule() {
  return {{"arch_prctl", 158, kNone, "ARCH_SET_GS ARCH_SET_FS ARCH_GET_FS ARCH_GET_GS"},
          {{{{0, kIntArgument, {0x1001, 0x1002, 0x1003, 0x1004}}}, kAllow}},
          refuse(EINVAL)};
}

void add(SyscallRules& out, const Known& call, std::vector<Clause> clauses, Verdict otherwise) {
  int number = call.on(out.machine);
  if (number == kNone) return;
  out.rules.push_back({.name = call.name,
                       .number = static_cast<std::uint32_t>(number),
                       .clauses = std::move(clauses),
                       .otherwise = otherwise,
                       .why = call.why});
}

void add(SyscallRules& out, ArgumentRule rule) {
  add(out, rule.call, std::move(rule.clauses), rule.otherwise);
}

void add_all(SyscallRules& out, std::span<const Known> calls, Verdict verdict) {
  for (const Known& call : calls) add(out, call, {}, verdict);
}

void sort_by_number(SyscallRules& out) {
  std::sort(out.rules.begin(), out.rules.end(),
            [](const SyscallRule& a, const SyscallRule& b) { return a.number < b.number; });
}

bool holds(const ArgCheck& check, const SyscallArgs& args) {
  std::uint64_t value = args[check.arg] & check.mask;
  return std::find(check.any_of.begin(), check.any_of.end(), value) != check.any_of.end();
}

}  // namespace

SyscallRules fence_rules(Machine machine) {
  SyscallRules out{.machine = machine, .rules = {}, .unlisted = refuse(ENOSYS)};
  add_all(out, kAllowed, kAllow);
  add_all(out, kSetUp, kAllow);
  add_all(out, kRefused, kAllow);
  add_all(out, kAbsent, refuse(ENOSYS));
  for (const ArgumentRule& rule : gate_argument_rules()) add(out, rule.call, {}, kAllow);
  add(out, arch_prctl_rule());
  sort_by_number(out);
  return out;
}

SyscallRules gate_rules(SyscallTier tier, std::uint64_t secret, Machine machine) {
  SyscallRules out{.machine = machine, .rules = {}, .unlisted = kAllow};
  bool browser = tier == SyscallTier::browser;
  std::uint64_t forbidden = browser ? kNamespaces & ~(kNewUser | kNewPid | kNewNet) : kNamespaces;
  for (const Known& call : kSetUp) {
    if (call.name == "clone3")  // Its flags lie in memory, out of a filter's sight.
      add(out, call, {}, refuse(ENOSYS));
    else if (call.name == "clone")
      add(out, call, {{{{0, forbidden, {0}}}, kAllow}}, refuse(EPERM));
    else if (call.name == "setns")
      add(out, call, {{{{5, kLongArgument, {secret}}}, kAllow}}, refuse(EPERM));
    else if (call.name == "unshare" && browser)
      add(out, call, {{{{0, kIntArgument, {kNewUser}}}, kAllow}}, refuse(EPERM));
    else if (call.name == "chroot" && browser)
      continue;
    else
      add(out, call, {}, refuse(EPERM));
  }
  add_all(out, kRefused, refuse(EPERM));
  for (ArgumentRule& rule : gate_argument_rules()) add(out, std::move(rule));
  sort_by_number(out);
  return out;
}

Verdict judge(const SyscallRules& rules, std::uint32_t number, const SyscallArgs& args) {
  if (number == kSkippedCall) return kAllow;
  if (rules.machine == Machine::x86_64 && number >= kX32Bit) return kKill;
  const SyscallRule* rule = find(rules, number);
  if (rule == nullptr) return rules.unlisted;
  for (const Clause& clause : rule->clauses)
    if (std::all_of(clause.when.begin(), clause.when.end(),
                    [&](const ArgCheck& check) { return holds(check, args); }))
      return clause.then;
  return rule->otherwise;
}

const SyscallRule* find(const SyscallRules& rules, std::string_view name) noexcept {
  for (const SyscallRule& rule : rules.rules)
    if (rule.name == name) return &rule;
  return nullptr;
}

const SyscallRule* find(const SyscallRules& rules, std::uint32_t number) noexcept {
  auto rule = std::lower_bound(
      rules.rules.begin(), rules.rules.end(), number,
      [](const SyscallRule& candidate, std::uint32_t wanted) { return candidate.number < wanted; });
  return rule == rules.rules.end() || rule->number != number ? nullptr : &*rule;
}

}  // namespace asr
