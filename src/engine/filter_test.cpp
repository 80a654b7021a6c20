#include "engine/filter.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>

#include "engine/bpf_interpreter.hpp"

namespace asr {
namespace {

constexpr std::uint64_t kSecret = 0xfedc'ba98'7654'3210;

struct Case {
  std::string name;
  SyscallRules rules;
  Refusals refusals = Refusals::quiet;
  FilterProgram program = {};
};

std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (Machine machine : {Machine::x86_64, Machine::aarch64}) {
    const std::string suffix = machine == Machine::x86_64 ? " x86_64" : " aarch64";
    out.push_back({"fence" + suffix, fence_rules(machine)});
    for (Refusals refusals : {Refusals::quiet, Refusals::told}) {
      const std::string how = refusals == Refusals::told ? ", told" + suffix : suffix;
      for (SyscallTier tier : {SyscallTier::strict, SyscallTier::browser})
        out.push_back({(tier == SyscallTier::strict ? "strict" : "browser") + how,
                       gate_rules(tier, kSecret, machine), refusals});
    }
  }
  for (Case& one : out) {
    auto program = compile(one.rules, one.refusals);
    if (!program) throw std::logic_error(program.error().what);
    one.program = *std::move(program);
  }
  return out;
}

std::uint32_t arch_of(Machine machine) {
  return machine == Machine::x86_64 ? AUDIT_ARCH_X86_64 : AUDIT_ARCH_AARCH64;
}

std::uint32_t action_of(Verdict verdict, Refusals refusals) {
  switch (verdict.kind) {
    case Verdict::Kind::allow:
      return SECCOMP_RET_ALLOW;
    case Verdict::Kind::refuse:
      if (refusals == Refusals::told && verdict.err != ENOSYS) return SECCOMP_RET_USER_NOTIF;
      return SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(verdict.err);
    case Verdict::Kind::kill:
      break;
  }
  return SECCOMP_RET_KILL_PROCESS;
}

std::uint32_t expected(const Case& one, std::uint32_t number, const SyscallArgs& args) {
  return action_of(judge(one.rules, number, args), one.refusals);
}

std::uint32_t run(const Case& one, std::uint32_t number, const SyscallArgs& args) {
  seccomp_data data{};
  data.nr = static_cast<int>(number);
  data.arch = arch_of(one.rules.machine);
  std::copy(args.begin(), args.end(), data.args);
  return bpf::run(one.program, data);
}

std::set<std::uint64_t> mentioned_values(const SyscallRule& rule, unsigned arg) {
  std::set<std::uint64_t> out;
  for (const Clause& clause : rule.clauses)
    for (const ArgCheck& check : clause.when)
      if (check.arg == arg) out.insert(check.any_of.begin(), check.any_of.end());
  return out;
}

// All combinations of the values that a rule mentions, each with one argument perturbed:
// neighbours, every single bit turned (those outside the mask too), nothing, all ones.
void for_each_case(const SyscallRule& rule, const std::function<void(const SyscallArgs&)>& visit) {
  std::vector<SyscallArgs> corners{{}};
  for (unsigned arg = 0; arg < 6; ++arg) {
    const std::set<std::uint64_t> values = mentioned_values(rule, arg);
    std::vector<SyscallArgs> more;
    for (SyscallArgs corner : corners)
      for (std::uint64_t value : values) {
        corner[arg] = value;
        more.push_back(corner);
      }
    if (!more.empty()) corners = std::move(more);
  }
  for (const SyscallArgs& corner : corners) {
    visit(corner);
    for (unsigned arg = 0; arg < 6; ++arg) {
      SyscallArgs args = corner;
      for (std::uint64_t value :
           {corner[arg] + 1, corner[arg] - 1, std::uint64_t{0}, kLongArgument}) {
        args[arg] = value;
        visit(args);
      }
      for (int bit = 0; bit < 64; ++bit) {
        args[arg] = corner[arg] ^ 1ull << bit;
        visit(args);
      }
    }
  }
}

TEST(Filter, ProgramsAreValidAndShort) {
  for (const Case& one : all_cases()) {
    EXPECT_EQ(bpf::problem_of(one.program), "") << one.name;
    EXPECT_LT(one.program.size(), 300u) << one.name;
  }
}

TEST(Filter, EveryNumberGetsItsVerdict) {
  constexpr SyscallArgs kOnes{~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull};
  for (const Case& one : all_cases()) {
    std::vector<std::uint32_t> numbers{0x3fff'ffff, 0x4000'0000, 0x7fff'ffff,
                                       0x8000'0000, 0xffff'fffe, 0xffff'ffff};
    for (std::uint32_t n = 0; n <= 600; ++n) numbers.insert(numbers.end(), {n, n | kX32Bit});
    for (std::uint32_t n : numbers)
      for (const SyscallArgs& args : {SyscallArgs{}, kOnes})
        EXPECT_EQ(run(one, n, args), expected(one, n, args)) << one.name << " " << n;
  }
}

TEST(Filter, EveryArgumentRuleHoldsUnderPerturbation) {
  for (const Case& one : all_cases()) {
    for (const SyscallRule& rule : one.rules.rules) {
      if (rule.clauses.empty()) continue;
      std::set<std::uint32_t> answers;
      std::size_t wrong = 0;
      for_each_case(rule, [&](const SyscallArgs& args) {
        const std::uint32_t action = run(one, rule.number, args);
        answers.insert(action);
        if (action != expected(one, rule.number, args)) ++wrong;
      });
      EXPECT_EQ(wrong, 0u) << one.name << " " << rule.name;
      EXPECT_GE(answers.size(), 2u) << "the matrix reaches one answer only: " << rule.name;
      EXPECT_TRUE(answers.contains(SECCOMP_RET_ALLOW)) << rule.name;
    }
  }
}

TEST(Filter, ForeignArchitecturesAreKilled) {
  for (const Case& one : all_cases())
    for (std::uint32_t arch : std::initializer_list<std::uint32_t>{
             AUDIT_ARCH_I386, AUDIT_ARCH_ARM, AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64, 0}) {
      if (arch == arch_of(one.rules.machine)) continue;
      for (int n = 0; n <= 600; ++n) {
        seccomp_data data{};
        data.nr = n;
        data.arch = arch;
        EXPECT_EQ(bpf::run(one.program, data), SECCOMP_RET_KILL_PROCESS) << one.name << " " << n;
      }
    }
}

// The same calls are refused whether it is told or not.
TEST(Filter, WhatIsToldIsWhatIsRefused) {
  for (SyscallTier tier : {SyscallTier::strict, SyscallTier::browser}) {
    Case quiet{"quiet", gate_rules(tier, kSecret), Refusals::quiet};
    Case told{"told", quiet.rules, Refusals::told};
    for (Case* one : {&quiet, &told}) one->program = *compile(one->rules, one->refusals);
    int notified = 0;
    for (std::uint32_t n = 0; n <= 600; ++n) {
      const std::uint32_t before = run(quiet, n, {}), now = run(told, n, {});
      if (now == SECCOMP_RET_USER_NOTIF)
        ++notified;
      else
        EXPECT_EQ(now, before) << n;
      EXPECT_EQ(now == SECCOMP_RET_ALLOW, before == SECCOMP_RET_ALLOW) << n;
    }
    EXPECT_GT(notified, 50);
    EXPECT_EQ(run(told, SYS_clone3, {}), SECCOMP_RET_ERRNO | ENOSYS);
  }
}

// Otherwise each of these calls would run the programs again, every time.
TEST(Filter, UnconditionalCallsStayInTheKernelsCache) {
  for (const Case& one : all_cases())
    for (std::uint32_t n = 0; n <= 600; ++n) {
      bool conditional = false;
      for (const SyscallRule& rule : one.rules.rules)
        if (rule.number == n && !rule.clauses.empty()) conditional = true;
      bool expected = !conditional && judge(one.rules, n, {}) == kAllow;
      EXPECT_EQ(bpf::always_allows(one.program, arch_of(one.rules.machine), n), expected)
          << one.name << " " << n;
    }
}

TEST(Filter, NumbersAgreeWithLibseccomp) {
  for (const Case& one : all_cases()) {
    const bool x86 = one.rules.machine == Machine::x86_64;
    int known = 0;
    for (const SyscallRule& rule : one.rules.rules) {
      int number = seccomp_syscall_resolve_name_arch(x86 ? SCMP_ARCH_X86_64 : SCMP_ARCH_AARCH64,
                                                     std::string(rule.name).c_str());
      if (number == __NR_SCMP_ERROR) continue;  // Newer than the library.
      ++known;
      EXPECT_EQ(static_cast<std::uint32_t>(number), rule.number) << one.name << " " << rule.name;
    }
    EXPECT_GT(known * 10, static_cast<int>(one.rules.rules.size()) * 9) << one.name;
  }
}

// Longer than a conditional jump reaches, which no rule set of ours is.
TEST(Filter, LargeTreesJumpFar) {
  Case one{"alternating", {.rules = {}, .unlisted = kAllow}};
  for (std::uint32_t n = 1; n < 1000; n += 2)
    one.rules.rules.push_back(
        {.name = "odd", .number = n, .otherwise = refuse(static_cast<int>(n % 100 + 1))});
  one.program = *compile(one.rules, one.refusals);
  EXPECT_GT(one.program.size(), 1500u);
  EXPECT_EQ(bpf::problem_of(one.program), "");
  for (std::uint32_t n = 0; n < 1100; ++n) EXPECT_EQ(run(one, n, {}), expected(one, n, {})) << n;
}

TEST(Filter, RefusesRulesThatDoNotFit) {
  auto with = [](ArgCheck check) {
    return compile({.rules = {{.name = "x", .number = 1, .clauses = {{{check}, kAllow}}}}},
                   Refusals::quiet);
  };
  EXPECT_TRUE(with({0, kIntArgument, {1}}));
  EXPECT_FALSE(with({6, kIntArgument, {1}}));
  EXPECT_FALSE(with({0, kIntArgument, {}}));
  EXPECT_FALSE(with({0, kLongArgument, {1, 2}}));
  EXPECT_FALSE(with({0, 0xff, {0x100}}));
  EXPECT_FALSE(with({0, kIntArgument, std::vector<std::uint64_t>(300, 1)}));
  EXPECT_FALSE(compile({.rules = {{.name = "x", .number = kX32Bit}}}, Refusals::quiet));
}

TEST(BpfInterpreter, KnowsBadPrograms) {
  const sock_filter end{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
  using Program = std::vector<sock_filter>;
  EXPECT_EQ(bpf::problem_of(Program{end}), "");
  EXPECT_NE(bpf::problem_of(Program{}), "");
  EXPECT_NE(bpf::problem_of(Program{{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0}}), "");
  EXPECT_NE(bpf::problem_of(Program{{BPF_LD | BPF_W | BPF_ABS, 0, 0, 64}, end}), "");
  EXPECT_NE(bpf::problem_of(Program{{BPF_LD | BPF_W | BPF_ABS, 0, 0, 2}, end}), "");
  EXPECT_NE(bpf::problem_of(Program{{BPF_JMP | BPF_JA, 0, 0, 1}, end}), "");
  EXPECT_NE(bpf::problem_of(Program{{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0}, end}), "");
  EXPECT_NE(bpf::problem_of(Program{{BPF_LDX | BPF_W | BPF_LEN, 0, 0, 0}, end}), "");
}

// ---- with the real kernel ----

bool install(const FilterProgram& program) {
  sock_fprog filter{.len = static_cast<unsigned short>(program.size()),
                    .filter = const_cast<sock_filter*>(program.data())};
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0;
}

enum class Filters { none, strict, browser };

// The wait status of a child that runs `body` under fence and gate; it exits with what `body`
// returns.
int in_child(Filters filters, const std::function<int()>& body) {
  const FilterProgram fence = *compile_fence();
  const FilterProgram gate =
      *compile_gate(filters == Filters::browser ? SyscallTier::browser : SyscallTier::strict,
                    kSecret, Refusals::quiet);
  pid_t child = ::fork();
  if (child == 0) {
    rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ::_exit(200);
    if (filters != Filters::none && !(install(fence) && install(gate))) ::_exit(201);
    ::_exit(body());
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

// errno of a call, or 0; below 200 on the errors used here.
int outcome(long result) { return result == -1 ? errno : 0; }

struct Probe {
  const char* name;
  std::function<int()> body;
  int native;  // The same probe without filters: one that fails there alike would prove nothing.
  int strict;
  int browser;
};

TEST(FilterKernel, AnswersAsTheRulesSay) {
  auto call = [](auto... arguments) { return [=] { return outcome(::syscall(arguments...)); }; };
  clone_args empty{};
  const std::vector<Probe> probes{
      {"getppid", call(SYS_getppid), 0, 0, 0},
      {"mount", call(SYS_mount, 0, 8, 0, 0, 0), EFAULT, EPERM, EPERM},
      {"fsconfig", call(SYS_fsconfig, -1, 99, 0, 0, 0), EINVAL, EPERM, EPERM},
      {"unshare nothing", call(SYS_unshare, 0), 0, EPERM, EPERM},
      {"clone3", call(SYS_clone3, &empty, 1), EINVAL, ENOSYS, ENOSYS},
      {"clone NEWNS|FS", call(SYS_clone, CLONE_NEWNS | CLONE_FS, 0, 0, 0, 0), EINVAL, EPERM, EPERM},
      {"clone NEWUSER|FS", call(SYS_clone, CLONE_NEWUSER | CLONE_FS, 0, 0, 0, 0), EINVAL, EPERM,
       EINVAL},
      {"setns", call(SYS_setns, -1, 0, 0, 0, 0, 0), EBADF, EPERM, EPERM},
      {"setns with the secret", call(SYS_setns, -1, 0, 0, 0, 0, kSecret), EBADF, EBADF, EBADF},
      {"chroot", call(SYS_chroot, 8), EFAULT, EPERM, EFAULT},
      {"keyctl", call(SYS_keyctl, 999, 0, 0, 0, 0), EOPNOTSUPP, EPERM, EPERM},
      {"io_uring_setup", call(SYS_io_uring_setup, 1, 8), EFAULT, ENOSYS, ENOSYS},
      {"TIOCSTI", call(SYS_ioctl, -1, TIOCSTI, 0), EBADF, EPERM, EPERM},
      {"TIOCSTI, high bits", call(SYS_ioctl, -1, 0x1'0000'5412, 0), EBADF, EPERM, EPERM},
      {"TCGETS", call(SYS_ioctl, -1, TCGETS, 0), EBADF, EBADF, EBADF},
      {"family 45", call(SYS_socketpair, 45, SOCK_STREAM, 77, 8), EFAULT, EAFNOSUPPORT,
       EAFNOSUPPORT},
      {"inet socket", call(SYS_socket, AF_INET, SOCK_STREAM, 0), 0, 0, 0},
      {"netlink route", call(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0), 0, 0, 0},
      {"PR_SET_NAME", call(SYS_prctl, PR_SET_NAME, "x", 0, 0, 0), 0, 0, 0},
      {"mknodat char", call(SYS_mknodat, -1, "x", 0020600, 0x103), EBADF, EPERM, EPERM},
      {"mknodat fifo", call(SYS_mknodat, -1, "x", 0010600, 0), EBADF, EBADF, EBADF},
      {"number -1", call(-1), ENOSYS, ENOSYS, ENOSYS},
      {"number 600", call(600), ENOSYS, ENOSYS, ENOSYS},
  };
  for (const Probe& probe : probes) {
    auto code = [&](Filters filters) {
      int status = in_child(filters, probe.body);
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    };
    EXPECT_EQ(code(Filters::none), probe.native) << probe.name << ", native";
    EXPECT_EQ(code(Filters::strict), probe.strict) << probe.name << ", strict";
    EXPECT_EQ(code(Filters::browser), probe.browser) << probe.name << ", browser";
  }
}

#ifdef __x86_64__
TEST(FilterKernel, KillsForeignCalls) {
  auto x32 = [] { return outcome(::syscall(kX32Bit | SYS_getpid)); };
  int status = in_child(Filters::strict, x32);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << status;
  status = in_child(Filters::none, x32);
  EXPECT_TRUE(WIFEXITED(status)) << status;

  auto i386 = [] {
    int result = 20;  // getpid
    asm volatile("int $0x80" : "+a"(result)::"memory");
    return result > 0 ? 0 : 1;
  };
  status = in_child(Filters::strict, i386);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << status;
}
#endif

// Runs a shell command under the filters; 77 stands for "a program is missing here".
void expect_works(const std::string& command) {
  for (Filters filters : {Filters::none, Filters::strict, Filters::browser}) {
    int status = in_child(filters, [&] {
      ::execl("/bin/sh", "sh", "-ec", command.c_str(), nullptr);
      return 126;
    });
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
      GTEST_SKIP() << "not installed: " << command;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "status " << status << ", filters " << static_cast<int>(filters) << ": " << command;
  }
}

TEST(FilterKernel, RunsTrue) { expect_works("/bin/true"); }

TEST(FilterKernel, RunsBash) {
  expect_works(
      "command -v bash >/dev/null || exit 77\n"
      "bash -c 'set -e; x=$(seq 100 | sort -rn | head -n 1); [ $x = 100 ]; "
      "for i in 1 2 3; do sleep 0.01 & done; wait; exec 3<<<hello; read y <&3; [ $y = hello ]'");
}

TEST(FilterKernel, RunsPython) {
  expect_works(
      "command -v python3 >/dev/null || exit 77\n"
      "exec python3 -c '\n"
      "import threading, subprocess, socket, asyncio, multiprocessing, tempfile, os, mmap, select\n"
      "done = []\n"
      "ts = [threading.Thread(target=done.append, args=(i,)) for i in range(8)]\n"
      "[t.start() for t in ts]; [t.join() for t in ts]; assert len(done) == 8\n"
      "assert subprocess.check_output([\"echo\", \"hi\"]) == b\"hi\\n\"\n"
      "subprocess.run([\"true\"], check=True, start_new_session=True, cwd=\"/\")\n"
      "s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.close()\n"
      "a, b = socket.socketpair(); a.send(b\"x\"); assert b.recv(1) == b\"x\"\n"
      "socket.if_nameindex(); socket.getaddrinfo(\"127.0.0.1\", 80)\n"
      "async def main():\n"
      "    p = await asyncio.create_subprocess_exec(\"true\"); assert await p.wait() == 0\n"
      "asyncio.run(main())\n"
      "p = multiprocessing.get_context(\"fork\").Process(target=os.getpid)\n"
      "p.start(); p.join(); assert p.exitcode == 0\n"
      "with tempfile.TemporaryDirectory() as d:\n"
      "    os.mkfifo(d + \"/f\"); open(d + \"/x\", \"w\").write(\"y\"); os.rename(d + \"/x\", d + "
      "\"/z\")\n"
      "mmap.mmap(-1, 1 << 20).close(); os.sched_getaffinity(0); select.epoll().close()\n"
      "'");
}

TEST(FilterKernel, RunsGit) {
  expect_works(
      "command -v git >/dev/null || exit 77\n"
      "d=$(mktemp -d); trap 'rm -rf $d' EXIT; cd $d; export HOME=$d GIT_CONFIG_NOSYSTEM=1\n"
      "git init -q .; echo a > a; git add a\n"
      "git -c user.name=n -c user.email=e@e commit -qm one; git clone -q . copy; git log --oneline "
      ">/dev/null; git gc -q");
}

TEST(FilterKernel, RunsNode) {
  expect_works(
      "command -v node >/dev/null || exit 77\n"
      "exec node -e '\n"
      "const {Worker} = require(\"worker_threads\"), cp = require(\"child_process\");\n"
      "require(\"os\").networkInterfaces(); cp.execSync(\"true\");\n"
      "const server = require(\"http\").createServer((q, r) => r.end(\"ok\"));\n"
      "server.listen(0, \"127.0.0.1\", () => require(\"http\").get("
      "{host: \"127.0.0.1\", port: server.address().port}, r => {\n"
      "  r.resume(); r.on(\"end\", () => server.close()); }));\n"
      "const w = new Worker(\"require(\\\"worker_threads\\\").parentPort.postMessage(1)\", {eval: "
      "true});\n"
      "w.on(\"message\", m => { if (m !== 1) process.exit(1); });\n"
      "const watch = require(\"fs\").watch(\"/tmp\"); setTimeout(() => watch.close(), 50);\n"
      "'");
}

TEST(FilterKernel, RunsACompiler) {
  expect_works(
      "command -v cc >/dev/null || exit 77\n"
      "d=$(mktemp -d); trap 'rm -rf $d' EXIT; cd $d\n"
      "echo 'int main(void) { return 0; }' > a.c; cc -O2 -pipe a.c -o a; ./a; tar cf a.tar a a.c; "
      "tar "
      "tf a.tar >/dev/null");
}

// A generous limit: the tree takes 0.1 ms and 0.03 ms, a linear list more than a millisecond.
TEST(FilterKernel, InstallsFast) {
  const FilterProgram fence = *compile_fence();
  const FilterProgram gate = *compile_gate(SyscallTier::strict, kSecret, Refusals::quiet);
  int status = in_child(Filters::none, [&] {
    auto start = std::chrono::steady_clock::now();
    if (!install(fence) || !install(gate)) return 1;
    auto took = std::chrono::steady_clock::now() - start;
    return took < std::chrono::milliseconds(20) ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace asr
