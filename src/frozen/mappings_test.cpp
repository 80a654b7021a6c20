#include "frozen/mappings.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace asr::frozen {
namespace {

std::vector<Mapping> mappings_in(const std::string& text) {
  std::vector<Mapping> all;
  for (const char* at = text.c_str(); *at != '\0';) all.push_back(read_mapping(at));
  return all;
}

TEST(Mappings, LinesOfTheKernel) {
  std::string text =
      "7f0000000000-7f0000002000 r-xp 00001000 fd:1a 1234                       /usr/lib/a b\n"
      "7f0000002000-7f0000003000 rw-s 00000000 00:1f 1234                       /dev/shm/x\n"
      "7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0                          [stack]\n"
      "7ffd00001000-7ffd00002000 ---p 00000000 00:00 0 \n";
  auto all = mappings_in(text);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].begin, 0x7f0000000000U);
  EXPECT_EQ(all[0].end, 0x7f0000002000U);
  EXPECT_EQ(all[0].offset, 0x1000U);
  EXPECT_EQ(all[0].protection, static_cast<std::uint32_t>(PROT_READ | PROT_EXEC));
  EXPECT_FALSE(all[0].shared);
  EXPECT_TRUE(begins(all[0].name, "/usr/lib/a b\n"));
  EXPECT_TRUE(all[1].shared);
  EXPECT_TRUE(begins(all[2].name, "[stack]"));
  EXPECT_EQ(all[3].protection, 0U);
}

// Each file system counts its files from one.
TEST(Mappings, FilesOfTwoDevicesAreTwo) {
  auto all = mappings_in(
      "1000-2000 r--p 00000000 fd:01 77 /a\n2000-3000 r--p 00000000 fd:10 77 /b\n"
      "3000-4000 r--p 00000000 01:0d 77 /c\n4000-5000 r--p 00000000 fd:01 77 /a\n");
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].inode, all[1].inode);
  EXPECT_NE(all[0].device, all[1].device);
  EXPECT_NE(all[0].device, all[2].device);
  EXPECT_NE(all[1].device, all[2].device);
  EXPECT_EQ(all[0].device, all[3].device);
}

}  // namespace
}  // namespace asr::frozen
