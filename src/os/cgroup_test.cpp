#include "os/cgroup.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kRoot = "23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n";

TEST(Hierarchies, V1HasOneMountPerController) {
  auto found = parse_hierarchies(
      std::string(kRoot) +
      "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
      "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
      "36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices\n"
      "39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n"
      "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].mount, "/sys/fs/cgroup/cpu,cpuacct");
  EXPECT_EQ(found[0].controllers, (Names{"cpu", "cpuacct"}));
  EXPECT_TRUE(found[1].has("memory"));
  EXPECT_FALSE(found[1].has("mem"));
  EXPECT_TRUE(found[2].has("pids"));
  for (const Hierarchy& hierarchy : found) EXPECT_FALSE(hierarchy.v2);
}

TEST(Hierarchies, HybridHasBoth) {
  auto found = parse_hierarchies(
      "39 31 0:36 / /sys/fs/cgroup/pids rw shared:9 master:2 - cgroup cgroup rw,pids\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:10 - cgroup2 cgroup2 rw\n");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_FALSE(found[0].v2);
  EXPECT_TRUE(found[1].v2);
  EXPECT_EQ(found[1].mount, "/sys/fs/cgroup/unified");
  EXPECT_TRUE(found[1].controllers.empty()) << "those are in its own files, not in mountinfo";
}

TEST(Hierarchies, PureV2IsOneTree) {
  auto found = parse_hierarchies(
      "29 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 "
      "rw,nsdelegate,memory_recursiveprot");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].v2);
  EXPECT_EQ(found[0].mount, "/sys/fs/cgroup");
}

TEST(Hierarchies, ThereMayBeNone) {
  EXPECT_TRUE(parse_hierarchies("").empty());
  EXPECT_TRUE(parse_hierarchies(kRoot).empty());
}

TEST(Hierarchies, LinesThatAreNoneAreLeftOut) {
  for (const char* text :
       {"\n\n\n", " - ", " - cgroup", " - cgroup2 x rw", "1 2 3 - cgroup2 cgroup2 rw", "-",
        "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup",
        "39 31 0:36 / /mnt rw - cgroupx cgroup rw,pids",
        "39 31 0:36 / /mnt rw -  cgroup2 cgroup2 rw"})
    EXPECT_TRUE(parse_hierarchies(text).empty()) << text;
}

TEST(Hierarchies, ThisMachineCanBeRead) { EXPECT_TRUE(find_hierarchies()); }

}  // namespace
}  // namespace asr
