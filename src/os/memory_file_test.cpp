#include "os/memory_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace asr {
namespace {

TEST(MemoryFile, CannotBeChangedOnceSealed) {
  auto file = MemoryFile::make("test");
  ASSERT_TRUE(file) << file.error().what;
  ASSERT_TRUE(file->append("one "));
  ASSERT_TRUE(file->append("two"));
  EXPECT_EQ(file->size(), 7U);
  auto fd = file->seal();
  ASSERT_TRUE(fd) << fd.error().what;
  char text[8]{};
  EXPECT_EQ(::pread(fd->get(), text, 7, 0), 7);
  EXPECT_STREQ(text, "one two");
  EXPECT_LT(::write(fd->get(), "x", 1), 0);
  EXPECT_NE(::ftruncate(fd->get(), 0), 0);
  // Nor through another description of it.
  UniqueFd again(::open(("/proc/self/fd/" + std::to_string(fd->get())).c_str(), O_RDWR));
  EXPECT_TRUE(!again || ::write(again.get(), "x", 1) < 0);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0), MAP_FAILED);
}

}  // namespace
}  // namespace asr
