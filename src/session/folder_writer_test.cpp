#include "session/folder_writer.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/scope_exit.hpp"
#include "session/folder_fixture.hpp"
#include "session/folder_paths.hpp"

namespace asr {
namespace {

using testing::HasSubstr;

TEST_F(FolderWriterTest, FilesFoldersAndLinks) {
  write(in() / "old", "before");
  auto target = writer();
  auto done = make(target, {{folder("d", 0750), ""},
                            {file("d/new", "new", 0640), "new"},
                            {link("l", "d/new"), ""},
                            {file("made/up/f", "deep"), "deep"},
                            {file("old", "after", 06755), "after"}});
  ASSERT_TRUE(done) << done.error().what;
  EXPECT_EQ(all(), (std::map<std::string, std::string>{{"d", "/"},
                                                       {"d/new", "new"},
                                                       {"l", "-> d/new"},
                                                       {"made", "/"},
                                                       {"made/up", "/"},
                                                       {"made/up/f", "deep"},
                                                       {"old", "after"}}));
  EXPECT_EQ((*done)[1].deed, Deed::created);
  EXPECT_EQ((*done)[4].deed, Deed::replaced);
  struct stat info {};
  ASSERT_EQ(::stat((in() / "old").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755U) << "no set-id bits come out of a sandbox";
  ASSERT_EQ(::stat((in() / "d").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0750U);
}

TEST_F(FolderWriterTest, AFolderThatNobodyMayWriteToIsFilledFirst) {
  auto target = writer();
  auto done = make(target, {{folder("d", 0555), ""}, {file("d/f", "x"), "x"}});
  ASSERT_TRUE(done) << done.error().what;
  EXPECT_EQ(read(in() / "d/f"), "x");
  fs::permissions(in() / "d", fs::perms::owner_all);
}

TEST_F(FolderWriterTest, RemovesOnlyIfItMay) {
  write(in() / "d/f", "x");
  write(in() / "g", "y");
  auto careful = writer();
  EXPECT_EQ(careful.check(file("d", "")).error().code, Errc::conflict);
  EXPECT_EQ(careful.check(folder("g")).error().code, Errc::conflict);
  auto target = writer({.remove = true, .unchanged_since = {}});
  auto done = make(target, {{file("d", "now a file"), "now a file"},
                            {folder("g"), ""},
                            {file("g/h", "z"), "z"},
                            {removal("gone"), ""}});
  ASSERT_TRUE(done) << done.error().what;
  EXPECT_EQ(all(),
            (std::map<std::string, std::string>{{"d", "now a file"}, {"g", "/"}, {"g/h", "z"}}));
  auto last = writer({.remove = true, .unchanged_since = {}});
  ASSERT_TRUE(make(last, {{removal("g"), ""}, {removal("d"), ""}}));
  EXPECT_TRUE(all().empty());
}

TEST_F(FolderWriterTest, NoNameLeadsOut) {
  for (const char* path : {"", ".", "..", "../out/secret", "a/../../out/secret", "/etc/passwd",
                           "a//b", "a/", "a/./b", "a/.."}) {
    auto target = writer();
    auto checked = target.check(file(path, "x"));
    ASSERT_FALSE(checked) << path;
    EXPECT_EQ(checked.error().code, Errc::invalid) << path;
  }
  auto target = writer();
  EXPECT_FALSE(target.check(file(std::string("a\0b", 3), "x")));
  EXPECT_FALSE(target.check(file(std::string(300, 'a'), "x")));
}

TEST_F(FolderWriterTest, NothingIsWrittenThroughALink) {
  fs::create_symlink("../out", in() / "way");
  fs::create_symlink("../out/secret", in() / "file");
  fs::create_hard_link(base_ / "out/secret", in() / "same");
  auto refused = writer();
  EXPECT_EQ(refused.check(file("way/secret", "x")).error().code, Errc::conflict);
  EXPECT_EQ(refused.check(removal("way/secret")).error().code, Errc::conflict);
  // A link that is itself replaced is no way anywhere; nor is another name of the same file.
  auto target = writer();
  ASSERT_TRUE(make(target, {{file("file", "mine"), "mine"}, {file("same", "mine"), "mine"}}));
  EXPECT_EQ(read(base_ / "out/secret"), "canary");
  EXPECT_EQ(read(in() / "file"), "mine");
  EXPECT_FALSE(fs::is_symlink(in() / "file"));
}

// Somebody turns a folder into a link after it was looked at.
TEST_F(FolderWriterTest, ALinkThatComesBetweenIsNotFollowed) {
  write(in() / "d/f", "before");
  write(in() / "a", "before");
  auto target = writer();
  for (const FolderStep& step : {file("a", "after"), file("d/secret", "after")}) {
    ASSERT_TRUE(target.check(step));
    UniqueFd contents = file_with("after");
    ASSERT_TRUE(target.prepare(step, contents.get()));
  }
  fs::rename(in() / "d", in() / "e");
  fs::create_symlink("../out", in() / "d");
  EXPECT_FALSE(target.commit());
  EXPECT_EQ(read(base_ / "out/secret"), "canary");
  EXPECT_EQ(read(in() / "a"), "before") << "what was done before is taken back";
}

TEST_F(FolderWriterTest, LinksThatLeadOutAreRefused) {
  for (const char* bad : {"/etc/passwd", "../out/secret", "..", "d/../../out", "d/..", ""}) {
    auto target = writer();
    EXPECT_FALSE(target.check(link("l", bad))) << bad;
  }
  auto target = writer();
  EXPECT_TRUE(target.check(link("l", "d/f")));
  EXPECT_TRUE(target.check(link("a/b/l", "../../f")));
  EXPECT_FALSE(target.check(link("a/b/l", "../../../f")));
  EXPECT_TRUE(stays_inside("l", "./missing"));
}

TEST_F(FolderWriterTest, LinksToALinkThatLeadsOutAreRefused) {
  fs::create_symlink("../out", in() / "way");
  fs::create_symlink(base_ / "out/secret", in() / "file");
  fs::create_directory(in() / "d");
  for (const FolderStep& step :
       {link("l", "way"), link("l", "way/secret"), link("l", "way/missing"),
        link("d/l", "../way/secret"), link("new/l", "../file")}) {
    auto checked = writer().check(step);
    ASSERT_FALSE(checked) << step.target;
    EXPECT_EQ(checked.error().code, Errc::denied);
  }
  fs::create_symlink("d/f", in() / "inside");
  EXPECT_TRUE(writer().check(link("l", "inside")));
  EXPECT_TRUE(writer().check(link("file", "d")));
  EXPECT_TRUE(writer().check(link("l", "l")));
}

TEST_F(FolderWriterTest, AFailureLeavesEverythingAsItWas) {
  write(in() / "a", "before");
  write(in() / "gone", "still here");
  write(in() / "x/y", "in the way");
  auto before = all();
  auto target = writer({.remove = true, .unchanged_since = {}});
  std::vector<FolderStep> steps{folder("d"),          file("d/f", "new"), file("a", "after"),
                                removal("gone"),      file("n/m", "new"), file("x/z/last", "new"),
                                file("x/z2", "after")};
  for (const FolderStep& step : steps) {
    ASSERT_TRUE(target.check(step)) << step.path;
    UniqueFd contents = file_with(step.size == 3 ? "new" : "after");
    ASSERT_TRUE(target.prepare(step, contents.get()));
  }
  write(in() / "x/z", "a file where a folder was to be");
  before["x/z"] = "a file where a folder was to be";
  EXPECT_FALSE(target.commit());
  auto after = all();
  std::erase_if(after, [](const auto& entry) { return entry.first.starts_with(".agent-sandbox"); });
  EXPECT_EQ(after, before);
}

TEST_F(FolderWriterTest, WhatIsNotCommittedLeavesNothing) {
  {
    auto target = writer();
    UniqueFd contents = file_with("x");
    ASSERT_TRUE(target.prepare(file("f", "x"), contents.get()));
    EXPECT_EQ(all().size(), 2U) << "a folder beside, and a file in it";
  }
  EXPECT_TRUE(all().empty());
}

TEST_F(FolderWriterTest, AFileThatGrowsMeanwhileIsAConflict) {
  for (std::string_view text : {"longer than said", "x"}) {
    auto target = writer();
    UniqueFd contents = file_with(text);
    auto ready = target.prepare(file("f", "four"), contents.get());
    ASSERT_FALSE(ready);
    EXPECT_EQ(ready.error().code, Errc::conflict);
  }
  EXPECT_TRUE(all().empty());
}

TEST_F(FolderWriterTest, WhatChangedMeanwhileHasTheLastWord) {
  write(in() / "f", "edited");
  auto begun = std::chrono::system_clock::now() - std::chrono::seconds(1);
  auto target = writer({.remove = true, .unchanged_since = begun});
  auto checked = target.check(file("f", "x"));
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().what, HasSubstr("meanwhile"));
  auto later = writer({.remove = true, .unchanged_since = begun + std::chrono::seconds(10)});
  EXPECT_TRUE(later.check(file("f", "x")));
}

TEST_F(FolderWriterTest, EverythingBelongsToTheFoldersOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root writes for others";
  ASSERT_EQ(::chown(in().c_str(), 12345, 23456), 0);
  write(in() / "roots", "before");
  {
    auto target = writer();
    ASSERT_TRUE(make(target, {{folder("d"), ""},
                              {file("d/f", "x"), "x"},
                              {link("l", "d"), ""},
                              {file("roots", "after"), "after"}}));
  }
  for (const char* name : {"d", "d/f", "l", "roots"}) {
    struct stat info {};
    ASSERT_EQ(::lstat((in() / name).c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, 12345U) << name;
    EXPECT_EQ(info.st_gid, 23456U) << name;
  }
  // What the owner may not do is not done for them.
  ASSERT_EQ(::mkdir((in() / "closed").c_str(), 0755), 0);
  auto target = writer();
  auto done = make(target, {{file("closed/f", "x"), "x"}});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::denied);
  EXPECT_EQ(::geteuid(), 0U);
  EXPECT_NO_THROW(write(in() / "closed/ours", "root again"));
  EXPECT_EQ(read(in() / "closed/ours"), "root again");
}

TEST_F(FolderWriterTest, WhatLiesInARefusedFolderIsRefused) {
  write(in() / "g", "a file");
  auto target = writer();
  EXPECT_FALSE(target.check(folder("g")));
  EXPECT_FALSE(target.check(file("g/h", "x")));
}

TEST_F(FolderWriterTest, NothingIsRemovedThatMayNotBe) {
  write(in() / "f", "x");
  auto target = writer();
  EXPECT_EQ(target.check(removal("f")).error().code, Errc::conflict);
}

TEST_F(FolderWriterTest, TheFoldersOwnSpecialBitsStay) {
  fs::create_directory(in() / "shared");
  ASSERT_EQ(::chmod((in() / "shared").c_str(), 03775), 0);
  auto target = writer();
  ASSERT_TRUE(make(target, {{folder("shared", 06755), ""}, {folder("shared/new", 06755), ""}}));
  struct stat info {};
  ASSERT_EQ(::stat((in() / "shared").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 03755U);
}

// ---- somebody else works in the folder, too

class FolderWriterBesideOthersTest : public FolderWriterTest {
 protected:
  // Checked and made ready, but not in place yet.
  static void get_ready(FolderWriter& writer, const std::vector<Step>& steps) {
    for (const Step& each : steps) {
      auto checked = writer.check(each.step);
      ASSERT_TRUE(checked) << checked.error().what;
    }
    for (const Step& each : steps) {
      UniqueFd contents = file_with(each.text);
      ASSERT_TRUE(writer.prepare(each.step, contents.get()));
    }
  }
  // Times of files are as coarse as the kernel's clock.
  static std::chrono::system_clock::time_point a_moment_later() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    auto now = std::chrono::system_clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return now;
  }
  // Without what is left of a failure.
  std::map<std::string, std::string> rest() const {
    auto found = all();
    std::erase_if(found, [](const auto& entry) { return entry.first.starts_with(".agent-"); });
    return found;
  }
};

TEST_F(FolderWriterBesideOthersTest, WhatChangedInAFolderHasTheLastWord) {
  write(in() / "d/e/f", "before");
  FolderRules rules{.remove = true, .unchanged_since = a_moment_later()};
  EXPECT_TRUE(writer(rules).check(removal("d")));
  write(in() / "d/e/f", "edited");  // In place: no folder tells of it.
  for (const FolderStep& step : {removal("d"), file("d", "x"), link("d", "e"), removal("d/e")}) {
    auto checked = writer(rules).check(step);
    ASSERT_FALSE(checked) << step.path;
    EXPECT_EQ(checked.error().code, Errc::conflict);
    EXPECT_THAT(checked.error().what, HasSubstr("d/e/f was changed there meanwhile"));
  }
  EXPECT_TRUE(writer(rules).check(folder("d"))) << "it stays";
}

TEST_F(FolderWriterBesideOthersTest, WhatChangesAfterItWasLookedAtHasTheLastWord) {
  const FolderRules kRemove{.remove = true, .unchanged_since = a_moment_later()};
  struct Case {
    FolderStep step;
    std::function<void()> change;
  };
  const std::vector<Case> cases{
      {file("f", "new"), [&] { write(in() / "f", "edited"); }},
      {removal("f"), [&] { write(in() / "f", "edited"); }},
      {removal("d"), [&] { write(in() / "d/e/f", "edited"); }},
      {removal("d"), [&] { write(in() / "d/more", "another"); }},
      {file("d", "new"), [&] { write(in() / "d/e/f", "edited"); }},
      {file("not yet", "new"), [&] { write(in() / "not yet", "edited"); }},
      {folder("not yet"), [&] { write(in() / "not yet", "edited"); }},
      {file("f", "new"), [&] { fs::remove(in() / "f"), write(in() / "f/g", "a folder now"); }},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    fs::remove_all(in());
    write(in() / "a", "before");
    write(in() / "d/e/f", "before");
    write(in() / "f", "before");
    FolderRules rules = kRemove;
    rules.unchanged_since = a_moment_later();
    auto target = writer(rules);
    get_ready(target, {{file("a", "new"), "new"}, {cases[i].step, "new"}});
    cases[i].change();
    auto wanted = rest();
    auto done = target.commit();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Errc::conflict) << done.error().what;
    EXPECT_EQ(rest(), wanted);
  }
}

TEST_F(FolderWriterBesideOthersTest, AFolderThatComesBetweenIsNotRemoved) {
  write(in() / "f", "before");
  auto target = writer();  // It may not remove anything.
  get_ready(target, {{file("f", "new"), "new"}});
  fs::remove(in() / "f");
  write(in() / "f/precious", "x");
  EXPECT_FALSE(target.commit());
  EXPECT_EQ(read(in() / "f/precious"), "x");
}

TEST_F(FolderWriterBesideOthersTest, WhatSomebodyElseRemovedIsRemoved) {
  write(in() / "f", "before");
  auto target = writer({.remove = true, .unchanged_since = {}});
  get_ready(target, {{removal("f"), ""}});
  fs::remove(in() / "f");
  auto done = target.commit();
  ASSERT_TRUE(done) << done.error().what;
  EXPECT_EQ((*done)[0].deed, Deed::nothing);
}

TEST_F(FolderWriterBesideOthersTest, TwoNamesOfOneFileAreTwoFiles) {
  write(in() / "a", "before");
  fs::create_hard_link(in() / "a", in() / "b");
  FolderRules rules{.remove = true, .unchanged_since = a_moment_later()};
  auto target = writer(rules);
  auto done = make(target, {{file("a", "one"), "one"}, {file("b", "two"), "two"}});
  ASSERT_TRUE(done) << done.error().what;
  EXPECT_EQ(all(), (std::map<std::string, std::string>{{"a", "one"}, {"b", "two"}}));
}

// Whoever puts something into a new folder at once keeps it, and everything else is taken back.
TEST_F(FolderWriterBesideOthersTest, WhatTheyPutIntoANewFolderDoesNotStopTakingBack) {
  for (const FolderStep& first : {folder("new"), file("new/first", "new")}) {
    write(in() / "a", "before");
    std::vector<Step> steps{{file("a", "new"), "new"}, {first, "new"}};
    for (int i = 0; i < 300; ++i) steps.push_back({file("new/" + std::to_string(i), "new"), "new"});
    steps.push_back({file("z/last", "new"), "new"});
    auto target = writer();
    get_ready(target, steps);
    write(in() / "z", "a file where a folder was to be");
    std::atomic<bool> over = false;
    std::thread other([&] {
      while (!over && !fs::exists(in() / "new/theirs"))
        std::ofstream(in() / "new/theirs") << "theirs";
    });
    auto done = target.commit();
    over = true;
    other.join();
    ASSERT_FALSE(done);
    EXPECT_EQ(read(in() / "a"), "before");
    if (fs::exists(in() / "new")) {
      EXPECT_EQ(read(in() / "new/theirs"), "theirs");
      EXPECT_EQ(std::distance(fs::directory_iterator(in() / "new"), {}), 1);
    }
    fs::remove_all(in() / "new");
    fs::remove(in() / "z");
  }
}

TEST_F(FolderWriterBesideOthersTest, OnlyWhatWasMadeReadyIsCleanedUp) {
  {
    auto target = writer();
    get_ready(target, {{file("f", "new"), "new"}});
    fs::path staging = fs::directory_iterator(in())->path();
    fs::rename(staging, in() / "moved");
    write(staging / "precious", "x");
  }
  std::size_t found = 0;
  for (const auto& [name, text] : all()) found += name.ends_with("/precious") ? 1 : 0;
  EXPECT_EQ(found, 1U);
}

TEST_F(FolderWriterBesideOthersTest, TheFolderMayBeGone) {
  auto target = writer();
  ASSERT_TRUE(target.check(file("f", "new")));
  fs::remove_all(in());
  UniqueFd contents = file_with("new");
  auto ready = target.prepare(file("f", "new"), contents.get());
  ASSERT_FALSE(ready);
  EXPECT_EQ(ready.error().code, Errc::not_found);

  fs::create_directory(in());
  auto later = writer();
  get_ready(later, {{file("f", "new"), "new"}});
  fs::remove_all(in());
  EXPECT_FALSE(later.commit());
}

TEST_F(FolderWriterBesideOthersTest, FoldersThatCannotBeRemovedWholeAreRefused) {
  fs::path deep = in() / "deep";
  for (int i = 0; i < 300; ++i) deep /= "d";
  fs::create_directories(deep);
  FolderRules rules{.remove = true, .unchanged_since = {}};
  EXPECT_EQ(writer(rules).check(removal("deep")).error().code, Errc::conflict);
  if (::geteuid() != 0) return;
  // Not even its owner may look into it.
  write(in() / "d/closed/f", "x");
  for (const char* name : {"", "d", "d/closed"})
    ASSERT_EQ(::chown((in() / name).c_str(), 12345, 12345), 0);
  ASSERT_EQ(::chmod((in() / "d/closed").c_str(), 0), 0);
  EXPECT_EQ(writer(rules).check(removal("d")).error().code, Errc::denied);
}

TEST_F(FolderWriterBesideOthersTest, GroupsOfOursAreNotTheOwners) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root writes for others";
  gid_t group = 34567;
  ASSERT_EQ(::setgroups(1, &group), 0);
  ScopeExit restore([] {
    gid_t root = 0;
    ::setgroups(1, &root);
  });
  ASSERT_EQ(::chown(in().c_str(), 12345, 12345), 0);
  fs::create_directory(in() / "ours");
  ASSERT_EQ(::chown((in() / "ours").c_str(), 0, group), 0);
  ASSERT_EQ(::chmod((in() / "ours").c_str(), 0775), 0);
  auto target = writer();
  auto done = make(target, {{file("ours/f", "x"), "x"}});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::denied);
  gid_t now = 0;
  ASSERT_EQ(::getgroups(1, &now), 1);
  EXPECT_EQ(now, group);
}

// ---- other file systems in the folder

class FolderWriterAmongMountsTest : public FolderWriterBesideOthersTest {
 protected:
  void SetUp() override {
    // Whatever happens, nothing of it is left on this machine.
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      GTEST_SKIP() << "only root mounts";
  }
  ~FolderWriterAmongMountsTest() override {
    for (auto place = places_.rbegin(); place != places_.rend(); ++place)
      ::umount2(place->c_str(), MNT_DETACH);
  }

  void mount_on(const fs::path& place, const char* kind, const fs::path& source) {
    bool bind = std::string_view(kind) == "bind";
    const char* size = "size=256k";
    ASSERT_EQ(
        ::mount(source.c_str(), place.c_str(), kind, bind ? MS_BIND : 0, bind ? nullptr : size), 0);
    places_.push_back(place);
  }

  const FolderRules rules_{.remove = true, .unchanged_since = {}};
  std::vector<fs::path> places_;
};

TEST_F(FolderWriterAmongMountsTest, NoFolderGoesWithAMountInIt) {
  write(in() / "other/far/f", "x");
  write(in() / "bound/far/f", "x");
  write(in() / "file/f", "x");
  mount_on(in() / "other/far", "tmpfs", "tmpfs");
  write(in() / "other/far/precious", "x");
  mount_on(in() / "bound/far", "bind",
           base_ / "out");  // the same file system, but not of the folder
  mount_on(in() / "file/f", "bind", base_ / "out/secret");
  for (const char* path : {"other", "other/far", "bound", "bound/far", "file", "file/f"}) {
    SCOPED_TRACE(path);
    for (const FolderStep& step : {removal(path), file(path, "x")}) {
      auto checked = writer(rules_).check(step);
      ASSERT_FALSE(checked);
      EXPECT_EQ(checked.error().code, Errc::conflict);
      EXPECT_THAT(checked.error().what, HasSubstr("is another file system there"));
    }
  }
}

TEST_F(FolderWriterAmongMountsTest, AMountThatComesBetweenIsNotEmptied) {
  for (bool bound : {true, false}) {
    write(in() / "a", "before");
    write(in() / "d/e/f", "x");
    auto target = writer(rules_);
    get_ready(target, {{file("a", "new"), "new"}, {removal("d"), ""}});
    mount_on(in() / "d/e", bound ? "bind" : "tmpfs", base_ / "out");
    if (!bound) write(in() / "d/e/secret", "canary");
    auto done = target.commit();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Errc::conflict);
    EXPECT_EQ(read(in() / "d/e/secret"), "canary");
    EXPECT_EQ(read(in() / "a"), "before");
    ASSERT_EQ(::umount2((in() / "d/e").c_str(), MNT_DETACH), 0);
    EXPECT_EQ(read(in() / "d/e/f"), "x");
  }
}

TEST_F(FolderWriterAmongMountsTest, AFullDiskLeavesEverythingAsItWas) {
  mount_on(in(), "tmpfs", "tmpfs");
  write(in() / "a", "before");
  write(in() / "gone", "before");
  auto before = all();
  std::string large(200 << 10, 'x');
  auto target = writer(rules_);
  std::vector<Step> steps{{file("a", "new"), "new"},
                          {removal("gone"), ""},
                          {file("l", large), large},
                          {file("m", large), large}};
  auto done = make(target, steps);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::exhausted);
  EXPECT_EQ(rest(), before);
}

}  // namespace
}  // namespace asr
