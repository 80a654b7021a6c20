// File operations: what they do, how they refuse, and that nothing inside leads them astray or
// holds them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <set>

#include "base/unique_fd.hpp"
#include "kernel_test.hpp"

namespace asr::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class Files : public KernelTest {
 protected:
  std::vector<std::string> names_in(Sandbox& box, const std::string& path) {
    std::vector<std::string> names;
    for (FileInfo& info : must(box.list(path)).entries) names.push_back(info.name);
    return names;
  }
};

// ---- reading and writing
// -------------------------------------------------------------------------

TEST_F(Files, WhatIsWrittenIsRead) {
  auto box = sandbox();
  std::string data = noise(3'000'001);
  must(box->write_file("/workspace/a/b/c.bin", data));
  EXPECT_TRUE(must(box->read_file("/workspace/a/b/c.bin")) == data);
  EXPECT_EQ(sh(*box, "stat -c '%s %a %u %g' a/b/c.bin; stat -c '%a %u' a/b").out,
            "3000001 644 1000 1000\n755 1000\n");
  must(box->write_file("/workspace/a/b/c.bin", "short"));
  EXPECT_EQ(must(box->read_file("/workspace/a/b/c.bin")), "short");
  must(box->write_file("/workspace/empty", ""));
  EXPECT_EQ(must(box->read_file("/workspace/empty")), "");
}

TEST_F(Files, TheSandboxPaysForWhatIsWritten) {
  auto box = sandbox();
  constexpr std::uint64_t kSize = 16 << 20;
  std::uint64_t before = must(box->usage()).memory_bytes;
  must(box->write_file("/workspace/big", std::string(kSize, 'x')));
  // A worker of before may have been counted then.
  EXPECT_GE(must(box->usage()).memory_bytes, before + kSize / 16 * 15);
}

TEST_F(Files, HaveTheModeAskedFor) {
  auto box = sandbox();
  for (unsigned mode : {0600U, 0644U, 0755U, 0666U, 0400U}) {
    std::string path = "/workspace/mode-" + std::to_string(mode);
    must(box->write_file(path, "x", mode));
    EXPECT_EQ(must(box->stat(path)).mode, mode);
  }
  must(box->write_file("/workspace/mode-" + std::to_string(0644U), "x", 0700));
  EXPECT_EQ(must(box->stat("/workspace/mode-" + std::to_string(0644U))).mode, 0700U);
}

TEST_F(Files, BelongToTheUserWhoWrites) {
  auto box = sandbox();
  must(box->write_file("/opt/of-root", "x", 0600, "root"));
  FileInfo info = must(box->stat("/opt/of-root"));
  EXPECT_EQ(info.uid, 0U);
  EXPECT_TRUE(failed_with(wait(box->read_file("/opt/of-root")), Errc::denied));
  EXPECT_TRUE(failed_with(wait(box->write_file("/opt/not-mine", "x")), Errc::denied));
  UniqueFd fd = must(box->open_read("/opt/of-root", "root"));
  EXPECT_EQ(read_fd(fd.get()), "x");
  EXPECT_TRUE(failed_with(wait(box->open_read("/opt/of-root", "nosuchuser")), Errc::invalid));
}

TEST_F(Files, AppendAndCreateNew) {
  auto box = sandbox();
  auto put = [&](WriteMode mode, std::string_view text) {
    auto file = must(box->open_write("/workspace/log", mode));
    UniqueFd pipe = file->take_pipe();
    EXPECT_EQ(::write(pipe.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    pipe.reset();
    must(file->finish());
  };
  put(WriteMode::create_new, "one ");
  put(WriteMode::append, "two ");
  sh(*box, "printf 'three ' >> log");
  put(WriteMode::append, "four");
  EXPECT_EQ(must(box->read_file("/workspace/log")), "one two three four");
  EXPECT_TRUE(
      failed_with(wait(box->open_write("/workspace/log", WriteMode::create_new)), Errc::conflict));
  EXPECT_EQ(must(box->read_file("/workspace/log")), "one two three four");
  put(WriteMode::create_or_replace, "new");
  EXPECT_EQ(must(box->read_file("/workspace/log")), "new");
}

TEST_F(Files, OverwritingKeepsPermissionsAndReplacesAttributes) {
  auto box = sandbox();
  auto put = [&](const FileAttributes& attributes) {
    auto file =
        must(box->open_write_with("/workspace/f", WriteMode::overwrite, 0644, "user", attributes));
    UniqueFd pipe = file->take_pipe();
    EXPECT_EQ(::write(pipe.get(), "x", 1), 1);
    pipe.reset();
    must(file->finish());
    return must(box->stat("/workspace/f"));
  };
  EXPECT_EQ(put({}).mode, 0644U);
  must(box->change_mode("/workspace/f", 0751));
  std::map<std::string, std::string> wanted{{"user.a.x", "1"},
                                            {"user.a.y", std::string(1000, 'v')}};
  FileInfo info = put({"user.a.", wanted});
  EXPECT_EQ(info.mode, 0751U);
  EXPECT_EQ(info.attributes, wanted);
  EXPECT_EQ(must(box->list("/workspace")).entries.at(0).attributes, wanted);
  EXPECT_EQ(put({}).attributes, wanted);
  wanted = {{"user.a.z", ""}};
  EXPECT_EQ(put({"user.a.", wanted}).attributes, wanted);
  EXPECT_TRUE(put({"user.a.", {}}).attributes.empty());
  // Only those that users may set anyway.
  FileAttributes foreign{"user.a.", {{"trusted.overlay.opaque", "y"}}};
  EXPECT_TRUE(failed_with(
      wait(box->open_write_with("/workspace/f", WriteMode::overwrite, 0644, "root", foreign)),
      Errc::invalid));
}

TEST_F(Files, RootGivesFilesAway) {
  auto box = sandbox();
  must(box->make_directory("/0", 0755, "root"));
  EXPECT_EQ(must(box->stat("/0")).uid, 0U);
  EXPECT_TRUE(failed_with(wait(box->change_owner("/0", "user", "user")), Errc::denied));
  must(box->change_owner("/0", "user", "root"));
  EXPECT_EQ(must(box->stat("/0")).uid, 1000U);
  EXPECT_TRUE(failed_with(wait(box->change_owner("/0", "nobody-here", "root")), Errc::invalid));
  EXPECT_TRUE(failed_with(wait(box->change_owner("/no/such", "user", "root")), Errc::not_found));
  // Not what a link leads to.
  sh(*box, "ln -s /etc/passwd /workspace/link");
  must(box->change_owner("/workspace/link", "root", "root"));
  must(box->change_owner("/workspace/link", "user", "root"));
  EXPECT_EQ(must(box->stat("/etc/passwd")).uid, 0U);
}

TEST_F(Files, ReadHasALimit) {
  auto box = sandbox();
  must(box->write_file("/workspace/big", std::string(5000, 'x')));
  EXPECT_TRUE(failed_with(wait(box->read_file("/workspace/big", 4999)), Errc::exhausted));
  EXPECT_EQ(must(box->read_file("/workspace/big", 5000)).size(), 5000U);
}

TEST_F(Files, PathsMustBeAbsoluteAndSane) {
  auto box = sandbox();
  for (const std::string& path : {std::string(), std::string("relative"), std::string("../x"),
                                  std::string("/a\0b", 4), "/" + std::string(5000, 'x')}) {
    EXPECT_TRUE(failed_with(wait(box->read_file(path)), Errc::invalid)) << path.substr(0, 20);
    EXPECT_TRUE(failed_with(wait(box->write_file(path, "x")), Errc::invalid)) << path.substr(0, 20);
    EXPECT_TRUE(failed_with(wait(box->stat(path)), Errc::invalid)) << path.substr(0, 20);
    EXPECT_TRUE(failed_with(wait(box->list(path)), Errc::invalid)) << path.substr(0, 20);
    EXPECT_TRUE(failed_with(wait(box->remove(path)), Errc::invalid)) << path.substr(0, 20);
    EXPECT_TRUE(failed_with(wait(box->move(path, "/workspace/x")), Errc::invalid))
        << path.substr(0, 20);
    EXPECT_TRUE(failed_with(wait(box->copy("/workspace", path)), Errc::invalid))
        << path.substr(0, 20);
  }
  EXPECT_TRUE(
      failed_with(wait(box->read_file("/workspace/" + std::string(300, 'n'))), Errc::invalid));
}

TEST_F(Files, WhatIsMissingIsNotFound) {
  auto box = sandbox();
  EXPECT_TRUE(failed_with(wait(box->read_file("/workspace/none")), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(box->stat("/workspace/none")), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(box->list("/workspace/none")), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(box->remove("/workspace/none")), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(box->move("/workspace/none", "/workspace/x")), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(box->copy("/workspace/none", "/workspace/x")), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(box->change_mode("/workspace/none", 0600)), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(box->watch("/workspace/none")), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(box->archive_out("/workspace/none")), Errc::not_found));
  must(box->write_file("/workspace/file", ""));
  EXPECT_TRUE(failed_with(wait(box->list("/workspace/file")), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(box->write_file("/workspace/file/below", "x")), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(box->read_file("/workspace")), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box->write_file("/workspace", "x")), Errc::conflict));
}

// ---- stat and list
// -------------------------------------------------------------------------------

TEST_F(Files, StatTellsWhatIsThere) {
  auto box = sandbox();
  must(box->write_file("/workspace/f", "12345", 0640));
  must(box->symlink("f", "/workspace/l"));
  sh(*box, "mkfifo p; touch -d @1000000000 f");
  FileInfo file = must(box->stat("/workspace/f"));
  EXPECT_EQ(file.name, "f");
  EXPECT_EQ(file.type, FileType::file);
  EXPECT_EQ(file.size, 5U);
  EXPECT_EQ(file.mode, 0640U);
  EXPECT_EQ(file.uid, 1000U);
  EXPECT_EQ(std::chrono::system_clock::to_time_t(file.modified), 1'000'000'000);
  FileInfo link = must(box->stat("/workspace/l"));
  EXPECT_EQ(link.type, FileType::symlink);
  EXPECT_EQ(link.target, "f");
  EXPECT_EQ(must(box->stat("/workspace/p")).type, FileType::other);
  EXPECT_EQ(must(box->stat("/workspace")).type, FileType::directory);
  EXPECT_EQ(must(box->stat("/workspace/")).type, FileType::directory);
  EXPECT_EQ(must(box->stat("/")).type, FileType::directory);
  EXPECT_EQ(must(box->stat("/")).name, "/");
}

TEST_F(Files, FiveThousandEntriesInPages) {
  auto box = sandbox_with_tool();
  must(box->make_directory("/workspace/many"));
  ASSERT_TRUE(must(box->run(tool({"touch", "/workspace/many", "5000"}))).status.ok());
  for (std::uint32_t most : {1000U, 17U, 1'000'000U}) {
    std::set<std::string> names;
    std::uint64_t cursor = 0;
    std::size_t pages = 0;
    do {
      DirectoryPage page = must(box->list("/workspace/many", cursor, most));
      EXPECT_LE(page.entries.size(), most);
      for (const FileInfo& info : page.entries)
        EXPECT_TRUE(names.insert(info.name).second) << info.name << " twice";
      cursor = page.next;
    } while (cursor != 0 && ++pages < 6000);
    EXPECT_EQ(names.size(), 5000U) << "by " << most;
  }
}

TEST_F(Files, ForeignCursorsAreHarmless) {
  auto box = sandbox();
  for (std::uint64_t cursor : {~0ULL, 1ULL << 63, 77ULL}) {
    auto page = wait(box->list("/workspace", cursor));
    if (!page) EXPECT_TRUE(failed_with(page, Errc::invalid));
  }
  must(box->ping());
}

TEST_F(Files, OddNamesArePassedAsBytes) {
  auto box = sandbox();
  std::vector<std::string> odd{"new\nline",  "\x1b[31mred", "\xff\xfe\x80",        " ",  "-rf", "*",
                               "\"quoted\"", "tab\there",   std::string(255, 'x'), "..."};
  for (const std::string& name : odd) must(box->write_file("/workspace/odd/" + name, name));
  EXPECT_THAT(names_in(*box, "/workspace/odd"), testing::UnorderedElementsAreArray(odd));
  for (const std::string& name : odd) {
    EXPECT_EQ(must(box->read_file("/workspace/odd/" + name)), name);
    EXPECT_EQ(must(box->stat("/workspace/odd/" + name)).name, name);
    must(box->move("/workspace/odd/" + name, "/workspace/odd2/" + name));
    must(box->remove("/workspace/odd2/" + name));
  }
  EXPECT_THAT(names_in(*box, "/workspace/odd"), testing::IsEmpty());
}

// ---- making, moving, copying, removing
// -----------------------------------------------------------

TEST_F(Files, DirectoriesAreMadeWithTheirParents) {
  auto box = sandbox();
  must(box->make_directory("/workspace/a/b/c", 0700));
  EXPECT_EQ(must(box->stat("/workspace/a/b/c")).mode, 0700U);
  must(box->make_directory("/workspace/a/b/c"));
  must(box->write_file("/workspace/file", ""));
  EXPECT_TRUE(failed_with(wait(box->make_directory("/workspace/file")), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box->make_directory("/usr/new")), Errc::denied));
}

TEST_F(Files, MoveReplacesAndMakesParents) {
  auto box = sandbox();
  must(box->write_file("/workspace/a", "a"));
  must(box->write_file("/workspace/b", "b"));
  must(box->move("/workspace/a", "/workspace/b"));
  EXPECT_EQ(must(box->read_file("/workspace/b")), "a");
  EXPECT_TRUE(failed_with(wait(box->stat("/workspace/a")), Errc::not_found));
  must(box->move("/workspace/b", "/workspace/deep/er/b"));
  EXPECT_EQ(must(box->read_file("/workspace/deep/er/b")), "a");
  must(box->make_directory("/workspace/full/x"));
  EXPECT_TRUE(failed_with(wait(box->move("/workspace/deep", "/workspace/full")), Errc::conflict));
  EXPECT_TRUE(
      failed_with(wait(box->move("/workspace/deep", "/workspace/deep/er/inside")), Errc::invalid));
}

TEST_F(Files, MoveBetweenFileSystems) {
  auto box = sandbox(spec_of(Preset::strict));
  sh(*box,
     "mkdir -p /tmp/tree/sub; echo data > /tmp/tree/sub/f; chmod 600 /tmp/tree/sub/f; ln -s sub/f "
     "/tmp/tree/l; "
     "chmod 750 /tmp/tree/sub");
  must(box->move("/tmp/tree", "/workspace/tree"));
  EXPECT_EQ(sh(*box, "cat tree/l; stat -c %a tree/sub tree/sub/f; readlink tree/l; ls /tmp").out,
            "data\n750\n600\nsub/f\n");
}

TEST_F(Files, CopiesOfTreesAreComplete) {
  auto box = sandbox();
  sh(*box,
     "mkdir -p t/empty t/d; echo one > t/one; echo two > t/d/two; chmod 751 t/d; chmod 711 t/one; "
     "ln -s /nowhere t/broken; ln -s ../one t/d/up; mkfifo t/fifo; chmod 555 t/empty");
  must(box->copy("/workspace/t", "/workspace/new/copy"));
  EXPECT_EQ(
      sh(*box, "cd new/copy; cat one d/two; readlink broken d/up; stat -c %a d empty one; ls").out,
      "one\ntwo\n/nowhere\n../one\n751\n555\n711\nbroken\nd\nempty\none\n");
  EXPECT_EQ(sh(*box, "cat t/one").out, "one\n");
  EXPECT_TRUE(failed_with(wait(box->copy("/workspace/t", "/workspace/t/d/x")), Errc::invalid));
  must(box->copy("/workspace/t/one", "/workspace/single"));
  EXPECT_EQ(must(box->read_file("/workspace/single")), "one\n");
}

// A copy into itself through another name of the same folder must end, too.
TEST_F(Files, CopyIntoItselfThroughALinkEnds) {
  auto box = sandbox();
  sh(*box, "mkdir -p t/d; echo x > t/f; ln -s /workspace/t alias");
  auto copied = begin(box->copy("/workspace/t", "/workspace/alias/d/again"));
  ASSERT_EQ(copied.wait_for(20s), std::future_status::ready);
  (void)copied.get();
  EXPECT_EQ(sh(*box, "echo alive").out, "alive\n");
}

TEST_F(Files, CopyOfASparseFileDoesNotFillTheDisk) {
  auto box = sandbox();
  ASSERT_TRUE(sh(*box, "truncate -s 200M sparse; echo end >> sparse").status.ok());
  must(box->copy("/workspace/sparse", "/workspace/copy"));
  EXPECT_LT(must(box->usage()).disk_bytes, 64ULL << 20);
}

TEST_F(Files, RemoveTakesTreesButNotWhatLinksLeadTo) {
  auto box = sandbox();
  sh(*box,
     "mkdir -p keep t/d; echo x > keep/f; ln -s /workspace/keep t/d/out; ln -s / t/root; touch "
     "t/f; mkfifo t/p");
  must(box->remove("/workspace/t"));
  EXPECT_EQ(sh(*box, "ls; cat keep/f").out, "keep\nx\n");
  must(box->symlink("/workspace/keep", "/workspace/link"));
  must(box->remove("/workspace/link"));
  EXPECT_EQ(sh(*box, "cat keep/f").out, "x\n");
  EXPECT_TRUE(failed_with(wait(box->remove("/")), Errc::invalid));
  EXPECT_FALSE(wait(box->remove("/usr")));
  EXPECT_FALSE(wait(box->remove("/proc")));
  EXPECT_EQ(sh(*box, "echo alive").out, "alive\n");
}

// Removing them copies them up: they must be the same folders all the while.
TEST_F(Files, TreesOfTheEnvironmentAreRemoved) {
  options().storage_dir = scratch() / "storage";
  SandboxSpec spec = spec_of(Preset::standard);
  write_host_file(scratch() / "root/a/b/c/d/file", "x");
  write_host_file(scratch() / "root/a/b/file", "x");
  write_host_file(scratch() / "root/a/e/f/file", "x");
  std::filesystem::create_directories(scratch() / "root/bin");
  spec.environment = {Environment::Kind::folder, (scratch() / "root").native()};
  for (bool disk : {false, true}) {
    if (disk && ::access("/dev/loop-control", R_OK | W_OK) != 0) continue;
    if (disk) spec.disk = PersistentDisk{"d"};
    auto box = sandbox(spec);
    must(box->remove("/a/b/c", "root"));
    must(box->remove("/a", "root"));
    EXPECT_TRUE(failed_with(wait(box->stat("/a")), Errc::not_found));
  }
}

TEST_F(Files, FiveThousandLevelsAreRemoved) {
  auto box = sandbox_with_tool();
  ASSERT_TRUE(must(box->run(tool({"deep", "/workspace", "5000"}))).status.ok());
  auto started = Clock::now();
  must(box->remove("/workspace/d"));
  EXPECT_LT(since(started), 30s);
  EXPECT_THAT(names_in(*box, "/workspace"), Not(Contains("d")));
}

// What is refused here is refused in words, not by a crash.
TEST_F(Files, FiveThousandLevelsAreNotCopied) {
  auto box = sandbox_with_tool();
  ASSERT_TRUE(must(box->run(tool({"deep", "/workspace", "5000"}))).status.ok());
  EXPECT_TRUE(failed_with(wait(box->copy("/workspace/d", "/workspace/e")), Errc::exhausted));
  must(box->remove("/workspace/e"));
  must(box->remove("/workspace/d"));
}

TEST_F(Files, ChangeModeFollowsTheRights) {
  auto box = sandbox();
  must(box->write_file("/workspace/f", "x"));
  must(box->change_mode("/workspace/f", 0711));
  EXPECT_EQ(must(box->stat("/workspace/f")).mode, 0711U);
  must(box->change_mode("/workspace", 0750));
  EXPECT_EQ(must(box->stat("/workspace")).mode, 0750U);
  EXPECT_TRUE(failed_with(wait(box->change_mode("/etc/passwd", 0777)), Errc::denied));
}

// Its owner may change the mode of a file nobody may read, and of one that no open() gives back.
TEST_F(Files, ModeOfAnUnreadableFileCanBeChanged) {
  auto box = sandbox();
  must(box->write_file("/workspace/secret", "x", 0));
  EXPECT_TRUE(succeeded(wait(box->change_mode("/workspace/secret", 0600))));
  EXPECT_EQ(must(box->stat("/workspace/secret")).mode, 0600U);
  sh(*box, "mkfifo pipe");
  EXPECT_TRUE(succeeded(wait(box->change_mode("/workspace/pipe", 0600))));
}

// ---- links and special files
// ---------------------------------------------------------------------

TEST_F(Files, LinksLeadToTheSandboxsOwnFiles) {
  auto box = sandbox();
  must(box->symlink("/etc/passwd", "/workspace/passwd"));
  EXPECT_THAT(must(box->read_file("/workspace/passwd")), HasSubstr("user:x:1000"));
  EXPECT_TRUE(must(box->read_file("/workspace/passwd")) != read_host_file("/etc/passwd"));
  must(box->symlink("../../../../../../../etc/hostname", "/workspace/up"));
  EXPECT_EQ(must(box->read_file("/workspace/up")), "sandbox\n");
  EXPECT_EQ(must(box->read_file("/../../../etc/hostname")), "sandbox\n");
}

TEST_F(Files, LinksToSecretsLeadNowhere) {
  auto box = sandbox();
  ASSERT_NE(read_host_file("/etc/shadow"), "") << "the host has one, or this proves nothing";
  must(box->symlink("/etc/shadow", "/workspace/shadow"));
  auto shadow = wait(box->read_file("/workspace/shadow"));
  EXPECT_TRUE(failed_with(shadow, Errc::not_found));
  for (const char* target :
       {"/proc/1/root/etc/shadow", "/proc/self/root/etc/shadow", "/proc/self/cwd/../etc/shadow"}) {
    (void)wait(box->remove("/workspace/out"));
    must(box->symlink(target, "/workspace/out"));
    EXPECT_FALSE(wait(box->read_file("/workspace/out"))) << target;
    EXPECT_FALSE(wait(box->write_file("/workspace/out", "x"))) << target;
    EXPECT_FALSE(wait(box->list("/workspace/out"))) << target;
  }
  EXPECT_FALSE(wait(box->list("/proc/1/root")));
  EXPECT_FALSE(wait(box->list("/proc/self/root")));
  EXPECT_FALSE(wait(box->open_read("/proc/self/exe")));
}

TEST_F(Files, LoopsOfLinksAreInvalid) {
  auto box = sandbox();
  must(box->symlink("b", "/workspace/a"));
  must(box->symlink("a", "/workspace/b"));
  EXPECT_TRUE(failed_with(wait(box->read_file("/workspace/a")), Errc::invalid));
  EXPECT_TRUE(failed_with(wait(box->write_file("/workspace/a", "x")), Errc::invalid));
  EXPECT_EQ(must(box->stat("/workspace/a")).target, "b");
  must(box->remove("/workspace/a"));
}

TEST_F(Files, WhatIsNoFileIsDeniedAtOnce) {
  auto box = sandbox_with_tool();
  sh(*box, "mkfifo fifo");
  auto listening = start(*box, tool({"socket", "/workspace/socket"}));
  read_until(*listening, "bound");
  must(box->symlink("fifo", "/workspace/to-fifo"));
  for (const char* path : {"/workspace/fifo", "/workspace/to-fifo", "/workspace/socket", "/dev/tty",
                           "/dev/null", "/dev/zero", "/dev/ptmx", "/proc/self/mem",
                           "/proc/self/maps", "/proc/sys/kernel/hostname", "/dev/stdin"}) {
    auto started = Clock::now();
    auto reading = wait(box->open_read(path));
    EXPECT_TRUE(!reading) << path;
    if (!reading)
      EXPECT_NE(reading.error().fault(), Fault::platform) << path << ": " << reading.error().what;
    auto writing = wait(box->open_write(path, WriteMode::create_or_replace));
    EXPECT_TRUE(!writing) << path;
    if (!writing)
      EXPECT_NE(writing.error().fault(), Fault::platform) << path << ": " << writing.error().what;
    EXPECT_LT(since(started), 1s) << path;
  }
  EXPECT_EQ(must(box->stat("/workspace/fifo")).type, FileType::other);
}

TEST_F(Files, FifoWithAReaderIsRefusedToo) {
  auto box = sandbox();
  sh(*box, "mkfifo fifo; (cat fifo > got; echo over >> got) >/dev/null 2>&1 &");
  EXPECT_TRUE(
      failed_with(wait(box->open_write("/workspace/fifo", WriteMode::append)), Errc::denied));
  EXPECT_TRUE(failed_with(wait(box->open_read("/workspace/fifo")), Errc::denied));
}

TEST_F(Files, TerabyteOfNothingIsRefusedInside) {
  auto box = sandbox();
  RunResult result = sh(*box, "truncate -s 1T huge");
  EXPECT_FALSE(result.status.ok());
  EXPECT_EQ(must(box->stat("/workspace/huge")).size, 0U);
  EXPECT_EQ(sh(*box, "echo alive").out, "alive\n");
}

// ---- the disk
// ------------------------------------------------------------------------------------

TEST_F(Files, FullDiskIsExhausted) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.limits.disk_bytes = 8 << 20;
  auto box = sandbox(spec);
  EXPECT_TRUE(failed_with(wait(box->write_file("/workspace/big", std::string(9 << 20, 'x'))),
                          Errc::exhausted));
  must(box->remove("/workspace/big"));
  must(box->write_file("/workspace/small", "fits"));
  must(box->write_file("/workspace/half", std::string(5 << 20, 'x')));
  EXPECT_TRUE(failed_with(wait(box->copy("/workspace/half", "/workspace/other")), Errc::exhausted));
}

// ---- a read-only root
// ----------------------------------------------------------------------------

TEST_F(Files, ReadOnlyRootHasFourPlacesToWrite) {
  auto box = sandbox(spec_of(Preset::strict));
  for (const char* place : {"/tmp", "/workspace", "/home/user", "/dev/shm"}) {
    EXPECT_TRUE(succeeded(wait(box->write_file(std::string(place) + "/sub/file", "x")))) << place;
    EXPECT_TRUE(sh(*box, "echo x > " + std::string(place) + "/from-inside").status.ok()) << place;
  }
  for (const char* place : {"/", "/etc", "/usr", "/usr/bin", "/var", "/var/tmp", "/root", "/opt",
                            "/home", "/run", "/dev"}) {
    EXPECT_TRUE(failed_with(wait(box->write_file(std::string(place) + "/new", "x")), Errc::denied))
        << place;
    EXPECT_FALSE(sh(*box, "echo x > " + std::string(place) + "/new", "root").status.ok()) << place;
    EXPECT_FALSE(wait(box->make_directory(std::string(place) + "/folder"))) << place;
  }
  for (const char* file : {"/etc/passwd", "/usr/bin/env"}) {
    EXPECT_FALSE(sh(*box, "echo x >> " + std::string(file), "root").status.ok()) << file;
    EXPECT_FALSE(sh(*box, "rm -f " + std::string(file), "root").status.ok()) << file;
  }
}

TEST_F(Files, WritableRootIsTheSandboxsOwn) {
  auto box = sandbox();
  auto other = sandbox();
  EXPECT_TRUE(sh(*box,
                 "echo mine > /etc/mine; echo x > /usr/bin/new; echo x > /var/tmp/y; rm /etc/hosts",
                 "root")
                  .status.ok());
  EXPECT_EQ(must(box->read_file("/etc/mine")), "mine\n");
  EXPECT_TRUE(failed_with(wait(other->stat("/etc/mine")), Errc::not_found));
  EXPECT_TRUE(succeeded(wait(other->stat("/etc/hosts"))));
  EXPECT_FALSE(std::filesystem::exists("/usr/bin/new"));
  EXPECT_FALSE(std::filesystem::exists("/etc/mine"));
}

// ---- watching
// ------------------------------------------------------------------------------------

class Watching : public Files {
 protected:
  // All events until one for `path` of `kind` came.
  bool sees(Watch& watch, WatchEvent::Kind kind, const std::string& path,
            std::chrono::milliseconds within = 5s) {
    auto deadline = Clock::now() + within;
    while (Clock::now() < deadline) {
      for (const WatchEvent& event : seen_)
        if (event.kind == kind && event.path == path) return true;
      if (!pending_.valid()) pending_ = begin(watch.next());
      if (pending_.wait_until(deadline) != std::future_status::ready) return false;
      auto events = pending_.get();
      if (!events) return false;
      seen_.insert(seen_.end(), events->begin(), events->end());
    }
    return false;
  }
  void TearDown() override {
    // A wait that never ended must be over before its watch goes.
    EXPECT_FALSE(pending_.valid()) << "an event was waited for and did not come";
  }

  std::vector<WatchEvent> seen_;
  std::future<Result<std::vector<WatchEvent>>> pending_;
};

TEST_F(Watching, TellsEachKindOfChange) {
  auto box = sandbox();
  must(box->write_file("/workspace/old", "x"));
  auto watch = must(box->watch("/workspace"));
  sh(*box, "echo a > new; echo b >> old; chmod 600 old; mv new moved; rm old; mkdir dir");
  using Kind = WatchEvent::Kind;
  EXPECT_TRUE(sees(*watch, Kind::created, "dir"));
  EXPECT_TRUE(sees(*watch, Kind::created, "new"));
  EXPECT_TRUE(sees(*watch, Kind::modified, "old"));
  EXPECT_TRUE(sees(*watch, Kind::attributes, "old"));
  EXPECT_TRUE(sees(*watch, Kind::moved_from, "new"));
  EXPECT_TRUE(sees(*watch, Kind::moved_to, "moved"));
  EXPECT_TRUE(sees(*watch, Kind::removed, "old"));
  bool directory = false;
  for (const WatchEvent& event : seen_)
    if (event.path == "dir") directory = event.directory;
  EXPECT_TRUE(directory);
}

TEST_F(Watching, ReachesNewSubdirectories) {
  auto box = sandbox();
  must(box->make_directory("/workspace/was/there"));
  auto watch = must(box->watch("/workspace"));
  sh(*box, "touch was/there/f; mkdir -p a/b/c && touch a/b/c/file");
  EXPECT_TRUE(sees(*watch, WatchEvent::Kind::created, "was/there/f"));
  EXPECT_TRUE(sees(*watch, WatchEvent::Kind::created, "a/b/c/file"));
  sh(*box, "echo more >> a/b/c/file");
  EXPECT_TRUE(sees(*watch, WatchEvent::Kind::modified, "a/b/c/file"));
}

// A directory that is moved keeps its place under the new name.
TEST_F(Watching, FollowsRenamedDirectories) {
  auto box = sandbox();
  must(box->make_directory("/workspace/old"));
  auto watch = must(box->watch("/workspace"));
  sh(*box, "mv old new; sleep 0.2; touch new/file");
  EXPECT_TRUE(sees(*watch, WatchEvent::Kind::created, "new/file"));
}

// More changes than anybody reads: the listener is told that it missed some, and the sandbox lives.
TEST_F(Watching, FloodOfEventsCostsNobodyTheSandbox) {
  auto box = sandbox_with_tool();
  must(box->make_directory("/workspace/many"));
  auto watch = must(box->watch("/workspace/many"));
  RunResult touched = must(box->run(tool({"touch", "/workspace/many", "30000"})));
  ASSERT_TRUE(touched.status.ok()) << to_string(touched.status.reason) << " " << touched.out;
  ASSERT_TRUE(eventually([&] { return box->state() == SandboxState::ready; }));
  ASSERT_TRUE(succeeded(wait(box->ping()))) << "watching without reading ended the sandbox";
  std::size_t count = 0;
  bool overflow = false;
  auto deadline = Clock::now() + 20s;
  while (!overflow && count < 30000 && Clock::now() < deadline) {
    for (const WatchEvent& event : must(watch->next())) {
      overflow = overflow || event.kind == WatchEvent::Kind::overflow;
      if (event.kind == WatchEvent::Kind::created) ++count;
    }
  }
  EXPECT_TRUE(overflow || count == 30000) << count << " events and no word of an overflow";
}

TEST_F(Watching, DroppingAWatchEndsItsWorker) {
  auto box = sandbox();
  std::uint32_t before = must(box->usage()).pids;
  for (int i = 0; i < 20; ++i) {
    auto watch = must(box->watch("/workspace"));
    if (i == 0) EXPECT_GT(must(box->usage()).pids, before);
  }
  EXPECT_TRUE(eventually([&] { return must(box->usage()).pids <= before; }))
      << must(box->usage()).pids;
}

TEST_F(Watching, OfAFileIsRefused) {
  auto box = sandbox();
  must(box->write_file("/workspace/f", ""));
  EXPECT_TRUE(failed_with(wait(box->watch("/workspace/f")), Errc::not_found));
}

}  // namespace
}  // namespace asr::test
