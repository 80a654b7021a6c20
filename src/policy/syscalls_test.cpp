#include "policy/syscalls.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace asr {
namespace {

constexpr std::uint64_t kSecret = 0x0123'4567'89ab'cdef;
constexpr Machine kMachines[] = {Machine::x86_64, Machine::aarch64};
constexpr std::string_view kSetUpCalls[] = {
    "clone",      "clone3",    "mount",         "umount2",       "pivot_root", "chroot",
    "unshare",    "setns",     "sethostname",   "fsopen",        "fsconfig",   "fsmount",
    "move_mount", "open_tree", "setdomainname", "mount_setattr", "fspick"};

std::vector<SyscallRules> all_rules(Machine machine) {
  return {fence_rules(machine), gate_rules(SyscallTier::strict, kSecret, machine),
          gate_rules(SyscallTier::browser, kSecret, machine)};
}

// What the workload of a tier gets: the stricter answer, the gate's where both refuse.
Verdict workload(SyscallTier tier, std::string_view name, const SyscallArgs& args = {}) {
  static const SyscallRules fence = fence_rules();
  const SyscallRules gate = gate_rules(tier, kSecret);
  const SyscallRule* rule = find(fence, name);
  if (rule == nullptr) throw std::logic_error("no rule for " + std::string(name));
  Verdict above = judge(gate, rule->number, args);
  return above == kAllow ? judge(fence, rule->number, args) : above;
}
Verdict strict(std::string_view name, const SyscallArgs& args = {}) {
  return workload(SyscallTier::strict, name, args);
}
Verdict browser(std::string_view name, const SyscallArgs& args = {}) {
  return workload(SyscallTier::browser, name, args);
}

TEST(SyscallRules, AreSortedAndUnique) {
  for (Machine machine : kMachines)
    for (const SyscallRules& rules : all_rules(machine)) {
      std::set<std::string_view> names;
      for (std::size_t i = 0; i < rules.rules.size(); ++i) {
        EXPECT_TRUE(names.insert(rules.rules[i].name).second) << rules.rules[i].name;
        if (i > 0) {
          EXPECT_LT(rules.rules[i - 1].number, rules.rules[i].number) << rules.rules[i].name;
        }
      }
    }
}

// A number that nobody thought about must not hide in the default.
TEST(SyscallRules, DecideEveryNumberUpToTheLastKnown) {
  const SyscallRules fence = fence_rules(Machine::x86_64);
  std::set<std::uint32_t> decided;
  for (const SyscallRule& rule : fence.rules) decided.insert(rule.number);
  std::set<std::uint32_t> expected;
  for (std::uint32_t n = 0; n <= 336; ++n) expected.insert(n);
  for (std::uint32_t n = 424; n <= 470; ++n) expected.insert(n);
  EXPECT_EQ(decided, expected);
  EXPECT_EQ(judge(fence, 337, {}), refuse(ENOSYS));
  EXPECT_EQ(judge(fence, 471, {}), refuse(ENOSYS));
  EXPECT_EQ(judge(fence, 100'000, {}), refuse(ENOSYS));
}

TEST(SyscallRules, GiveAReasonForEachRefusal) {
  const std::set<std::string_view> of_the_set_up(std::begin(kSetUpCalls), std::end(kSetUpCalls));
  for (Machine machine : kMachines)
    for (const SyscallRules& rules : all_rules(machine))
      for (const SyscallRule& rule : rules.rules)
        if ((rule.otherwise != kAllow || !rule.clauses.empty()) &&
            !of_the_set_up.contains(rule.name)) {
          EXPECT_FALSE(rule.why.empty()) << rule.name;
        }
}

// An error of the fence hides that the gate refuses, too, and so that it was refused at all.
TEST(SyscallRules, FenceRefusesOnlyWhatAnotherKernelMightLack) {
  for (Machine machine : kMachines) {
    const SyscallRules fence = fence_rules(machine);
    for (const SyscallRule& rule : fence.rules) {
      if (rule.name == "arch_prctl") continue;
      EXPECT_TRUE(rule.clauses.empty()) << rule.name;
      EXPECT_TRUE(rule.otherwise == kAllow || rule.otherwise == refuse(ENOSYS)) << rule.name;
    }
    for (SyscallTier tier : {SyscallTier::strict, SyscallTier::browser}) {
      const SyscallRules gate = gate_rules(tier, kSecret, machine);
      for (const SyscallRule& rule : gate.rules) {
        ASSERT_NE(find(fence, rule.name), nullptr) << rule.name;
        EXPECT_EQ(find(fence, rule.name)->otherwise, kAllow) << rule.name;
      }
    }
  }
}

TEST(SyscallRules, AreFoundByNameAndByNumber) {
  for (Machine machine : kMachines) {
    const SyscallRules fence = fence_rules(machine);
    for (const SyscallRule& rule : fence.rules) {
      EXPECT_EQ(find(fence, rule.number), &rule);
      EXPECT_EQ(find(fence, rule.name), &rule);
    }
    EXPECT_EQ(find(fence, 600), nullptr);
    EXPECT_EQ(find(fence, "no_such_call"), nullptr);
  }
}

TEST(SyscallRules, NewNumbersAreTheSameOnAllMachines) {
  const SyscallRules here = fence_rules(Machine::x86_64), there = fence_rules(Machine::aarch64);
  for (const SyscallRule& rule : there.rules)
    if (rule.number >= 424) {
      const SyscallRule* twin = find(here, rule.name);
      ASSERT_NE(twin, nullptr) << rule.name;
      EXPECT_EQ(twin->number, rule.number) << rule.name;
    }
}

TEST(SyscallRules, StayBelowThreeHundredNamesInTierStrict) {
  const SyscallRules fence = fence_rules(Machine::x86_64);
  const SyscallRules gate = gate_rules(SyscallTier::strict, kSecret, Machine::x86_64);
  int allowed = 0;
  for (const SyscallRule& rule : fence.rules) {
    bool in_fence = rule.otherwise == kAllow || !rule.clauses.empty();
    const SyscallRule* above = find(gate, rule.name);
    bool in_gate = above == nullptr || (!above->clauses.empty() && rule.name != "setns");
    if (in_fence && in_gate) ++allowed;
  }
  EXPECT_EQ(allowed, 285);
}

TEST(SyscallRules, KillForeignAbisAndLetTracersSkip) {
  for (const SyscallRules& rules : all_rules(Machine::x86_64)) {
    EXPECT_EQ(judge(rules, kX32Bit, {}), kKill);
    EXPECT_EQ(judge(rules, kX32Bit | 1, {}), kKill);
    EXPECT_EQ(judge(rules, 0xffff'fffe, {}), kKill);
    EXPECT_EQ(judge(rules, kSkippedCall, {}), kAllow);
  }
}

TEST(SyscallRules, RefuseWhatMustNeverBeReached) {
  for (std::string_view name : {"bpf",
                                "perf_event_open",
                                "userfaultfd",
                                "keyctl",
                                "add_key",
                                "request_key",
                                "kexec_load",
                                "kexec_file_load",
                                "init_module",
                                "finit_module",
                                "delete_module",
                                "swapon",
                                "swapoff",
                                "reboot",
                                "syslog",
                                "acct",
                                "quotactl",
                                "quotactl_fd",
                                "open_by_handle_at",
                                "name_to_handle_at",
                                "clock_settime",
                                "settimeofday",
                                "adjtimex",
                                "clock_adjtime",
                                "mbind",
                                "move_pages",
                                "migrate_pages",
                                "set_mempolicy",
                                "lookup_dcookie",
                                "memfd_secret",
                                "vmsplice",
                                "fanotify_init",
                                "fanotify_mark",
                                "mount",
                                "umount2",
                                "pivot_root",
                                "fsopen",
                                "fsconfig",
                                "fsmount",
                                "fspick",
                                "open_tree",
                                "move_mount",
                                "mount_setattr",
                                "sethostname",
                                "setdomainname",
                                "setns",
                                "pidfd_getfd",
                                "kcmp"}) {
    EXPECT_EQ(strict(name), refuse(EPERM)) << name;
    EXPECT_EQ(browser(name), refuse(EPERM)) << name;
  }
  for (std::string_view name : {"io_uring_setup", "io_uring_enter", "io_uring_register", "clone3",
                                "statmount", "listmount", "open_tree_attr"}) {
    EXPECT_EQ(strict(name), refuse(ENOSYS)) << name;
    EXPECT_EQ(browser(name), refuse(ENOSYS)) << name;
  }
}

TEST(SyscallRules, LetTheSetUpDoItsWork) {
  const SyscallRules fence = fence_rules();
  std::vector<std::string_view> names(std::begin(kSetUpCalls), std::end(kSetUpCalls));
  for (std::string_view name :
       {"landlock_create_ruleset", "landlock_restrict_self", "seccomp", "capset", "setresuid",
        "setgroups", "prctl", "openat2", "pidfd_open", "close_range", "prlimit64"})
    names.push_back(name);
  for (std::string_view name : names)
    EXPECT_EQ(judge(fence, find(fence, name)->number, {0, ~0ull, ~0ull}), kAllow) << name;
}

TEST(SyscallRules, SocketsAreUnixAndInternetOnly) {
  constexpr std::uint64_t kCloexec = 02000000;
  for (std::string_view name : {"socket", "socketpair"}) {
    EXPECT_EQ(strict(name, {1, 1 | kCloexec, 0}), kAllow);
    EXPECT_EQ(strict(name, {1, 5, 0}), kAllow);
    EXPECT_EQ(strict(name, {2, 1 | kCloexec, 6}), kAllow);
    EXPECT_EQ(strict(name, {10, 2, 17}), kAllow);
    EXPECT_EQ(strict(name, {16, 3 | kCloexec, 0}), kAllow);     // netlink route
    EXPECT_EQ(strict(name, {0xdead'0000'0002, 1, 0}), kAllow);  // the kernel reads an int

    EXPECT_EQ(strict(name, {2, 3, 1}), refuse(EPERM));  // raw ICMP
    EXPECT_EQ(strict(name, {10, 3 | kCloexec, 58}), refuse(EPERM));
    EXPECT_EQ(strict(name, {2, 10, 0}), refuse(EPERM));  // SOCK_PACKET
    EXPECT_EQ(strict(name, {1, 3, 0}), refuse(EPERM));
    EXPECT_EQ(strict(name, {2, 1, 262}), refuse(EPROTONOSUPPORT));  // MPTCP
    EXPECT_EQ(strict(name, {2, 1, 0x1'0000'0106}), refuse(EPROTONOSUPPORT));
    EXPECT_EQ(strict(name, {2, 1, 132}), refuse(EPROTONOSUPPORT));  // SCTP
    EXPECT_EQ(strict(name, {2, 2, 115}), refuse(EPROTONOSUPPORT));  // L2TP
    EXPECT_EQ(strict(name, {2, 1, 256}), refuse(EPROTONOSUPPORT));  // SMC
    EXPECT_EQ(strict(name, {2, 6, 33}), refuse(EPROTONOSUPPORT));   // DCCP
    for (std::uint64_t protocol : {1, 2, 4, 6, 9, 12, 15, 16, 20})
      EXPECT_EQ(strict(name, {16, 3, protocol}), refuse(EPROTONOSUPPORT)) << protocol;
    for (std::uint64_t family = 0; family < 60; ++family)
      if (family != 1 && family != 2 && family != 10 && family != 16) {
        EXPECT_EQ(strict(name, {family, 1, 0}), refuse(EAFNOSUPPORT)) << family;
        EXPECT_EQ(strict(name, {family | 1ull << 32, 3, 0}), refuse(EAFNOSUPPORT)) << family;
      }
  }
}

TEST(SyscallRules, TerminalsCannotBeTypedInto) {
  for (std::uint64_t request : {0x5412, 0x541c, 0x541d, 0x5423}) {
    EXPECT_EQ(strict("ioctl", {0, request}), refuse(EPERM));
    EXPECT_EQ(strict("ioctl", {0, request | 1ull << 32}), refuse(EPERM));
    EXPECT_EQ(strict("ioctl", {0, request | 0xffff'ffffull << 32}), refuse(EPERM));
  }
  EXPECT_EQ(strict("ioctl", {0, 0x5401}), kAllow);  // TCGETS
  EXPECT_EQ(strict("ioctl", {0x5412, 0x5413}), kAllow);
}

TEST(SyscallRules, OnlyHarmlessPersonalities) {
  for (std::uint64_t value : {0x0ull, 0x8ull, 0x20000ull, 0x20008ull, 0xffff'ffffull, ~0ull})
    EXPECT_EQ(strict("personality", {value}), kAllow) << value;
  for (std::uint64_t value : {0x40000ull, 0x400000ull, 0x1'0040'0000ull, 0x1ull, 0xffff'fffeull})
    EXPECT_EQ(strict("personality", {value}), refuse(EPERM)) << value;
}

TEST(SyscallRules, NoDeviceNodes) {
  for (std::uint64_t kind : {0u, 0100000u, 0010000u, 0140000u}) {
    EXPECT_EQ(strict("mknodat", {0, 0, kind | 0644}), kAllow);
    EXPECT_EQ(strict("mknodat", {0, 0, kind | 07777 | 1ull << 40}), kAllow);
  }
  for (std::uint64_t kind : {0020000u, 0060000u, 0120000u, 0170000u}) {
    EXPECT_EQ(strict("mknodat", {0, 0, kind | 0644}), refuse(EPERM));
    EXPECT_EQ(strict("mknodat", {0, 0, kind | 1ull << 32}), refuse(EPERM));
  }
#ifdef __x86_64__
  EXPECT_EQ(strict("mknod", {0, 0020666}), refuse(EPERM));
  EXPECT_EQ(strict("mknod", {0, 0010666}), kAllow);
#endif
}

TEST(SyscallRules, ProcessControl) {
  EXPECT_EQ(strict("prctl", {35, 1}), refuse(EPERM));  // PR_SET_MM
  EXPECT_EQ(strict("prctl", {35 | 1ull << 32, 1}), refuse(EPERM));
  EXPECT_EQ(strict("prctl", {15}), kAllow);  // PR_SET_NAME
#ifdef __x86_64__
  for (std::uint64_t code = 0x1001; code <= 0x1004; ++code)
    EXPECT_EQ(strict("arch_prctl", {code}), kAllow);
  for (std::uint64_t code : {0x1000, 0x1005, 0x1012, 0x3001, 0x4001, 0x5001, 0x5005})
    EXPECT_EQ(strict("arch_prctl", {code}), refuse(EINVAL)) << code;
#endif
}

TEST(SyscallRules, NamespacesByTier) {
  constexpr std::uint64_t kThread = 0x3d0f00, kFork = 0x01200011, kVfork = 0x4111;
  for (std::uint64_t flags : {kThread, kFork, kVfork}) {
    EXPECT_EQ(strict("clone", {flags}), kAllow);
    EXPECT_EQ(browser("clone", {flags}), kAllow);
  }
  for (std::uint64_t bit : {0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x80}) {
    EXPECT_EQ(strict("clone", {kFork | bit}), refuse(EPERM)) << bit;
    EXPECT_EQ(browser("clone", {kFork | bit | 0x10000000}), refuse(EPERM)) << bit;
  }
  for (std::uint64_t bits : {0x10000000, 0x20000000, 0x40000000, 0x70000000}) {
    EXPECT_EQ(strict("clone", {kFork | bits}), refuse(EPERM)) << bits;
    EXPECT_EQ(browser("clone", {kFork | bits}), kAllow) << bits;
  }
  EXPECT_EQ(strict("unshare", {0x10000000}), refuse(EPERM));
  EXPECT_EQ(browser("unshare", {0x10000000}), kAllow);
  for (std::uint64_t flags : {0x0, 0x400, 0x20000, 0x40000000, 0x10020000, 0x50000000})
    EXPECT_EQ(browser("unshare", {flags}), refuse(EPERM)) << flags;
  EXPECT_EQ(strict("chroot"), refuse(EPERM));
  EXPECT_EQ(browser("chroot"), kAllow);
}

TEST(SyscallRules, OnlyTheSecretOpensSetns) {
  for (SyscallTier tier : {SyscallTier::strict, SyscallTier::browser}) {
    EXPECT_EQ(workload(tier, "setns", {3, 0, 0, 0, 0, kSecret}), kAllow);
    EXPECT_EQ(workload(tier, "setns", {3, 0, 0, 0, kSecret, 0}), refuse(EPERM));
    for (int bit = 0; bit < 64; ++bit)
      EXPECT_EQ(workload(tier, "setns", {3, 0, 0, 0, 0, kSecret ^ 1ull << bit}), refuse(EPERM));
  }
}

}  // namespace
}  // namespace asr
