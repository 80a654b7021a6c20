#include "base/result.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return fail(Errc::invalid, "odd", "give an even number");
  return n / 2;
}

Result<int> quarter(int n) {
  int once = TRY(half(n));
  return TRY(half(once));
}

TEST(Result, TryPassesTheFirstErrorUp) {
  EXPECT_EQ(*quarter(12), 3);
  auto failed = quarter(6);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().what, "odd");
  EXPECT_EQ(failed.error().hint, "give an even number");
}

TEST(Result, ErrnoBecomesACodeThatSaysWhoseFaultItIs) {
  EXPECT_EQ(errno_error(ENOENT, "open x").code, Errc::not_found);
  EXPECT_EQ(errno_error(ENOSPC, "write").fault(), Fault::limit);
  EXPECT_EQ(errno_error(EIO, "read").fault(), Fault::platform);
  EXPECT_EQ(Error(Errc::provider, "it is not there").fault(), Fault::platform);
  EXPECT_EQ(errno_error(ENOENT, "open x").what, "open x: No such file or directory");
}

}  // namespace
}  // namespace asr
