#include "os/features.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "os/landlock.hpp"

namespace asr {
namespace {

using Version = CgroupController::Version;

std::function<std::string(const std::string&)> files(std::map<std::string, std::string> texts) {
  return [texts = std::move(texts)](const std::string& path) {
    auto found = texts.find(path);
    return found == texts.end() ? std::string() : found->second;
  };
}

constexpr std::string_view kHybrid =
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n"
    "38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n"
    "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

TEST(FindControllers, HybridTakesV1ForLimitsAndV2ForFreezing) {
  auto found = find_controllers(kHybrid,
                                "7:blkio:/\n4:memory:/job/7\n2:cpu,cpuacct:/x\n1:name=systemd:/\n"
                                "0::/me\n",
                                files({{"/sys/fs/cgroup/unified/me/cgroup.controllers", ""}}));
  const std::vector<CgroupController> expected{
      {"memory", Version::v1, "/sys/fs/cgroup/memory/job/7", false},
      {"pids", Version::none, "", false},
      {"cpu", Version::v1, "/sys/fs/cgroup/cpu,cpuacct/x", false},
      {"io", Version::v1, "/sys/fs/cgroup/blkio", false},
      {"freezer", Version::v2, "/sys/fs/cgroup/unified/me", false},
  };
  EXPECT_EQ(found, expected);
}

TEST(FindControllers, UnifiedReadsWhatWasDelegated) {
  auto found = find_controllers(
      "1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / /sys/fs/cgroup rw shared:4 - cgroup2 c "
      "rw,nsdelegate\n",
      "0::/user.slice/user-1000.slice/x.scope\n",
      files({{"/sys/fs/cgroup/user.slice/user-1000.slice/x.scope/cgroup.controllers",
              "cpu memory pids"}}));
  const std::string own = "/sys/fs/cgroup/user.slice/user-1000.slice/x.scope";
  const std::vector<CgroupController> expected{
      {"memory", Version::v2, own, false},  {"pids", Version::v2, own, false},
      {"cpu", Version::v2, own, false},     {"io", Version::none, "", false},
      {"freezer", Version::v2, own, false},
  };
  EXPECT_EQ(found, expected);
}

TEST(FindControllers, ContainersSeePartOfATree) {
  auto path_of = [](std::string_view mountinfo, std::string_view own) {
    return find_controllers(mountinfo, own, files({}))[0].path;
  };
  EXPECT_EQ(path_of("5 1 0:2 /docker/abc /cg\\040x ro - cgroup c rw,memory\n",
                    "4:memory:/docker/abc/y\n"),
            "/cg x/y");
  EXPECT_EQ(path_of("5 1 0:2 / /cg ro - cgroup c rw,memory\n", "4:memory:/../other\n"), "/cg");
  EXPECT_EQ(path_of("5 1 0:2 / /cg ro - cgroup c rw,memory\n", ""), "/cg");
}

TEST(FindControllers, SurvivesNonsense) {
  for (std::string_view text :
       {"", "\n\n", "-", " - - - -", "1 2 3", ":::", "\\", "a b c d \\04 f - cgroup"})
    EXPECT_EQ(find_controllers(text, text, files({})).size(), 5u) << text;
}

TEST(LooksChrooted, WhenNoMountIsTheRoot) {
  EXPECT_FALSE(looks_chrooted(kHybrid));
  EXPECT_TRUE(looks_chrooted("22 27 0:21 / /proc rw - proc proc rw\n"));
}

TEST(Landlock, ScopesStopSignalsAndLeaveFilesAlone) {
  EXPECT_EQ(restrict_scopes(kLandlockScopes - 1), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  const auto abi = landlock_abi();
  if (!abi || *abi < kLandlockScopes) GTEST_SKIP() << "no scopes on this kernel";

  char dir[] = "/tmp/asr-landlock-XXXXXX";
  ASSERT_NE(::mkdtemp(dir), nullptr);
  const std::string a = std::string(dir) + "/a", b = std::string(dir) + "/b";
  std::filesystem::create_directories(a + "/file");
  std::filesystem::create_directories(b);
  const std::string from = a + "/file", to = b + "/file";
  const pid_t child = ::fork();
  if (child == 0) {
    if (::kill(::getppid(), 0) != 0) ::_exit(5);  // Or its failure below would prove nothing.
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (restrict_scopes(*abi) != 0) ::_exit(1);
    if (::kill(::getppid(), 0) == 0 || errno != EPERM) ::_exit(2);
    if (::kill(::getpid(), 0) != 0) ::_exit(3);
    ::_exit(::rename(from.c_str(), to.c_str()) == 0 ? 0 : 4);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::filesystem::remove_all(dir);
}

std::vector<std::string> lines_of(const char* path) {
  std::ifstream file(path);
  std::vector<std::string> out;
  for (std::string line; std::getline(file, line);) out.push_back(line);
  return out;
}

std::size_t descriptors() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST(ProbeFeatures, AnswersEverythingAndLeavesNothing) {
  const std::vector<std::string> mounts = lines_of("/proc/self/mountinfo");
  const std::size_t open = descriptors();
  const auto start = std::chrono::steady_clock::now();
  const KernelFeatures found = probe_features();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));

  EXPECT_FALSE(found.release.empty());
  std::set<std::string> names;
  for (const Feature& one : found.features) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_FALSE(one.detail.empty()) << one.name;
    if (one.state == FeatureState::ok) {
      EXPECT_TRUE(one.fix.empty()) << one.name;
    }
    RecordProperty(one.name, std::string(to_string(one.state)) + ": " + one.detail);
  }
  const std::set<std::string> expected{"kernel",
                                       "cgroup_memory",
                                       "cgroup_pids",
                                       "cgroup_cpu",
                                       "cgroup_io",
                                       "cgroup_freezer",
                                       "clone3",
                                       "clone_into_cgroup",
                                       "user_namespaces",
                                       "overlay_in_userns",
                                       "proc_mount",
                                       "idmapped_mounts",
                                       "seccomp",
                                       "landlock",
                                       "openat2",
                                       "pidfd",
                                       "close_range",
                                       "core_pattern",
                                       "swap",
                                       "pid_max",
                                       "cpu_vulnerabilities",
                                       "merged_usr",
                                       "subordinate_ids"};
  EXPECT_EQ(names, expected);
  ASSERT_EQ(found.controllers.size(), 5u);
  EXPECT_NE(found.find("seccomp"), nullptr);
  EXPECT_EQ(found.find("nonsense"), nullptr);

  EXPECT_EQ(lines_of("/proc/self/mountinfo"), mounts);
  EXPECT_EQ(descriptors(), open);
  EXPECT_TRUE(lines_of("/proc/thread-self/children").empty());
}

}  // namespace
}  // namespace asr
