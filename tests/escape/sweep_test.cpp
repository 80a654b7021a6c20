// Every system call number, called from inside a sandbox: which are reachable is written down in
// golden/syscalls.txt.
#include <seccomp.h>

#include <map>
#include <sstream>

#include "golden.hpp"
#include "harness.hpp"

namespace asr::escape {

namespace {

// Newer than the library that knows the others.
const std::map<int, std::string> kNewNames = {
    {335, "uretprobe"},         {336, "uprobe"},
    {451, "cachestat"},         {452, "fchmodat2"},
    {453, "map_shadow_stack"},  {454, "futex_wake"},
    {455, "futex_wait"},        {456, "futex_requeue"},
    {457, "statmount"},         {458, "listmount"},
    {459, "lsm_get_self_attr"}, {460, "lsm_set_self_attr"},
    {461, "lsm_list_modules"},  {462, "mseal"},
    {463, "setxattrat"},        {464, "getxattrat"},
    {465, "listxattrat"},       {466, "removexattrat"},
    {467, "open_tree_attr"},    {468, "file_getattr"},
    {469, "file_setattr"},      {470, "listns"},
};

std::string name_of(int number) {
  char* known = ::seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, number);
  if (known != nullptr) {
    std::string name = known;
    ::free(known);
    return name;
  }
  auto it = kNewNames.find(number);
  return it != kNewNames.end() ? it->second : "-";
}

}  // namespace

class Sweep : public Escape {
 protected:
  std::map<int, std::string> sweep(const SandboxPtr& sandbox, const std::string& user,
                                   const std::string& abi) {
    RunResult result = run(sandbox, user, {kProbe, "sweep", abi});
    EXPECT_TRUE(result.status.ok() && result.out.ends_with("end\n"))
        << "the sweep did not finish: " << result.err;
    std::map<int, std::string> verdicts;
    std::istringstream lines(result.out);
    int number = 0;
    std::string verdict;
    while (lines >> number >> verdict) verdicts[number] = verdict;
    return verdicts;
  }

  // What another kernel lacks may say ENOSYS where the golden list says reachable. Everything else
  // must be as written.
  static void keep_what_older_kernels_lack(const std::string& golden,
                                           std::vector<std::string>& actual) {
    std::map<std::string, std::string> decided;
    for (const std::string& line : read_golden(golden))
      decided[line.substr(0, line.rfind(' '))] = line.substr(line.rfind(' ') + 1);
    for (std::string& line : actual) {
      std::string key = line.substr(0, line.rfind(' '));
      if (line.ends_with(" ENOSYS") && decided[key] == "reachable") line = key + " reachable";
    }
  }

  void compare(const std::string& golden, const SandboxPtr& sandbox) {
#if !defined(__x86_64__)
    GTEST_SKIP() << "written for x86-64";
#endif
    std::vector<std::string> lines;
    std::map<int, std::string> as_root = sweep(sandbox, "root", "native");
    for (const auto& [number, verdict] : as_root)
      lines.push_back(std::to_string(number) + " " + name_of(number) + " " + verdict);
    for (const char* abi : {"x32", "i386"}) {
      std::map<int, std::string> verdicts = sweep(sandbox, "root", abi);
      std::map<std::string, int> summary;
      for (const auto& [number, verdict] : verdicts) ++summary[verdict];
      for (const auto& [verdict, count] : summary)
        lines.push_back(std::string(abi) + " " + std::to_string(count) + " " + verdict);
    }
    keep_what_older_kernels_lack(golden, lines);
    expect_golden(
        golden, lines,
        "Every system call, made as root inside with arguments that no call can use: what came "
        "back.\n"
        "reachable: the kernel looked at the arguments. Calls whose arguments decide (clone, "
        "ioctl, socket …) show the\n"
        "verdict for these arguments only. not-called: exit, exit_group, rt_sigreturn, vfork.");
    for (const auto& [number, verdict] : sweep(sandbox, "user", "native"))
      EXPECT_FALSE(verdict == "reachable" && as_root[number] != "reachable")
          << name_of(number) << " is reachable for the user, but not for root";
  }
};

TEST_F(Sweep, Strict) { compare("syscalls.txt", make()); }

TEST_F(Sweep, Browser) {
  SandboxSpec spec = standard();
  spec.tier = SyscallTier::browser;
  compare("syscalls-browser.txt", make(spec));
}

}  // namespace asr::escape
