// A folder of the host's that /workspace begins with: the user's own inside, untouched outside; and
// files as they were before somebody changed them.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "kernel_test.hpp"

namespace asr::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class WorkspaceTest : public KernelTest {
 protected:
  fs::path folder() const { return scratch() / "project"; }
  // A file, a folder with one in it, and a link; all of one owner.
  void make_folder(uid_t owner) {
    write_host_file(folder() / "a", "aaa\n");
    write_host_file(folder() / "sub/b", "bb\n", 0600);
    fs::create_symlink("a", folder() / "link");
    for (const char* name : {".", "a", "sub", "sub/b", "link"})
      ASSERT_EQ(::lchown((folder() / name).c_str(), owner, owner), 0);
  }
  SandboxSpec spec(Preset preset = Preset::standard) const {
    SandboxSpec result = spec_of(preset);
    result.environment.workspace = folder().native();
    return result;
  }
  static std::string on_host(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::string text_before(Sandbox& box, const std::string& path) {
    UniqueFd file = must(box.open_before(path));
    std::string text(64, '\0');
    ssize_t n = ::read(file.get(), text.data(), text.size());
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    return text;
  }
  Errc error_before(Sandbox& box, const std::string& path) {
    auto opened = wait(box.open_before(path));
    EXPECT_FALSE(opened) << path;
    return opened ? Errc::internal : opened.error().code;
  }
};

TEST_F(WorkspaceTest, IsTheUsersWhoeverOwnsTheFolder) {
  for (uid_t owner : {0U, 1000U, 12345U, 3000000000U}) {
    fs::remove_all(folder());
    make_folder(owner);
    ASSERT_EQ(::lchown((folder() / "sub").c_str(), 7, 7), 0);
    auto box = sandbox(spec());
    EXPECT_EQ(sh(*box, "stat -c '%u:%g %a' . a sub/b link; stat -c %u sub; cat sub/b").out,
              "1000:1000 755\n1000:1000 644\n1000:1000 600\n1000:1000 777\n7\nbb\n")
        << owner;
    RunResult done = sh(*box, "set -e; echo x >> a; echo new > new; rm sub/b || true; mv link l2");
    EXPECT_TRUE(done.status.ok()) << done.err;
    EXPECT_EQ(sh(*box, "cat a new l2").out, "aaa\nx\nnew\naaa\nx\n");
    must(box->destroy());
    EXPECT_EQ(on_host(folder() / "a"), "aaa\n");
    EXPECT_FALSE(fs::exists(folder() / "new"));
    EXPECT_TRUE(fs::is_symlink(folder() / "link"));
    struct stat info {};
    ASSERT_EQ(::stat((folder() / "a").c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, owner);
    box.reset();
    stop_engine();  // The next owner is another environment to it only by name.
  }
}

TEST_F(WorkspaceTest, CanBeWrittenToInAReadOnlySandbox) {
  make_folder(0);
  auto box = sandbox(spec(Preset::strict));
  EXPECT_EQ(sh(*box, "echo x > a && cat a; touch /usr/x 2>/dev/null || echo no").out, "x\nno\n");
  EXPECT_EQ(on_host(folder() / "a"), "aaa\n");
  Changes changes = must(box->changes());
  ASSERT_EQ(changes.entries.size(), 1U);
  EXPECT_EQ(changes.entries[0].path, "/workspace/a");
  EXPECT_EQ(text_before(*box, "/workspace/a"), "aaa\n");
}

TEST_F(WorkspaceTest, ShowsOneFileSystemReadOnlyBelow) {
  make_folder(0);
  auto box = sandbox(spec());
  // The layer itself is out of reach; what is seen is the overlay.
  EXPECT_THAT(sh(*box, "grep ' /workspace ' /proc/self/mountinfo").out, HasSubstr(" overlay "));
  EXPECT_EQ(sh(*box, "ls /workspace | tr '\\n' ' '").out, "a link sub ");
  EXPECT_EQ(sh(*box, "id -u; cat a", "root").out, "0\naaa\n");
}

TEST_F(WorkspaceTest, FoldersThatCannotBe) {
  SandboxSpec nowhere = spec_of(Preset::standard);
  nowhere.environment.workspace = (scratch() / "nowhere").native();
  auto missing = wait(engine()->create(nowhere));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::not_found);
  nowhere.environment.workspace = "/";
  auto root = wait(engine()->create(nowhere));
  ASSERT_FALSE(root);
  EXPECT_EQ(root.error().code, Errc::denied);
  nowhere.environment.workspace = "/tmp";
  nowhere.disk = PersistentDisk{"disk"};
  auto both = wait(engine()->create(nowhere));
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().code, Errc::invalid);
}

TEST_F(WorkspaceTest, FilesAsTheyWere) {
  make_folder(0);
  auto box = sandbox(spec());
  std::string hosts = must(box->read_file("/etc/hosts"));
  EXPECT_TRUE(sh(*box,
                 "cd /workspace; echo changed > a; rm -r sub; mkdir sub; echo other > sub/b; "
                 "echo 1 > /etc/hosts; rm /usr/bin/env; ln -sfn /etc/passwd /etc/shells",
                 "root")
                  .status.ok());
  EXPECT_EQ(text_before(*box, "/workspace/a"), "aaa\n");
  EXPECT_EQ(text_before(*box, "/workspace/sub/b"), "bb\n");
  EXPECT_EQ(text_before(*box, "/workspace//sub/b/"), "bb\n");
  EXPECT_EQ(text_before(*box, "/etc/hosts"), hosts.substr(0, 64));
  EXPECT_EQ(text_before(*box, "/usr/bin/env").substr(0, 4), "\177ELF");
  EXPECT_EQ(error_before(*box, "/workspace/new"), Errc::not_found);
  EXPECT_EQ(error_before(*box, "/workspace/a/b"), Errc::not_found);
  EXPECT_EQ(error_before(*box, "/workspace/link"), Errc::conflict);
  EXPECT_EQ(error_before(*box, "/workspace/sub"), Errc::conflict);
  EXPECT_EQ(error_before(*box, "/workspace/../workspace/a"), Errc::invalid);
  EXPECT_EQ(error_before(*box, "/workspace"), Errc::invalid);
  EXPECT_EQ(error_before(*box, "/proc/version"), Errc::not_found);
  EXPECT_EQ(error_before(*box, "/tmp/x"), Errc::not_found);
}

// Whatever a program does to names meanwhile, nothing but the layers is read.
TEST_F(WorkspaceTest, NoLinkOfTheFolderLeadsOut) {
  make_folder(0);
  fs::create_symlink("/etc", folder() / "way");
  auto box = sandbox(spec());
  EXPECT_EQ(error_before(*box, "/workspace/way/passwd"), Errc::not_found);
  std::string inside = sh(*box, "cat way/passwd").out;
  EXPECT_THAT(inside, HasSubstr("user:x:1000"));
  EXPECT_NE(inside, on_host("/etc/passwd")) << "the link leads to the sandbox's own";
}

}  // namespace
}  // namespace asr::test
