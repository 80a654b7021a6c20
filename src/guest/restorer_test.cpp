#include "guest/restorer.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "base/id.hpp"
#include "guest/packer.hpp"
#include "os/file.hpp"

namespace asr {
namespace {

namespace fs = std::filesystem;

// A packer and a restorer with nothing between them, in folders of the test's own.
class RestorerTest : public testing::Test {
 protected:
  RestorerTest() : dir_(fs::temp_directory_path() / ("asr-restorer-" + random_name(10))) {
    fs::create_directories(dir_ / "from");
    fs::create_directories(dir_ / "to");
    scratch_.one_id = ::geteuid() != 0;
    scratch_.foreign = {"/proc"};
    stream_ = UniqueFd(::memfd_create("saved", MFD_CLOEXEC));
    out_.reset(::archive_write_new());
    ::archive_write_set_format_pax(out_.get());
    ::archive_write_set_options(out_.get(), "hdrcharset=BINARY,xattrheader=LIBARCHIVE");
    ::archive_write_set_bytes_in_last_block(out_.get(), 512);
    EXPECT_EQ(::archive_write_open_fd(out_.get(), stream_.get()), ARCHIVE_OK);
    packer_.emplace(out_.get(), Packer::Detail::saving);
    from_ = UniqueFd(::open((dir_ / "from").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~RestorerTest() override { EXPECT_TRUE(remove_tree(AT_FDCWD, dir_.native())); }

  fs::path put(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
    return dir_ / name;
  }
  Result<UniqueFd> pack(const std::string& name, const std::string& as,
                        Packer::Origin origin = {}) {
    return packer_->add(from_.get(), name.c_str(), as, origin);
  }
  Result<std::uint64_t> restore() {
    ::archive_write_close(out_.get());
    ::lseek(stream_.get(), 0, SEEK_SET);
    ArchiveReader in(::archive_read_new());
    ::archive_read_support_format_tar(in.get());
    EXPECT_EQ(::archive_read_open_fd(in.get(), stream_.get(), 65536), ARCHIVE_OK);
    UniqueFd root(::open((dir_ / "to").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return Restorer(in.get(), std::move(root), scratch_).run();
  }
  std::string read(const std::string& name) {
    std::ifstream file(dir_ / "to" / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  struct stat info(const std::string& name) {
    struct stat result {};
    EXPECT_EQ(::lstat((dir_ / "to" / name).c_str(), &result), 0) << name;
    return result;
  }

  fs::path dir_;
  Scratch scratch_;
  UniqueFd stream_;
  UniqueFd from_;
  ArchiveWriter out_;
  std::optional<Packer> packer_;
};

TEST_F(RestorerTest, FileFolderLinkAndFifo) {
  fs::path file = put("from/f", "contents");
  ::chmod(file.c_str(), 0751);
  std::array<timespec, 2> times{{{0, UTIME_OMIT}, {1'000'000'000, 123'456'789}}};
  ::utimensat(AT_FDCWD, file.c_str(), times.data(), 0);
  fs::create_symlink("nowhere", dir_ / "from/l");
  fs::create_directory(dir_ / "from/d");
  ::utimensat(AT_FDCWD, (dir_ / "from/d").c_str(), times.data(), 0);
  ASSERT_EQ(::mkfifo((dir_ / "from/p").c_str(), 0600), 0);
  EXPECT_TRUE(*pack("d", "d")) << "a folder comes back opened";
  EXPECT_FALSE(*pack("f", "d/f"));
  EXPECT_FALSE(*pack("l", "d/l"));
  EXPECT_FALSE(*pack("p", "d/p"));
  EXPECT_FALSE(*pack("missing", "d/missing"));
  ASSERT_TRUE(packer_->add_end());
  auto count = restore();
  ASSERT_TRUE(count) << count.error().what;
  EXPECT_EQ(*count, 4U);
  EXPECT_EQ(read("d/f"), "contents");
  EXPECT_EQ(info("d/f").st_mode, S_IFREG | 0751U);
  EXPECT_EQ(info("d/f").st_mtim.tv_nsec, 123'456'789);
  EXPECT_EQ(info("d").st_mtim.tv_nsec, 123'456'789) << "after what lies in it";
  EXPECT_EQ(fs::read_symlink(dir_ / "to/d/l"), "nowhere");
  EXPECT_TRUE(S_ISFIFO(info("d/p").st_mode));
}

TEST_F(RestorerTest, WhatIsThereGivesWay) {
  put("from/f", "new");
  fs::create_directory(dir_ / "from/d");
  fs::create_directories(dir_ / "to/f/full");
  put("to/f/full/x", "x");
  put("to/d", "a file");
  fs::create_directories(dir_ / "to/gone/full");
  ASSERT_TRUE(pack("f", "f"));
  ASSERT_TRUE(pack("d", "d"));
  ASSERT_TRUE(packer_->add_removed("gone"));
  ASSERT_TRUE(packer_->add_end());
  auto count = restore();
  ASSERT_TRUE(count) << count.error().what;
  EXPECT_EQ(read("f"), "new");
  EXPECT_TRUE(fs::is_directory(dir_ / "to/d"));
  EXPECT_FALSE(fs::exists(dir_ / "to/gone"));
}

TEST_F(RestorerTest, FoldersAreKeptOrReplaced) {
  fs::create_directory(dir_ / "from/d");
  for (const char* name : {"to/kept", "to/replaced"}) {
    fs::create_directories(dir_ / name);
    put(std::string(name) + "/old", "x");
  }
  ASSERT_TRUE(pack("d", "kept"));
  ASSERT_TRUE(pack("d", "replaced", {.replaces = true}));
  ASSERT_TRUE(packer_->add_removed("kept/nothing"));
  ASSERT_TRUE(packer_->add_end());
  auto count = restore();
  ASSERT_TRUE(count) << count.error().what;
  EXPECT_EQ(read("kept/old"), "x");
  EXPECT_FALSE(fs::exists(dir_ / "to/replaced/old"));
}

TEST_F(RestorerTest, SeveralNamesOfOneFile) {
  put("from/a", "same");
  fs::create_hard_link(dir_ / "from/a", dir_ / "from/b");
  ASSERT_TRUE(pack("a", "a"));
  ASSERT_TRUE(pack("b", "b"));
  ASSERT_TRUE(packer_->add_end());
  ASSERT_TRUE(restore());
  EXPECT_EQ(info("a").st_ino, info("b").st_ino);
}

TEST_F(RestorerTest, HolesStayHoles) {
  fs::path file = put("from/holes", "begin");
  fs::resize_file(file, 5'000'000'000);
  fs::path nothing = put("from/nothing", "");
  fs::resize_file(nothing, 1 << 20);
  ASSERT_TRUE(pack("holes", "holes"));
  ASSERT_TRUE(pack("nothing", "nothing"));
  ASSERT_TRUE(packer_->add_end());
  auto count = restore();
  ASSERT_TRUE(count) << count.error().what;
  EXPECT_EQ(info("holes").st_size, 5'000'000'000);
  EXPECT_LT(info("holes").st_blocks, 1000);
  EXPECT_EQ(info("nothing").st_size, 1 << 20);
  EXPECT_EQ(::lseek(stream_.get(), 0, SEEK_END) < 100'000, true);
  std::ifstream again(dir_ / "to/holes");
  std::string begin(6, '?');
  again.read(begin.data(), 6);
  EXPECT_EQ(begin, std::string("begin\0", 6));
}

// Marks of the kernel's are none of the programs', and theirs of the same name are kept apart.
TEST_F(RestorerTest, AttributesAsProgramsSeeThem) {
  fs::path file = put("from/f", "x");
  auto set = [&](const char* name, const char* value) {
    return ::setxattr(file.c_str(), name, value, std::strlen(value), 0) == 0;
  };
  if (!set("user.own", "1")) GTEST_SKIP() << "no attributes here";
  ASSERT_TRUE(set("user.overlay.origin", "mark"));
  ASSERT_TRUE(set("user.overlay.overlay.opaque", "theirs"));
  ASSERT_TRUE(pack("f", "upper", {.overlay = true}));
  ASSERT_TRUE(pack("f", "plain"));
  ASSERT_TRUE(packer_->add_end());
  auto count = restore();
  ASSERT_TRUE(count) << count.error().what;
  auto names = [&](const char* name) {
    std::array<char, 1000> list{};
    ssize_t n = ::listxattr((dir_ / "to" / name).c_str(), list.data(), list.size());
    std::set<std::string> result;
    for (ssize_t at = 0; at < n;
         at += static_cast<ssize_t>(std::strlen(&list[static_cast<std::size_t>(at)])) + 1)
      result.insert(&list[static_cast<std::size_t>(at)]);
    return result;
  };
  EXPECT_EQ(names("upper"), (std::set<std::string>{"user.own", "user.overlay.opaque"}));
  EXPECT_EQ(names("plain"), (std::set<std::string>{"user.own", "user.overlay.origin",
                                                   "user.overlay.overlay.opaque"}));
}

TEST_F(RestorerTest, WithoutItsEndAStreamIsBroken) {
  put("from/f", "x");
  ASSERT_TRUE(pack("f", "f"));
  auto count = restore();
  ASSERT_FALSE(count);
  EXPECT_EQ(count.error().code, Errc::invalid);
}

TEST_F(RestorerTest, WhyItCouldNotBeSavedIsTold) {
  put("from/f", "x");
  ASSERT_TRUE(pack("f", "f"));
  ASSERT_TRUE(packer_->add_failure(Error(Errc::exhausted, "too deep for us")));
  auto count = restore();
  ASSERT_FALSE(count);
  EXPECT_EQ(count.error().code, Errc::exhausted);
  EXPECT_NE(count.error().what.find("too deep for us"), std::string::npos);
}

// Names of what is not the sandbox's own, and of what lies in no folder.
class RestorerNameTest : public RestorerTest, public testing::WithParamInterface<const char*> {};

TEST_P(RestorerNameTest, IsRefused) {
  put("from/f", "x");
  fs::create_directory_symlink("..", dir_ / "to/link");
  ASSERT_TRUE(pack("f", GetParam()));
  ASSERT_TRUE(packer_->add_end());
  auto count = restore();
  ASSERT_FALSE(count);
  EXPECT_EQ(count.error().code, Errc::invalid);
  EXPECT_FALSE(fs::exists(dir_ / "f")) << "written through a link";
}
INSTANTIATE_TEST_SUITE_P(Names, RestorerNameTest,
                         testing::Values("proc/sys/x", "proc", "no/such", "../f", "a/../f",
                                         "link/f", "/f", "a//b", "."));

}  // namespace
}  // namespace asr
