// Files of one sandbox that another begins with: all of them, as they were, from honest streams and
// not a byte outside of the sandbox from others.
#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/unique_fd.hpp"
#include "kernel_test.hpp"
#include "tar_writer.hpp"

namespace asr::test {
namespace {

using testing::HasSubstr;

// Everything that can be known about files below some folders, a line each.
constexpr const char* kListing = R"(
import hashlib, os, stat, sys
def tell(path):
    s = os.lstat(path)
    kind = stat.S_IFMT(s.st_mode)
    line = [path, oct(s.st_mode), s.st_uid, s.st_gid, s.st_mtime_ns]
    if kind == stat.S_IFREG:
        line += [s.st_nlink, s.st_size, 'sparse' if s.st_blocks * 512 < s.st_size // 2 else 'dense']
        if s.st_size < 1 << 26:
            line.append(hashlib.sha1(open(path, 'rb').read()).hexdigest())
    if kind == stat.S_IFLNK:
        line.append(os.readlink(path))
    else:
        line.append(sorted((n, os.getxattr(path, n, follow_symlinks=False)) for n in
                    os.listxattr(path, follow_symlinks=False)))
    print(*map(repr, line))
    return kind == stat.S_IFDIR
def walk(path):
    if tell(path):
        for name in sorted(os.listdir(path)):
            walk(os.path.join(path, name))
for root in sys.argv[1:]:
    walk(os.fsencode(root))
)";

class SavingTest : public KernelTest {
 protected:
  std::string listing(Sandbox& box, std::vector<std::string> roots) {
    std::vector<std::string> argv{"/usr/bin/python3", "-B", "-c", kListing};
    argv.insert(argv.end(), roots.begin(), roots.end());
    RunResult result = run(box, std::move(argv), "root");
    EXPECT_TRUE(result.status.ok()) << result.err;
    EXPECT_FALSE(result.out.empty());
    return result.out;
  }
  // What changes() says, without stamps, which are of one sandbox only.
  std::vector<std::string> told(Sandbox& box) {
    std::vector<std::string> lines;
    Changes changes = must(box.changes());
    EXPECT_TRUE(changes.complete);
    for (const FileChange& change : changes.entries)
      lines.push_back(change.path + "|" + std::to_string(static_cast<int>(change.kind)) + "|" +
                      std::to_string(static_cast<int>(change.type)) + "|" +
                      std::to_string(change.size_before) + ">" + std::to_string(change.size) + "|" +
                      std::to_string(change.mode) + "|" + change.target);
    return lines;
  }
  void do_as(Sandbox& box, const std::string& user, const std::string& script) {
    RunResult result = sh(box, "set -e; umask 022; " + script, user);
    ASSERT_TRUE(result.status.ok()) << script << ": " << result.out << result.err;
  }
  std::string save(Sandbox& box) { return read_fd(must(box.save_files()).get()); }
  Result<Sandbox::ArchiveReport> restore(Sandbox& box, std::string_view bytes) {
    return wait(box.restore_files(in_memory(bytes)));
  }
  // The second is as the first by everything that can be asked.
  void expect_alike(Sandbox& from, Sandbox& to, const std::vector<std::string>& roots) {
    EXPECT_EQ(told(from), told(to));
    std::string before = listing(from, roots);
    std::string after = listing(to, roots);
    EXPECT_TRUE(before == after) << before << "\n---- became\n" << after;
  }
  void carry_over(Sandbox& from, Sandbox& to) {
    auto report = wait(to.restore_files(must(from.save_files())));
    ASSERT_TRUE(succeeded(report));
    EXPECT_EQ(report->skipped, 0U);
  }
};

const std::vector<std::string> kWritable{"/workspace", "/home", "/root", "/tmp",
                                         "/opt",       "/var",  "/srv"};

// ---- honest
// --------------------------------------------------------------------------------------

TEST_F(SavingTest, NothingIsCarriedOverAsNothing) {
  auto from = sandbox();
  auto to = sandbox();
  carry_over(*from, *to);
  EXPECT_TRUE(must(to->changes()).entries.empty());
  EXPECT_EQ(sh(*to, "echo alive > f; cat f").out, "alive\n");
}

TEST_F(SavingTest, EveryKindOfFileAsItWas) {
  auto from = sandbox();
  auto to = sandbox();
  must(from->write_file("/workspace/data", noise(3 << 20, 5)));
  do_as(*from, "user",
        "mkdir -p d/e/f; echo x > d/e/f/g; chmod 700 d/e; ln -s /nowhere broken; ln -s d/e/f/g "
        "link; mkfifo -m 640 fifo; ln data second; ln data d/third; : > empty; touch -d "
        "'2001-02-03 04:05:06.789012345' d empty; touch -h -d @1000000000.5 link; "
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"");
  do_as(
      *from, "root",
      "cd /workspace; echo s > suid; chown 7:8 suid; chmod 6755 suid; mkdir sticky; chmod 3777 "
      "sticky; chown 0:1000 sticky; mkdir locked; echo l > locked/in; chmod 000 locked/in locked; "
      "chown -h 5:6 broken; mkdir -p /opt/a/b; echo o > /opt/a/b/c; echo r > /root/.r; touch -d "
      "@12345.000000001 /opt /root");
  RunResult attributes = sh(*from,
                            "python3 - <<'E'\nimport os\n"
                            "os.setxattr('data', 'user.note', b'\\x00\\xffbinary')\n"
                            "os.setxattr('data', 'user.\\udcff-odd name', b'')\n"
                            "os.setxattr('d', 'user.big', b'v' * 3000)\nE");
  ASSERT_TRUE(attributes.status.ok()) << attributes.err;
  std::string socket = sh(*from, "rm sock && echo gone").out;
  EXPECT_EQ(socket, "gone\n");
  carry_over(*from, *to);
  expect_alike(*from, *to, kWritable);
}

TEST_F(SavingTest, SocketsAreLeftOut) {
  auto from = sandbox();
  auto to = sandbox();
  do_as(*from, "user",
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('s')\"; echo x > t");
  carry_over(*from, *to);
  EXPECT_EQ(sh(*to, "ls").out, "t\n");
}

TEST_F(SavingTest, NamesAreBytesAndPathsAreLong) {
  auto from = sandbox();
  auto to = sandbox();
  do_as(*from, "user",
        "python3 - <<'E'\nimport os\n"
        "for n in (b'new\\nline', b'\\xff\\xfe', b' ', b'-', 'ü'.encode(), b'x' * 255, b'.wh.x', "
        "b'a\\\\b', b'\\x01', b'%41'):\n"
        "    open(b'/workspace/' + n, 'wb').write(n)\n    os.mkdir(b'/workspace/d' + n[:254])\n"
        "    os.symlink(n, b'/workspace/l' + n[:254])\n"
        "for i in range(200):\n    os.mkdir('y' * 200); os.chdir('y' * 200)\n"
        "open('deep', 'w').write('down here')\nE");
  carry_over(*from, *to);
  constexpr const char* kDeep =
      "python3 -c \"import os\nfor i in range(200): os.chdir('y' * "
      "200)\nprint(open('deep').read())\"; "
      "ls -1 --quoting-style=c | grep -v yyyy; cat l*";
  EXPECT_EQ(sh(*to, kDeep).out, sh(*from, kDeep).out);
  EXPECT_THAT(sh(*to, kDeep).out, HasSubstr("down here"));
}

TEST_F(SavingTest, WhatIsGoneStaysGone) {
  auto from = sandbox();
  auto to = sandbox();
  do_as(
      *from, "root",
      "rm /etc/hostname /usr/bin/true; rm -r /usr/share/doc /var/log; rm -r /etc/alternatives; "
      "mkdir /etc/alternatives; echo new > /etc/alternatives/new; rm /etc/hosts; mkdir /etc/hosts; "
      "echo in > /etc/hosts/in; rm -r /etc/ssl; echo file > /etc/ssl; rm -r /home; chmod 711 "
      "/ /usr; rm -rf /root; mkdir -m 750 /root; echo x >> /etc/passwd");
  carry_over(*from, *to);
  expect_alike(*from, *to, {"/etc", "/var", "/root"});
  EXPECT_EQ(
      sh(*to, "ls -d /usr/share/doc /usr/bin/true /home 2>&1 | grep -c 'No such'", "root").out,
      "3\n");
}

// As the kernel sees it: a second saving of the second sandbox says the same again.
TEST_F(SavingTest, ChildOfAChildIsTheSame) {
  auto first = sandbox();
  do_as(*first, "root",
        "rm -r /etc/alternatives; mkdir /etc/alternatives; echo x > /etc/alternatives/y; rm "
        "/usr/bin/true; mkdir /opt/o; echo z > /opt/o/z; ln /opt/o/z /opt/o/zz; truncate -s 1M "
        "/opt/o/hole");
  auto second = sandbox();
  carry_over(*first, *second);
  auto third = sandbox();
  carry_over(*second, *third);
  expect_alike(*first, *third, {"/etc", "/opt"});
  EXPECT_EQ(save(*second).size(), save(*third).size());
}

TEST_F(SavingTest, HolesTakeNoRoom) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.limits.memory_bytes = 256ULL << 30;
  spec.limits.disk_bytes = 128ULL << 30;
  auto from = sandbox(spec);
  auto to = sandbox(spec);
  do_as(*from, "user",
        "truncate -s 100G all; truncate -s 10G some; printf begin | dd of=some conv=notrunc "
        "status=none; printf middle | dd of=some bs=1 seek=5000000001 conv=notrunc status=none; "
        "truncate -s 3M tail; printf end >> tail; head -c 100000 /dev/urandom > rest; truncate -s "
        "2M rest; truncate -s 10000 small");
  auto started = Clock::now();
  std::string saved = save(*from);
  EXPECT_LT(saved.size(), 1U << 20);
  ASSERT_TRUE(succeeded(restore(*to, saved)));
  EXPECT_LT(since(started), 10s);
  EXPECT_EQ(sh(*to, "stat -c '%s %n' all some tail rest small").out,
            "107374182400 all\n10737418240 some\n3145731 tail\n2097152 rest\n10000 small\n");
  EXPECT_EQ(sh(*to, "head -c 5 some; tail -c +5000000002 some | head -c 6; tail -c 3 tail").out,
            "beginmiddleend");
  EXPECT_EQ(sh(*to, "sha1sum rest small").out, sh(*from, "sha1sum rest small").out);
  EXPECT_LT(must(to->usage()).disk_bytes, 4U << 20);
}

TEST_F(SavingTest, TwentyThousandFiles) {
  auto from = sandbox();
  auto to = sandbox();
  do_as(*from, "user",
        "python3 -c \"\nimport os\nfor d in range(100):\n    os.mkdir(str(d))\n    for f in "
        "range(200): open(f'{d}/{f}', 'w').write(str(f))\"");
  carry_over(*from, *to);
  EXPECT_EQ(sh(*to, "find . -type f | wc -l; find . -type f | sort | xargs cat | sha1sum").out,
            sh(*from, "find . -type f | wc -l; find . -type f | sort | xargs cat | sha1sum").out);
  EXPECT_EQ(must(to->changes()).entries.size(), 20'100U);
}

TEST_F(SavingTest, ReadOnlySandboxes) {
  auto from = sandbox(spec_of(Preset::strict));
  auto to = sandbox(spec_of(Preset::strict));
  do_as(*from, "user",
        "echo a > /workspace/a; mkdir -p ~/.cache/x; echo b > ~/.cache/x/b; echo c > /tmp/c; chmod "
        "700 ~; ln /tmp/c /tmp/cc; python3 -c \"import os; os.setxattr('/tmp/c', "
        "'user.overlay.opaque', b'y')\"");
  do_as(*from, "root", "echo r > /tmp/r; chmod 4755 /tmp/r");
  carry_over(*from, *to);
  // Not /home, which each launch makes anew where the root cannot be written.
  expect_alike(*from, *to, {"/workspace", "/home/user", "/tmp"});
}

TEST_F(SavingTest, BrowserTier) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.tier = SyscallTier::browser;
  auto from = sandbox(spec);
  auto to = sandbox(spec);
  do_as(*from, "root", "rm /usr/bin/true /etc/hostname; echo a > /workspace/a; echo b > /usr/b");
  carry_over(*from, *to);
  expect_alike(*from, *to, {"/etc", "/workspace", "/usr/b"});
}

TEST_F(SavingTest, WithADiskAndAVolume) {
  if (::access("/dev/loop-control", R_OK | W_OK) != 0) GTEST_SKIP() << "needs loop devices";
  options().storage_dir = scratch() / "storage";
  SandboxSpec spec = spec_of(Preset::standard);
  spec.limits.disk_bytes = 64 << 20;
  must(engine()->make_volume("v", {}));
  spec.volumes.push_back({"v", "/workspace/sub/volume", false});
  spec.disk = PersistentDisk{"one"};
  auto from = sandbox(spec);
  EXPECT_TRUE(must(from->changes()).entries.empty());
  do_as(*from, "root",
        "echo a > /workspace/a; echo v > /workspace/sub/volume/v; echo h > /home/user/h; echo t > "
        "/tmp/t; rm /usr/bin/true /etc/hostname; truncate -s 20M /workspace/hole; chown 1000:1000 "
        "/home/user/h; python3 -c \"import os; os.setxattr('/workspace/a', 'user.x', b'1')\"");
  spec.disk = PersistentDisk{"two"};
  auto to = sandbox(spec);
  carry_over(*from, *to);
  EXPECT_EQ(told(*from), told(*to));
  EXPECT_EQ(sh(*to, "cat a ~/h /tmp/t; ls /workspace/sub/volume; stat -c %s hole").out,
            "a\nh\nt\nv\n20971520\n");
  // The files of a disk fit into memory, and the other way round.
  spec.disk.reset();
  auto memory = sandbox(spec);
  carry_over(*from, *memory);
  EXPECT_EQ(told(*from), told(*memory));
}

TEST_F(SavingTest, AttributesWithTheKernelsNamesAreThePrograms) {
  auto from = sandbox();
  auto to = sandbox();
  RunResult set = sh(*from,
                     "python3 - <<'E'\nimport os\nos.mkdir('d')\nopen('d/f', 'w').close()\n"
                     "for path in ('d', 'd/f'):\n    for name in ('opaque', 'whiteout', 'x'):\n"
                     "        os.setxattr(path, 'user.overlay.' + name, b'y')\nE");
  if (!set.status.ok()) GTEST_SKIP() << "this kernel lets nobody set them: " << set.err;
  carry_over(*from, *to);
  expect_alike(*from, *to, {"/workspace"});
}

TEST_F(SavingTest, AccessListsAreKept) {
  auto from = sandbox();
  auto to = sandbox();
  // user::rwx user:7:r-- group::r-x mask::r-x other::---, as the kernel takes them.
  RunResult set =
      sh(*from,
         "python3 - <<'E'\nimport os, struct\n"
         "acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in ("
         "(1, 7, 0xffffffff), (2, 4, 7), (4, 5, 0xffffffff), (16, 5, 0xffffffff), "
         "(32, 0, 0xffffffff)))\n"
         "os.mkdir('d')\nopen('f', 'w').close()\n"
         "os.setxattr('f', 'system.posix_acl_access', acl)\n"
         "os.setxattr('d', 'system.posix_acl_default', acl)\nopen('d/g', 'w').close()\nE");
  if (!set.status.ok()) GTEST_SKIP() << "no access lists here: " << set.err;
  carry_over(*from, *to);
  expect_alike(*from, *to, {"/workspace"});
}

// An ordinary user's engine: one id, and files that not even their owner may read.
TEST_F(SavingTest, OrdinaryUsersHaveOneId) {
  constexpr unsigned kSomebody = 54321;
  options().cache_dir = scratch() / "cache";
  int child = -1;
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(scratch().c_str(), kSomebody, kSomebody), 0);
    child = ::fork();
    if (child > 0) {
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
      return;
    }
    if (::setgroups(0, nullptr) != 0 || ::setresgid(kSomebody, kSomebody, kSomebody) != 0 ||
        ::setresuid(kSomebody, kSomebody, kSomebody) != 0)
      ::_exit(9);
    ::prctl(PR_SET_DUMPABLE, 1);  // As one who has logged in.
  }
  for (Preset preset : {Preset::standard, Preset::strict}) {
    auto from = sandbox(spec_of(preset));
    auto to = sandbox(spec_of(preset));
    EXPECT_TRUE(must(from->changes()).entries.empty());
    do_as(
        *from, "user",
        "mkdir -p d/e locked; echo x > d/e/f; ln -s f d/e/l; mkfifo p; echo s > s; chmod 4711 s; "
        "echo l > locked/l; chmod 000 locked/l locked; echo h > ~/h; echo t > /tmp/t; truncate -s "
        "9M hole");
    carry_over(*from, *to);
    EXPECT_EQ(told(*from), told(*to));
    EXPECT_EQ(told(*to).size(), 11U);
    EXPECT_EQ(sh(*to, "cat d/e/l ~/h /tmp/t; stat -c '%a %U' s locked").out,
              "x\nh\nt\n4711 user\n0 user\n");
    if (preset == Preset::strict) continue;
    do_as(*to, "user", "rm /etc/hostname; echo new > /etc/hosts; rm -r /var/log");
    auto last = sandbox(spec_of(preset));
    carry_over(*to, *last);
    EXPECT_EQ(told(*to), told(*last));
  }
  if (child == 0) {
    stop_engine();
    ::_exit(HasFailure() ? 1 : 0);
  }
}

// While programs go on writing, removing and moving: whatever was caught of it, it is a whole
// stream.
TEST_F(SavingTest, TreeThatMovesMeanwhile) {
  auto from = sandbox();
  do_as(*from, "user",
        "mkdir -p a/b; for i in $(seq 50); do head -c 9999 /dev/zero > a/b/$i; done");
  auto mover =
      start(*from, shell("while :; do for i in $(seq 50); do : > a/b/$i; rm a/b/$i; head -c "
                         "20000 /dev/zero > a/b/$i; mv a/b/$i a/$i; mv a/$i a/b/$i; done; mv "
                         "a/b a/c; ln -s / a/b; rm a/b; mv a/c a/b; done"));
  for (int i = 0; i < 20; ++i) {
    auto to = sandbox();
    auto report = wait(to->restore_files(must(from->save_files())));
    EXPECT_TRUE(succeeded(report));
    must(to->destroy());
  }
  must(mover->signal(9));
}

// ---- what cannot be
// ------------------------------------------------------------------------------

TEST_F(SavingTest, TreeThatIsTooDeepIsSaidSo) {
  auto from = sandbox_with_tool();
  auto to = sandbox();
  ASSERT_TRUE(must(from->run(tool({"deep", "/workspace", "3000"}))).status.ok());
  auto report = wait(to->restore_files(must(from->save_files())));
  ASSERT_TRUE(failed_with(report, Errc::exhausted));
  EXPECT_THAT(report.error().what, HasSubstr("nested"));
  must(to->ping());
}

TEST_F(SavingTest, SmallerSandboxIsExhausted) {
  SandboxSpec small = spec_of(Preset::standard);
  small.limits.disk_bytes = 16 << 20;
  auto from = sandbox();
  do_as(*from, "user", "head -c 20000000 /dev/urandom > big");
  auto to = sandbox(small);
  EXPECT_TRUE(failed_with(wait(to->restore_files(must(from->save_files()))), Errc::exhausted));
  EXPECT_EQ(sh(*to, "echo alive").out, "alive\n");
  small.limits.disk_bytes = 64 << 20;
  small.limits.inodes = 1000;
  auto few = sandbox(small);
  do_as(*from, "user", "rm big; mkdir many; for i in $(seq 2000); do : > many/$i; done");
  EXPECT_TRUE(failed_with(wait(few->restore_files(must(from->save_files()))), Errc::exhausted));
}

TEST_F(SavingTest, StreamThatEndsEarlyIsNoticedWhereverItEnds) {
  auto from = sandbox();
  do_as(*from, "user", "echo x > f; head -c 70000 /dev/urandom > g; mkdir d; echo y > d/y");
  std::string saved = save(*from);
  ASSERT_GT(saved.size(), 70'000U);
  // The end mark of a tar is two empty blocks, and the entry before them is what counts.
  for (std::size_t size = 0; size + 1024 < saved.size(); size += 512) {
    if (size > 8192 && size + 8192 < saved.size()) size += 4096;
    auto to = sandbox();
    EXPECT_TRUE(failed_with(restore(*to, saved.substr(0, size)), Errc::invalid)) << size;
    must(to->destroy());
  }
  auto to = sandbox();
  EXPECT_TRUE(succeeded(restore(*to, saved)));
}

TEST_F(SavingTest, ReaderThatLeavesEndsTheWorker) {
  auto box = sandbox();
  must(box->write_file("/workspace/big", noise(8 << 20)));
  std::uint32_t before = must(box->usage()).pids;
  { UniqueFd pipe = must(box->save_files()); }
  EXPECT_TRUE(eventually([&] { return must(box->usage()).pids <= before; }));
}

// ---- hostile
// -------------------------------------------------------------------------------------

// An entry with an attribute, as its writer says it.
TarWriter& attribute(TarWriter& tar, const std::string& name, const std::string& base64) {
  std::string text = " LIBARCHIVE.xattr." + name + "=" + base64 + "\n";
  std::size_t size = text.size() + 2;
  return tar.entry("x", 'x', std::to_string(size) + text);
}

// The end mark for so many entries.
std::string finish(TarWriter& tar, unsigned count) {
  constexpr std::array kDigits{"MA", "MQ", "Mg", "Mw", "NA", "NQ", "Ng"};
  return attribute(tar, "sandbox.end", kDigits.at(count)).directory(".").finish();
}

TEST_F(SavingTest, HandMadeStreamsWork) {
  auto box = sandbox();
  TarWriter tar;
  tar.directory("workspace").file("workspace/f", "x").symlink("workspace/l", "f");
  ASSERT_TRUE(succeeded(restore(*box, finish(tar, 3))));
  EXPECT_EQ(sh(*box, "cat l").out, "x");
  EXPECT_TRUE(failed_with(restore(*box, finish(tar, 2)), Errc::invalid)) << "the wrong count";
}

TEST_F(SavingTest, NamesThatAreNotPlainAreRefused) {
  for (const char* name :
       {"/etc/passwd", "../x", "a/../../x", "a/..", "a//b", "./a", "a/./b", "..", ""}) {
    auto box = sandbox();
    TarWriter file;
    EXPECT_TRUE(failed_with(restore(*box, finish(file.file(name, "x"), 1)), Errc::invalid)) << name;
    TarWriter link;
    link.file("f", "x").hard_link("g", name);
    EXPECT_TRUE(failed_with(restore(*box, finish(link, 2)), Errc::invalid)) << name;
    TarWriter gone;
    gone.entry(name, '3');
    EXPECT_TRUE(failed_with(restore(*box, finish(gone, 1)), Errc::invalid)) << name;
    must(box->destroy());
  }
}

TEST_F(SavingTest, NothingIsDoneThroughALink) {
  auto box = sandbox();
  must(box->write_file("/workspace/target/f", "before"));
  for (const char* target : {"/workspace/target", "target", "../workspace/target"}) {
    TarWriter through;
    through.symlink("workspace/out", target).file("workspace/out/f", "through");
    EXPECT_TRUE(failed_with(restore(*box, finish(through, 2)), Errc::invalid));
    TarWriter folder;
    folder.symlink("workspace/out", target).directory("workspace/out").file("workspace/out/f", "x");
    EXPECT_TRUE(succeeded(restore(*box, finish(folder, 3)))) << "the link is replaced";
    TarWriter linked;
    linked.symlink("workspace/to", target).hard_link("workspace/hard", "workspace/to/f");
    EXPECT_TRUE(failed_with(restore(*box, finish(linked, 2)), Errc::invalid));
  }
  TarWriter same;
  same.symlink("workspace/s", "/workspace/target/f").file("workspace/s", "in its place");
  EXPECT_TRUE(succeeded(restore(*box, finish(same, 2))));
  EXPECT_EQ(must(box->read_file("/workspace/target/f")), "before");
  EXPECT_EQ(must(box->read_file("/workspace/s")), "in its place");
}

TEST_F(SavingTest, DevicesProcAndSharedMemoryAreRefused) {
  for (const char* name : {"proc/x", "dev/x", "dev/shm/x", "dev", "proc"}) {
    auto box = sandbox();
    TarWriter tar;
    EXPECT_TRUE(failed_with(restore(*box, finish(tar.file(name, "x"), 1)), Errc::invalid)) << name;
  }
  auto box = sandbox();
  TarWriter device;  // 1, 3 in the header
  EXPECT_TRUE(failed_with(restore(*box, finish(device.entry("null", '3'), 1)), Errc::invalid));
  TarWriter block;
  EXPECT_TRUE(failed_with(restore(*box, finish(block.entry("disk", '4'), 1)), Errc::invalid));
  TarWriter odd;
  attribute(odd, "security.capability", "AQAAAg").file("x", "x");
  EXPECT_TRUE(failed_with(restore(*box, finish(odd, 1)), Errc::invalid));
  TarWriter orphan;
  EXPECT_TRUE(
      failed_with(restore(*box, finish(orphan.file("no/such/folder", "x"), 1)), Errc::invalid));
  must(box->ping());
}

TEST_F(SavingTest, GarbageAndOtherArchivesAreInvalid) {
  auto box = sandbox();
  EXPECT_TRUE(failed_with(restore(*box, noise(100'000)), Errc::invalid));
  EXPECT_TRUE(failed_with(restore(*box, "not an archive"), Errc::invalid));
  EXPECT_TRUE(failed_with(restore(*box, ""), Errc::invalid));
  EXPECT_TRUE(failed_with(restore(*box, TarWriter().file("f", "x").finish()), Errc::invalid));
  TarWriter more;
  std::string early = finish(more.file("f", "x"), 1);
  early.resize(early.size() - 1024);
  EXPECT_TRUE(
      failed_with(restore(*box, early + TarWriter().file("g", "x").finish()), Errc::invalid));
  EXPECT_TRUE(failed_with(restore(*box, gzip(finish(more, 1))), Errc::invalid))
      << "a bomb's costume";
  EXPECT_TRUE(
      failed_with(restore(*box, TarWriter().header_only("f", 1ULL << 40).finish()), Errc::invalid));
  must(box->ping());
}

// Bytes that were turned around on the way.
TEST_F(SavingTest, DamagedStreamsHurtNobody) {
  auto from = sandbox();
  do_as(*from, "root",
        "cd /workspace; mkdir d; echo x > d/f; ln -s f d/l; mkfifo d/p; truncate -s 1M "
        "d/hole; rm /etc/hostname; ln d/f d/g");
  std::string saved = save(*from);
  auto box = sandbox();
  std::string random = noise(4 * 300, 77);
  for (std::size_t i = 0; i < 300; ++i) {
    std::uint32_t place = 0;
    std::memcpy(&place, random.data() + 4 * i, 4);
    std::string damaged = saved;
    damaged[place % damaged.size()] ^= static_cast<char>(1 << (i % 8));
    (void)restore(*box, damaged);
  }
  must(box->ping());
}

}  // namespace
}  // namespace asr::test
