#include "engine/cgroups.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "os/file.hpp"
#include "os/pidfd.hpp"

namespace asr {
namespace {

using namespace std::chrono_literals;

class Groups : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: an ordinary user has no groups";
    cgroups_ = Cgroups::open(instance_, {});
    if (!cgroups_->can_freeze()) GTEST_SKIP() << "there is no cgroup v2 tree on this machine";
  }

  // A limit as the kernel has it, "" where this machine has no such file.
  std::string limit_of(const Group& group, const char* file) const {
    auto hierarchies = find_hierarchies();
    if (!hierarchies) return "";
    for (const Hierarchy& hierarchy : *hierarchies) {
      std::string path =
          hierarchy.mount + "/agent-sandbox/" + instance_.text + "/" + group.name + "/" + file;
      if (auto text = read_small_file(AT_FDCWD, path)) return *text;
    }
    return "";
  }

  // A group as its second user has it.
  std::optional<Group> used_group(const Limits& limits) {
    auto first = cgroups_->take();
    if (!first || !cgroups_->limit(*first, limits) || !cgroups_->give_back(*first)) return {};
    former_ = *first;
    auto second = cgroups_->take();
    if (!second) return {};
    return *second;
  }

  InstanceId instance_{"i-" + random_name(12)};
  std::shared_ptr<Cgroups> cgroups_;
  Group former_;
};

Limits limits_of(std::uint64_t mib, std::uint32_t pids, std::uint32_t milli_cpus) {
  Limits limits;
  limits.memory_bytes = mib << 20;
  limits.pids = pids;
  limits.milli_cpus = milli_cpus;
  return limits;
}

TEST_F(Groups, AreOutOfReachOnceGivenBack) {
  auto group = used_group(limits_of(64, 32, 500));
  ASSERT_TRUE(group);
  if (!group->used) GTEST_SKIP() << "groups are not used again on this machine";
  ASSERT_EQ(group->name, former_.name);
  auto joins = cgroups_->join_fds(*group);
  ASSERT_TRUE(joins);

  pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  ASSERT_GT(child, 0);
  auto pidfd = open_pidfd(child);
  ASSERT_TRUE(pidfd);
  ASSERT_TRUE(write_value(joins->v2.get(), "cgroup.procs", std::to_string(child)));

  cgroups_->hasten_end(former_);
  EXPECT_EQ(cgroups_->freeze(former_, true).error().code, Errc::gone);
  Usage usage;
  cgroups_->measure(former_, usage);
  EXPECT_EQ(usage.memory_bytes + usage.pids, 0U);
  EXPECT_FALSE(wait_for_end(pidfd->get(), 200ms)) << "the former user killed the next one";

  EXPECT_FALSE(cgroups_->give_back(*group)) << "a group with a process was taken for empty";
  cgroups_->hasten_end(*group);
  EXPECT_TRUE(wait_for_end(pidfd->get(), 5s)) << "the present user cannot kill it";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(cgroups_->give_back(*group));
  EXPECT_TRUE(cgroups_->give_back(*group)) << "twice is harmless";
}

TEST_F(Groups, HaveTheLimitsOfTheirPresentUser) {
  auto group = used_group(limits_of(256, 99, 1500));
  ASSERT_TRUE(group);
  for (const Limits& limits : {limits_of(64, 32, 500), limits_of(512, 64, 0)}) {
    ASSERT_TRUE(cgroups_->limit(*group, limits));
    std::string memory = limit_of(*group, "memory.limit_in_bytes") + limit_of(*group, "memory.max");
    EXPECT_EQ(memory, std::to_string(limits.memory_bytes));
    EXPECT_EQ(limit_of(*group, "pids.max"), std::to_string(limits.pids + 16));
    if (std::string quota = limit_of(*group, "cpu.cfs_quota_us"); !quota.empty())
      EXPECT_EQ(quota, limits.milli_cpus == 0 ? "-1" : std::to_string(limits.milli_cpus * 100));
  }
  EXPECT_TRUE(cgroups_->give_back(*group));
}

TEST_F(Groups, OfADeadDaemonAreTakenOverOrSwept) {
  auto kept = cgroups_->take();
  auto other = cgroups_->take();
  ASSERT_TRUE(kept && other);
  CgroupSweep sweep = sweep_cgroups(instance_, {kept->name});
  EXPECT_EQ(sweep.sandboxes, 1U);
  EXPECT_TRUE(sweep.problems.empty());
  auto next = Cgroups::open(instance_, {});
  auto adopted = next->adopt(*kept);
  ASSERT_TRUE(adopted);
  EXPECT_FALSE(next->adopt(*other)) << "it is not there any more";
  Group strange;
  strange.name = "../..";
  EXPECT_FALSE(next->adopt(strange));
  auto fresh = next->take();
  ASSERT_TRUE(fresh);
  EXPECT_NE(fresh->name, kept->name);
  EXPECT_TRUE(next->give_back(*adopted));
  EXPECT_TRUE(next->give_back(*fresh));
}

TEST_F(Groups, AreGoneWithTheInstance) {
  auto group = used_group(limits_of(64, 32, 500));
  ASSERT_TRUE(group);
  ASSERT_TRUE(cgroups_->give_back(*group));
  cgroups_.reset();
  auto hierarchies = find_hierarchies();
  ASSERT_TRUE(hierarchies);
  for (const Hierarchy& hierarchy : *hierarchies)
    EXPECT_FALSE(open_dir(AT_FDCWD, hierarchy.mount + "/agent-sandbox/" + instance_.text));
}

}  // namespace
}  // namespace asr
