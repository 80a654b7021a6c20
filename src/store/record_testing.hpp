// What the tests of records share.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/id.hpp"
#include "os/file.hpp"
#include "store/migrations.hpp"
#include "store/sqlite.hpp"

namespace asr::test {

// The value, or a failed test that says why there is none.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().what + " | " + result.error().hint);
  return unwrap(std::move(result));
}

// A name for a folder that is not there yet; in memory where there is such a place.
class ScratchFolder {
 public:
  ScratchFolder()
      : path_((::access("/dev/shm", W_OK) == 0 ? std::filesystem::path("/dev/shm")
                                               : std::filesystem::temp_directory_path()) /
              ("asr-store-" + random_name(10))) {}
  ~ScratchFolder() { EXPECT_TRUE(remove_tree(AT_FDCWD, path_.native())); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// A database of the current shape, without a store around it.
class RecordTest : public testing::Test {
 protected:
  RecordTest() {
    std::filesystem::create_directories(folder_.path());
    db_ = must(Database::open(folder_ / "state.db"));
    must(migrate(*db_));
  }

  ScratchFolder folder_;
  std::unique_ptr<Database> db_;
};

// Texts that would do harm if they ever became part of a statement.
inline const char* const kHostile[] = {
    "'; DROP TABLE sessions; --", "\" OR \"\"=\"",      "' OR 1=1 --",    "%", "_", "a\\", "?1",
    "$.x\")) OR 1=1 --",          "\xff\xfe not UTF-8", "new\nline\ttab",
};

}  // namespace asr::test
