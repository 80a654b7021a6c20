// Where a sandbox's files come from: the host, a folder, a tarball; the last two may be hostile.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "kernel_test.hpp"
#include "tar_writer.hpp"

namespace asr::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class EnvironmentTest : public KernelTest {
 protected:
  static SandboxSpec spec_in(Environment::Kind kind, const fs::path& path) {
    SandboxSpec spec = spec_of(Preset::standard);
    spec.environment = {kind, path.native()};
    return spec;
  }
  static SandboxSpec folder_spec(const fs::path& path) {
    return spec_in(Environment::Kind::folder, path);
  }
  static SandboxSpec tar_spec(const fs::path& path) {
    return spec_in(Environment::Kind::tarball, path);
  }

  // The least root file system there can be: the tool, as everything.
  fs::path small_root(const std::string& name = "root") {
    fs::path root = scratch() / name;
    write_host_file(root / "bin/tool", tool_image(), 0755);
    return root;
  }
  RunResult in_root(Sandbox& box, std::vector<std::string> arguments, std::string user = "user") {
    arguments.insert(arguments.begin(), "/bin/tool");
    return run(box, std::move(arguments), std::move(user));
  }
};

// ---- the host
// ------------------------------------------------------------------------------------

TEST_F(EnvironmentTest, HostLooksLikeAComputer) {
  auto box = sandbox();
  EXPECT_EQ(sh(*box, "hostname 2>/dev/null || cat /proc/sys/kernel/hostname").out, "sandbox\n");
  EXPECT_THAT(must(box->read_file("/etc/hosts")), HasSubstr("127.0.0.1 localhost"));
  std::string passwd = must(box->read_file("/etc/passwd"));
  EXPECT_THAT(passwd, HasSubstr("user:x:1000:1000:"));
  EXPECT_THAT(passwd, HasSubstr("root:x:0:0:"));
  EXPECT_EQ(sh(*box, "cd; pwd; echo x > f && cat f; cd; ls -d /root").out,
            "/home/user\nx\n/root\n");
  EXPECT_EQ(sh(*box, "echo $LANG; locale charmap 2>/dev/null || echo UTF-8").out,
            "C.UTF-8\nUTF-8\n");
  EXPECT_EQ(sh(*box, "umask; ulimit -c").out, "0022\n0\n");
}

TEST_F(EnvironmentTest, DevicesAreThere) {
  auto box = sandbox_with_tool();
  EXPECT_EQ(sh(*box,
               "/workspace/tool type /dev/null /dev/zero /dev/full /dev/random /dev/urandom "
               "/dev/tty /dev/fd "
               "/dev/stdin /dev/stdout /dev/stderr /dev/ptmx /dev/pts /dev/shm")
                .out,
            "ccccccllllldd\n");
  EXPECT_EQ(sh(*box,
               "head -c 5 /dev/zero | wc -c; head -c 8 /dev/urandom | wc -c; echo x > /dev/null; "
               "echo x 2>/dev/null > /dev/full || echo full")
                .out,
            "5\n8\nfull\n");
  EXPECT_EQ(sh(*box, "ls /dev").out, sh(*box, "ls /dev", "root").out);
  EXPECT_THAT(sh(*box, "ls /dev").out, testing::Not(HasSubstr("kvm")));
}

TEST_F(EnvironmentTest, ProcShowsTheOwnProcesses) {
  auto box = sandbox();
  EXPECT_EQ(sh(*box, "readlink /proc/self/exe").out,
            sh(*box, "readlink -f $(command -v readlink)").out);
  EXPECT_EQ(
      sh(*box, "[ -e /proc/$$/status ] && grep -c . /proc/self/maps > /dev/null && echo yes").out,
      "yes\n");
  EXPECT_NE(sh(*box, "cat /proc/cpuinfo /proc/meminfo /proc/mounts | head -3").out, "");
  EXPECT_EQ(sh(*box, "echo x > /proc/sys/kernel/hostname", "root").status.ok(), false);
}

TEST_F(EnvironmentTest, SharedMemoryIsUsable) {
  auto box = sandbox();
  EXPECT_EQ(sh(*box, "echo x > /dev/shm/f && cat /dev/shm/f; stat -c %a /dev/shm /tmp").out,
            "x\n1777\n1777\n");
}

TEST_F(EnvironmentTest, PythonWorks) {
  auto box = sandbox();
  if (!sh(*box, "command -v python3").status.ok())
    GTEST_SKIP() << "there is no python3 on this machine";
  must(box->write_file("/workspace/t.py", R"(
import concurrent.futures, multiprocessing, os, pathlib, socket, sqlite3, ssl, subprocess, sys, tempfile, threading
def square(x): return x * x
if __name__ == "__main__":
  with multiprocessing.Pool(2) as pool: print(pool.map(square, range(4)))
  with concurrent.futures.ThreadPoolExecutor(4) as threads: print(sum(threads.map(square, range(10))))
  print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
  print(sqlite3.connect(":memory:").execute("select 6*7").fetchone()[0])
  print(sys.stdout.encoding, os.getcwd(), pathlib.Path.home())
  with tempfile.TemporaryDirectory() as d: print(os.path.dirname(d))
  queue = multiprocessing.Queue(); queue.put(1); print(queue.get())
)"));
  RunResult result = sh(*box, "python3 t.py");
  EXPECT_EQ(result.out, "[0, 1, 4, 9]\n285\nchild\n42\nutf-8 /workspace /home/user\n/tmp\n1\n")
      << result.err;
}

TEST_F(EnvironmentTest, UsrIsReadOnlyInStrict) {
  auto box = sandbox(spec_of(Preset::strict));
  EXPECT_FALSE(sh(*box, "touch /usr/bin/x", "root").status.ok());
  EXPECT_FALSE(sh(*box, "touch /usr/x", "root").status.ok());
  EXPECT_TRUE(sh(*box, "ls /usr/bin/env").status.ok());
}

TEST_F(EnvironmentTest, HostsOwnConfigurationStaysOutside) {
  ASSERT_TRUE(fs::exists("/etc/shadow"));
  auto box = sandbox();
  for (const char* path :
       {"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private", "/etc/machine-id"})
    EXPECT_TRUE(failed_with(wait(box->stat(path)), Errc::not_found)) << path;
  EXPECT_EQ(sh(*box, "ls -A /root /home/user /workspace", "root").out,
            "/home/user:\n\n/root:\n\n/workspace:\n");
}

// ---- folders
// -------------------------------------------------------------------------------------

TEST_F(EnvironmentTest, FolderIsTheRoot) {
  fs::path root = small_root();
  write_host_file(root / "data/file", "from the folder");
  for (RootMode mode : {RootMode::writable, RootMode::read_only}) {
    SandboxSpec spec = folder_spec(root);
    spec.root = mode;
    auto box = sandbox(spec);
    EXPECT_EQ(in_root(*box, {"cat", "/data/file"}).out, "from the folder");
    EXPECT_EQ(in_root(*box, {"id"}).out, "1000 1000\n");
    EXPECT_EQ(in_root(*box, {"id"}, "root").out, "0 0\n");
    EXPECT_EQ(in_root(*box, {"type", "/proc", "/dev/null", "/tmp", "/workspace", "/home/user",
                             "/dev/shm"})
                  .out,
              "dcdddd\n");
    EXPECT_THAT(in_root(*box, {"cat", "/etc/passwd"}).out, HasSubstr("user:x:1000"));
    EXPECT_TRUE(succeeded(wait(box->write_file("/workspace/f", "x"))));
    EXPECT_EQ(run(*box, {"/bin/sh"}).status.exit_code, 127);
  }
  EXPECT_FALSE(fs::exists(root / "workspace"));
  EXPECT_FALSE(fs::exists(root / "etc"));
}

TEST_F(EnvironmentTest, WritesDoNotReachTheFolder) {
  fs::path root = small_root();
  write_host_file(root / "data/file", "before", 0666);
  fs::permissions(root / "data", fs::perms::all);
  auto box = sandbox(folder_spec(root));
  EXPECT_TRUE(succeeded(wait(box->write_file("/data/file", "after"))));
  EXPECT_TRUE(succeeded(wait(box->write_file("/data/new", "x"))));
  EXPECT_EQ(must(box->read_file("/data/file")), "after");
  EXPECT_EQ(read_host_file(root / "data/file"), "before");
  EXPECT_FALSE(fs::exists(root / "data/new"));
}

// Where the sandbox puts its own things the folder has links that lead elsewhere.
TEST_F(EnvironmentTest, LinksInTheWayLeadNowhere) {
  for (const char* target : {"/", "/etc", "..", "/does/not/exist", "data"}) {
    fs::path root =
        small_root(std::string("root-") + std::to_string(std::hash<std::string>()(target)));
    fs::create_directory(root / "data");
    for (const char* name :
         {"proc", "dev", "etc", "tmp", "workspace", "home", "root", "run", "usr", "sys"})
      fs::create_symlink(target, root / name);
    for (RootMode mode : {RootMode::writable, RootMode::read_only}) {
      SandboxSpec spec = folder_spec(root);
      spec.root = mode;
      auto made = wait(engine()->create(spec));
      ASSERT_TRUE(succeeded(made)) << target;
      EXPECT_EQ(in_root(**made, {"type", "/proc", "/dev", "/etc", "/tmp", "/workspace", "/home",
                                 "/home/user"})
                    .out,
                "ddddddd\n")
          << target;
      EXPECT_EQ(in_root(**made, {"type", "/proc/self", "/dev/null", "/etc/passwd"}).out, "lcf\n")
          << target;
      EXPECT_THAT(in_root(**made, {"cat", "/etc/passwd"}).out, HasSubstr("user:x:1000")) << target;
    }
  }
}

TEST_F(EnvironmentTest, FilesInTheWayAreCovered) {
  fs::path root = small_root();
  for (const char* name : {"proc", "dev", "tmp", "workspace", "home", "root", "etc"})
    write_host_file(root / name, "a file");
  auto made = wait(engine()->create(folder_spec(root)));
  ASSERT_TRUE(succeeded(made));
  EXPECT_EQ(in_root(**made, {"type", "/proc", "/dev", "/tmp", "/workspace", "/home", "/etc"}).out,
            "dddddd\n");
}

TEST_F(EnvironmentTest, AccountsOfTheFolderAreUsedAndCompleted) {
  fs::path root = small_root();
  write_host_file(root / "etc/passwd", "app:x:500:501:the app:/srv:/bin/tool");
  auto box = sandbox(folder_spec(root));
  EXPECT_EQ(in_root(*box, {"id"}, "app").out, "500 501\n");
  EXPECT_EQ(in_root(*box, {"id"}, "user").out, "1000 1000\n");
  EXPECT_EQ(in_root(*box, {"cat", "/etc/passwd"}).out.find("app:x:500"), 0U);
}

TEST_F(EnvironmentTest, HugeOrOddAccountFilesAreHarmless) {
  std::string huge(8 << 20, 'x');
  int number = 0;
  for (const std::string& passwd :
       {huge, std::string("user:x:0:0::/:/bin/sh\n"), std::string(100'000, '\n'),
        std::string("user:x:99999999999:0::/\nuser::::::\n:::::::\n") + '\0' + '\xff'}) {
    fs::path root = small_root("accounts-" + std::to_string(number++));
    write_host_file(root / "etc/passwd", passwd);
    auto box = sandbox(folder_spec(root));
    auto result = wait(box->run(shell("", "user")));
    EXPECT_TRUE(succeeded(result)) << number;
    auto as_number = wait(box->run(shell("", "1000")));
    EXPECT_TRUE(succeeded(as_number)) << number;
    must(box->ping());
  }
  // A FIFO in its place holds nobody, and a link does not lead out of the folder.
  fs::path root = small_root("fifo");
  fs::create_directory(root / "etc");
  ASSERT_EQ(::mkfifo((root / "etc/passwd").c_str(), 0666), 0);
  fs::create_symlink("/etc/shadow", root / "etc/group");
  auto box = sandbox(folder_spec(root));
  EXPECT_EQ(in_root(*box, {"id"}).out, "1000 1000\n");
  EXPECT_THAT(in_root(*box, {"cat", "/etc/group"}).out, testing::Not(HasSubstr("$")));
}

TEST_F(EnvironmentTest, FoldersThatAreNoneAreRefused) {
  fs::create_directory(scratch() / "empty");
  write_host_file(scratch() / "file", "x");
  EXPECT_TRUE(failed_with(wait(engine()->create(folder_spec("/does/not/exist"))), Errc::not_found));
  EXPECT_TRUE(
      failed_with(wait(engine()->create(folder_spec(scratch() / "file"))), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(engine()->create(folder_spec(scratch() / "empty"))), Errc::invalid));
  EXPECT_TRUE(failed_with(wait(engine()->create(folder_spec("/"))), Errc::denied));
  EXPECT_TRUE(failed_with(wait(engine()->create(folder_spec("/usr/.."))), Errc::denied));
  EXPECT_TRUE(failed_with(wait(engine()->create(folder_spec(""))), Errc::invalid));
  // None of it hurts the engine.
  EXPECT_EQ(sh(*sandbox(), "echo alive").out, "alive\n");
}

// A folder that was refused is looked at again once it is right.
TEST_F(EnvironmentTest, RefusedFolderCanBeRepaired) {
  fs::create_directory(scratch() / "later");
  EXPECT_TRUE(failed_with(wait(engine()->create(folder_spec(scratch() / "later"))), Errc::invalid));
  small_root("later");
  EXPECT_TRUE(succeeded(wait(engine()->create(folder_spec(scratch() / "later")))));
}

// ---- tarballs
// ------------------------------------------------------------------------------------

class TarballTest : public EnvironmentTest {
 protected:
  void SetUp() override { options().cache_dir = scratch() / "cache"; }
  static TarWriter small_tar() {
    TarWriter tar;
    tar.directory("bin")
        .file("bin/tool", tool_image(), 0755)
        .directory("data")
        .file("data/file", "from the tarball");
    return tar;
  }
  std::size_t times_unpacked() {
    std::string text = log().text();
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("unpacking", at)) != std::string::npos; ++at) ++count;
    return count;
  }
};

TEST_F(TarballTest, IsUnpackedOnce) {
  fs::path plain = scratch() / "root.tar";
  write_host_file(plain, small_tar().finish());
  for (int i = 0; i < 3; ++i) {
    auto box = sandbox(tar_spec(plain));
    EXPECT_EQ(in_root(*box, {"cat", "/data/file"}).out, "from the tarball");
  }
  EXPECT_EQ(times_unpacked(), 1U) << log().text();
  // Nor by another engine with the same cache.
  stop_engine();
  auto box = sandbox(tar_spec(plain));
  EXPECT_EQ(in_root(*box, {"cat", "/data/file"}).out, "from the tarball");
  EXPECT_EQ(times_unpacked(), 1U) << log().text();
}

TEST_F(TarballTest, CompressedWorksToo) {
  fs::path packed = scratch() / "root.tar.gz";
  write_host_file(packed, gzip(small_tar().finish()));
  auto box = sandbox(tar_spec(packed));
  EXPECT_EQ(in_root(*box, {"cat", "/data/file"}).out, "from the tarball");
}

TEST_F(TarballTest, ManyAtOnceUnpackItOnce) {
  fs::path plain = scratch() / "root.tar";
  write_host_file(plain, small_tar().finish());
  std::vector<std::future<Result<SandboxPtr>>> made;
  for (int i = 0; i < 8; ++i) made.push_back(begin(engine()->create(tar_spec(plain))));
  for (auto& one : made) EXPECT_TRUE(succeeded(one.get()));
  EXPECT_EQ(times_unpacked(), 1U) << log().text();
}

TEST_F(TarballTest, ChangedFileIsUnpackedAgain) {
  fs::path plain = scratch() / "root.tar";
  write_host_file(plain, small_tar().finish());
  sandbox(tar_spec(plain));
  stop_engine();
  write_host_file(plain, small_tar().file("data/file", "changed").finish());
  auto box = sandbox(tar_spec(plain));
  EXPECT_EQ(in_root(*box, {"cat", "/data/file"}).out, "changed");
}

TEST_F(TarballTest, HostileOneStaysInItsFolder) {
  TarWriter tar = small_tar();
  std::string up = "../../../../../../../..";
  tar.file(up + (scratch() / "escaped").native().substr(0, 70), "x").file("../escaped", "x");
  tar.symlink("link", scratch().native()).file("link/escaped", "x");
  tar.symlink("etc", "/etc").file("etc/asr-kernel-test", "x");
  tar.entry("dev/sda", '4').file("bin/su", "x", 04755);
  fs::path hostile = scratch() / "hostile.tar";
  write_host_file(hostile, tar.finish());
  auto box = sandbox(tar_spec(hostile));
  EXPECT_EQ(in_root(*box, {"cat", "/data/file"}).out, "from the tarball");
  EXPECT_FALSE(fs::exists(scratch() / "escaped"));
  EXPECT_FALSE(fs::exists(scratch() / "cache/escaped"));
  EXPECT_FALSE(fs::exists("/etc/asr-kernel-test"));
  EXPECT_EQ(must(box->stat("/bin/su")).mode & 07000, 0U);
}

TEST_F(TarballTest, OwnersAndModesOfAnImageAreKept) {
  TarWriter tar = small_tar();
  tar.directory("var/tmp", 01777).directory("srv", 0750).file("srv/f", "x", 0640);
  fs::path plain = scratch() / "root.tar";
  write_host_file(plain, tar.finish());
  auto box = sandbox(tar_spec(plain));
  EXPECT_EQ(must(box->stat("/srv")).mode, 0750U);
  EXPECT_EQ(must(box->stat("/srv")).uid, 1000U);
  EXPECT_EQ(must(box->stat("/var/tmp")).mode, 01777U);
}

// An ordinary image has files bigger than what one sandbox may write.
TEST_F(TarballTest, MayHoldFilesBiggerThanTheDiskLimit) {
  std::string head = small_tar().header_only("big", 300ULL << 20).unfinished();
  fs::path packed = scratch() / "big.tar.gz";
  write_host_file(packed, gzip(head, (300ULL << 20) + 1024));
  auto made = wait(engine()->create(tar_spec(packed)));
  ASSERT_TRUE(succeeded(made));
  EXPECT_EQ(must((*made)->stat("/big")).size, 300ULL << 20);
}

TEST_F(TarballTest, BadOnesAreRefusedAndLeaveNothing) {
  write_host_file(scratch() / "garbage", noise(100'000));
  write_host_file(
      scratch() / "cut.tar",
      small_tar().file("f", std::string(9000, 'x')).unfinished().substr(0, 800'000).substr(0, 700));
  write_host_file(scratch() / "rootless.tar", TarWriter().file("just/a/file", "x").finish());
  EXPECT_TRUE(
      failed_with(wait(engine()->create(tar_spec("/does/not/exist.tar"))), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(engine()->create(tar_spec(scratch()))), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(engine()->create(tar_spec(scratch() / "garbage"))), Errc::invalid));
  EXPECT_TRUE(failed_with(wait(engine()->create(tar_spec(scratch() / "cut.tar"))), Errc::invalid));
  EXPECT_TRUE(
      failed_with(wait(engine()->create(tar_spec(scratch() / "rootless.tar"))), Errc::invalid));
  for (const fs::directory_entry& entry : fs::directory_iterator(scratch() / "cache"))
    EXPECT_FALSE(entry.path().filename().native().starts_with("new-")) << entry.path();
  EXPECT_EQ(sh(*sandbox(), "echo alive").out, "alive\n");
}

}  // namespace
}  // namespace asr::test
