// What a sandbox says it has changed: everything, and nothing else.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "kernel_test.hpp"

namespace asr::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// "+ file 0>3 644 /workspace/a", and what a link leads to.
std::string line_of(const FileChange& change) {
  constexpr std::array kKinds{"+", "*", "-"};
  constexpr std::array kTypes{"file", "folder", "link", "other"};
  char text[64];
  std::snprintf(text, sizeof text, "%s %s %llu>%llu %o ",
                kKinds[static_cast<std::size_t>(change.kind)],
                kTypes[static_cast<std::size_t>(change.type)],
                static_cast<unsigned long long>(change.size_before),
                static_cast<unsigned long long>(change.size), change.mode);
  std::string line = text + change.path;
  if (!change.target.empty()) line += " -> " + change.target;
  return line;
}

class ChangesTest : public KernelTest {
 protected:
  std::vector<std::string> told(Sandbox& box) {
    Changes changes = must(box.changes());
    EXPECT_TRUE(changes.complete);
    EXPECT_TRUE(
        std::is_sorted(changes.entries.begin(), changes.entries.end(),
                       [](const FileChange& a, const FileChange& b) { return a.path < b.path; }));
    std::vector<std::string> lines;
    for (const FileChange& change : changes.entries) lines.push_back(line_of(change));
    return lines;
  }
  std::uint64_t stamp(Sandbox& box, const std::string& path) {
    for (const FileChange& change : must(box.changes()).entries)
      if (change.path == path) return change.stamp;
    ADD_FAILURE() << path << " has not changed";
    return 0;
  }
  void root_sh(Sandbox& box, const std::string& script) {
    RunResult result = sh(box, "set -e; umask 022; " + script, "root");
    EXPECT_TRUE(result.status.ok()) << script << ": " << result.err;
  }
  // A root file system with little in it and a layer of the engine's above.
  SandboxSpec folder_spec() {
    std::filesystem::path root = scratch() / "image";
    for (const char* dir : {"bin", "etc", "opt/app/sub", "opt/empty", "srv"})
      std::filesystem::create_directories(root / dir);
    write_host_file(root / "bin/tool", tool_image(), 0755);
    write_host_file(root / "opt/app/a", "aaa");
    write_host_file(root / "opt/app/sub/b", "bb");
    write_host_file(root / "opt/app/c", "c");
    write_host_file(root / "etc/passwd", "root:x:0:0::/:/bin/sh\n");
    write_host_file(root / "etc/app.conf", "conf");
    SandboxSpec spec = spec_of(Preset::standard);
    spec.environment.kind = Environment::Kind::folder;
    spec.environment.path = root.native();
    return spec;
  }
};

TEST_F(ChangesTest, NewSandboxHasNone) {
  for (Preset preset : {Preset::standard, Preset::strict}) {
    auto box = sandbox(spec_of(preset));
    EXPECT_THAT(told(*box), IsEmpty()) << to_string(preset);
  }
}

TEST_F(ChangesTest, LookingAroundChangesNothing) {
  auto box = sandbox();
  sh(*box, "ls -lR /usr/bin /etc > /dev/null; cat /etc/passwd > /dev/null; /usr/bin/true", "root");
  EXPECT_THAT(told(*box), IsEmpty());
}

TEST_F(ChangesTest, EveryKindThatCanBeAdded) {
  auto box = sandbox();
  sh(*box,
     "umask 022; printf abc > file; printf x > exe; chmod 755 exe; mkdir -p d/e; ln -s file link; "
     "mkfifo fifo; ln file second; : > empty");
  EXPECT_THAT(
      told(*box),
      ElementsAre("+ folder 0>0 755 /workspace/d", "+ folder 0>0 755 /workspace/d/e",
                  "+ file 0>0 644 /workspace/empty", "+ file 0>1 755 /workspace/exe",
                  "+ other 0>0 644 /workspace/fifo", "+ file 0>3 644 /workspace/file",
                  "+ link 0>4 777 /workspace/link -> file", "+ file 0>3 644 /workspace/second"));
}

TEST_F(ChangesTest, WhatIsAddedAndRemovedAgainIsNone) {
  auto box = sandbox();
  root_sh(*box,
          "mkdir -p /workspace/d/e /opt/x; echo x > /workspace/d/e/f; echo x > /etc/new; echo x > "
          "/usr/new; rm -r /workspace/d /opt/x /etc/new /usr/new");
  EXPECT_THAT(told(*box), IsEmpty());
}

TEST_F(ChangesTest, FilesOfTheEnvironmentInEveryLayer) {
  auto box = sandbox();
  std::uint64_t hosts = must(box->stat("/etc/hosts")).size;
  std::uint64_t env = must(box->stat("/usr/bin/env")).size;
  std::uint64_t passwd = must(box->stat("/etc/passwd")).size;
  root_sh(*box,
          "printf 12345 > /etc/hosts; rm /etc/hostname; chmod 600 /etc/passwd; chmod 700 "
          "/usr/bin/env; rm /usr/bin/true; printf x > /usr/bin/new; rm -r /usr/share/doc; "
          "chmod 700 /var/log");
  EXPECT_THAT(
      told(*box),
      ElementsAre(
          "- file 8>0 0 /etc/hostname", "* file " + std::to_string(hosts) + ">5 644 /etc/hosts",
          "* file " + std::to_string(passwd) + ">" + std::to_string(passwd) + " 600 /etc/passwd",
          "* file " + std::to_string(env) + ">" + std::to_string(env) + " 700 /usr/bin/env",
          "+ file 0>1 644 /usr/bin/new",
          "- file " + std::to_string(std::filesystem::file_size("/usr/bin/true")) +
              ">0 0 /usr/bin/true",
          "- folder 0>0 0 /usr/share/doc", "* folder 0>0 700 /var/log"));
}

TEST_F(ChangesTest, FileForFolderAndFolderForFile) {
  auto box = sandbox(folder_spec());
  must(box->remove("/opt/app", "root"));
  must(box->write_file("/opt/app", "now a file", 0644, "root"));
  must(box->remove("/etc/app.conf", "root"));
  must(box->make_directory("/etc/app.conf", 0755, "root"));
  must(box->write_file("/etc/app.conf/part", "p", 0644, "root"));
  EXPECT_THAT(told(*box),
              ElementsAre("* folder 4>0 755 /etc/app.conf", "+ file 0>1 644 /etc/app.conf/part",
                          "* file 0>10 644 /opt/app"));
}

TEST_F(ChangesTest, ReplacedFolderIsComparedPieceByPiece) {
  auto box = sandbox(folder_spec());
  must(box->remove("/opt/app", "root"));
  EXPECT_THAT(told(*box), ElementsAre("- folder 0>0 0 /opt/app"));
  must(box->make_directory("/opt/app", 0755, "root"));
  EXPECT_THAT(told(*box), ElementsAre("- file 3>0 0 /opt/app/a", "- file 1>0 0 /opt/app/c",
                                      "- folder 0>0 0 /opt/app/sub"));
  must(box->write_file("/opt/app/a", "12345", 0644, "root"));
  must(box->write_file("/opt/app/new", "n", 0644, "root"));
  must(box->make_directory("/opt/app/sub", 0700, "root"));
  EXPECT_THAT(told(*box),
              ElementsAre("* file 3>5 644 /opt/app/a", "- file 1>0 0 /opt/app/c",
                          "+ file 0>1 644 /opt/app/new", "* folder 0>0 700 /opt/app/sub",
                          "- file 2>0 0 /opt/app/sub/b"));
}

// The engine's own layer lies above the image's: what it hides was not there before.
TEST_F(ChangesTest, TheTopmostLayerIsWhatWasThere) {
  auto box = sandbox(folder_spec());
  std::uint64_t passwd = must(box->stat("/etc/passwd")).size;
  ASSERT_GT(passwd, 23U) << "the engine's layer does not hide the image's file";
  must(box->remove("/etc/passwd", "root"));
  must(box->remove("/etc/app.conf", "root"));
  must(box->write_file("/etc/hosts", "x", 0644, "root"));
  EXPECT_THAT(told(*box),
              testing::Contains("- file " + std::to_string(passwd) + ">0 0 /etc/passwd"));
  EXPECT_THAT(told(*box), testing::Contains("- file 4>0 0 /etc/app.conf"));
  EXPECT_EQ(told(*box).size(), 3U);
}

TEST_F(ChangesTest, CopiesThatNobodyChangedAreNone) {
  auto box = sandbox();
  // Opened for writing, which makes a copy; a mode set and set back, which does, too.
  root_sh(*box,
          "exec 3>> /etc/hosts; chmod 600 /etc/passwd; chmod 644 /etc/passwd; : >> /etc/profile");
  EXPECT_THAT(told(*box), IsEmpty());
}

// A time set back hides nothing.
TEST_F(ChangesTest, SameSizeAndTimeWithOtherContentsIsAChange) {
  auto box = sandbox();
  root_sh(*box,
          "touch -r /etc/hostname /tmp/t; printf 'SANDBOX\\n' > /etc/hostname; touch -r /tmp/t "
          "/etc/hostname; rm /tmp/t");
  EXPECT_THAT(told(*box), ElementsAre("* file 8>8 644 /etc/hostname"));
}

TEST_F(ChangesTest, FoldersOfTheLaunchCountOnceTheyChange) {
  auto box = sandbox();
  root_sh(*box,
          "rmdir /workspace; chmod 755 /root; chown 5:5 /home; rmdir /home/user; echo f > "
          "/home/user; chmod 711 /; chmod 700 /usr");
  EXPECT_THAT(told(*box), ElementsAre("* folder 0>0 711 /", "* folder 0>0 755 /home",
                                      "* file 0>2 644 /home/user", "* folder 0>0 755 /root",
                                      "* folder 0>0 700 /usr", "- folder 0>0 0 /workspace"));
}

TEST_F(ChangesTest, FoldersOfTheLaunchThatTheEnvironmentLacks) {
  auto box = sandbox(folder_spec());
  EXPECT_THAT(told(*box), IsEmpty());
  must(box->remove("/workspace", "root"));
  must(box->remove("/home", "root"));
  EXPECT_THAT(told(*box), ElementsAre("- folder 0>0 0 /home", "- folder 0>0 0 /workspace"));
  must(box->make_directory("/home/user", 0755, "root"));
  EXPECT_THAT(told(*box), ElementsAre("* folder 0>0 755 /home/user", "- folder 0>0 0 /workspace"));
}

TEST_F(ChangesTest, NamesAreBytes) {
  auto box = sandbox();
  ASSERT_TRUE(sh(*box,
                 "python3 - <<'E'\nimport os\nfor n in (b'new\\nline', b'\\xff\\xfe', b' ', "
                 "b'-', 'ü'.encode(), b'x' * 255):\n    open(b'/workspace/' + n, 'w').close()\nE")
                  .status.ok());
  std::set<std::string> paths;
  for (const FileChange& change : must(box->changes()).entries) paths.insert(change.path);
  EXPECT_EQ(paths, (std::set<std::string>{"/workspace/new\nline", "/workspace/\xff\xfe",
                                          "/workspace/ ", "/workspace/-", "/workspace/ü",
                                          "/workspace/" + std::string(255, 'x')}));
}

TEST_F(ChangesTest, StampChangesWithTheFileAndOnlyThen) {
  auto box = sandbox();
  sh(*box, "echo 1 > f; mkdir d; echo 2 > d/g; ln -s a link");
  std::map<std::string, std::uint64_t> before;
  for (const char* path : {"/workspace/f", "/workspace/d", "/workspace/d/g", "/workspace/link"})
    before[path] = stamp(*box, path);
  EXPECT_EQ(stamp(*box, "/workspace/f"), before["/workspace/f"]);
  sh(*box, "echo 3 > d/g; cat f > /dev/null; echo new > d/h");
  EXPECT_NE(stamp(*box, "/workspace/d/g"), before["/workspace/d/g"]);
  EXPECT_EQ(stamp(*box, "/workspace/f"), before["/workspace/f"]);
  EXPECT_EQ(stamp(*box, "/workspace/d"), before["/workspace/d"]) << "its contents are not itself";
  sh(*box, "chmod 600 f; chmod 700 d; rm link; ln -s a link");
  EXPECT_NE(stamp(*box, "/workspace/f"), before["/workspace/f"]);
  EXPECT_NE(stamp(*box, "/workspace/d"), before["/workspace/d"]);
  EXPECT_NE(stamp(*box, "/workspace/link"), before["/workspace/link"]);
}

TEST_F(ChangesTest, ReadOnlySandboxHasThreeFolders) {
  auto box = sandbox(spec_of(Preset::strict));
  sh(*box,
     "umask 022; echo a > /workspace/a; echo b > /home/user/b; echo c > /tmp/c; echo d > "
     "/etc/d; echo e > /dev/shm/e; chmod 700 /home/user");
  EXPECT_THAT(told(*box), ElementsAre("* folder 0>0 700 /home/user", "+ file 0>2 644 /home/user/b",
                                      "+ file 0>2 644 /tmp/c", "+ file 0>2 644 /workspace/a"));
}

// There an attribute with the kernel's name is a program's own, and hides nothing.
TEST_F(ChangesTest, MarksOfTheProgramsOwnAreNoMarks) {
  for (Preset preset : {Preset::standard, Preset::strict}) {
    auto box = sandbox(spec_of(preset));
    ASSERT_TRUE(sh(*box,
                   "python3 - <<'E'\nimport os\nos.mkdir('d')\nopen('d/f', 'w').close()\n"
                   "for name in ('opaque', 'whiteout', 'redirect', 'origin'):\n"
                   "    for path in ('d', 'd/f'):\n"
                   "        try: os.setxattr(path, 'user.overlay.' + name, b'y')\n"
                   "        except OSError as e: print(e)\nE")
                    .status.ok());
    EXPECT_THAT(told(*box),
                ElementsAre("+ folder 0>0 755 /workspace/d", "+ file 0>0 644 /workspace/d/f"))
        << to_string(preset);
  }
}

TEST_F(ChangesTest, BrowserTierTellsAsWell) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.tier = SyscallTier::browser;
  auto box = sandbox(spec);
  root_sh(*box, "echo a > /workspace/a; rm /etc/hostname; rm /usr/bin/true");
  EXPECT_THAT(told(*box),
              ElementsAre("- file 8>0 0 /etc/hostname",
                          "- file " + std::to_string(std::filesystem::file_size("/usr/bin/true")) +
                              ">0 0 /usr/bin/true",
                          "+ file 0>2 644 /workspace/a"));
}

TEST_F(ChangesTest, HundredThousandAreTold) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.limits.inodes = 400'000;
  spec.limits.memory_bytes = 2ULL << 30;
  auto box = sandbox(spec);
  ASSERT_TRUE(sh(*box,
                 "python3 -c \"\nimport os\nfor d in range(100):\n    os.mkdir(str(d))\n"
                 "    for f in range(1000): open(f'{d}/{f}', 'w').close()\"")
                  .status.ok());
  Changes changes = must(box->changes());
  EXPECT_TRUE(changes.complete);
  EXPECT_EQ(changes.entries.size(), 100'100U);
}

// More than is told is said to be more; a tree without a floor ends, too.
TEST_F(ChangesTest, WhatIsTooMuchIsIncomplete) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.limits.inodes = 400'000;
  spec.limits.memory_bytes = 2ULL << 30;
  auto box = sandbox_with_tool(spec);
  ASSERT_TRUE(must(box->run(tool({"deep", "/workspace", "3000"}))).status.ok());
  Changes deep = must(box->changes());
  EXPECT_FALSE(deep.complete);
  EXPECT_GT(deep.entries.size(), 400U);
  ASSERT_TRUE(sh(*box,
                 "python3 -c \"\nimport os\nos.mkdir('/tmp/m')\n"
                 "for f in range(210000): os.symlink('x', f'/tmp/m/{f}')\"")
                  .status.ok());
  Changes many = must(box->changes());
  EXPECT_FALSE(many.complete);
  EXPECT_LE(many.entries.size(), 200'000U);
  must(box->ping());
}

// Whatever a program does to the tree meanwhile.
TEST_F(ChangesTest, TreeThatMovesMeanwhile) {
  auto box = sandbox();
  auto mover = start(*box, shell("mkdir -p a/b/c; while :; do mv a x; mkdir -p x/n; touch x/b/f; "
                                 "rm -rf x/n; ln -s / x/b/l; mv x a; rm a/b/l a/b/f; done"));
  for (int i = 0; i < 200; ++i) {
    Changes changes = must(box->changes());
    for (const FileChange& change : changes.entries)
      EXPECT_TRUE(change.path.starts_with("/workspace/")) << change.path;
  }
  must(mover->signal(9));
}

}  // namespace
}  // namespace asr::test
