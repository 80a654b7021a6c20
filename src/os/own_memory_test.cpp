#include "os/own_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <string>

#include "os/file.hpp"

namespace asr {
namespace {

// Of pages that lie in files.
long resident_kib() {
  std::string status = *read_small_file(AT_FDCWD, "/proc/self/status");
  return std::stol(status.substr(status.find("RssFile:") + 8));
}

TEST(OwnMemory, CodeGoesAndComesBackWhenItIsRun) {
  long before = resident_kib();
  ASSERT_TRUE(let_go_of_code());
  EXPECT_LT(resident_kib(), before);
  ASSERT_TRUE(let_go_of_code());
}

}  // namespace
}  // namespace asr
