// Disks that outlive their sandbox, and volumes that several share.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "kept_victim.hpp"
#include "kernel_test.hpp"
#include "launch/plan.hpp"

namespace asr::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = 1 << 20;

std::size_t lines_of(const std::string& path) {
  std::string text = read_host_file(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::size_t open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

class StorageTest : public KernelTest {
 protected:
  StorageTest() { options().storage_dir = scratch() / "storage"; }
  void SetUp() override {
    if (::access("/dev/loop-control", R_OK | W_OK) != 0) GTEST_SKIP() << "needs loop devices";
  }

  // Devices with a file of ours behind them.
  std::size_t bound_loops() {
    std::size_t count = 0;
    std::error_code ec;
    for (const auto& device : fs::directory_iterator("/sys/block", ec)) {
      std::string file = read_host_file(device.path() / "loop/backing_file");
      if (file.starts_with(options().storage_dir.native())) ++count;
    }
    return count;
  }

  static SandboxSpec with_disk(const std::string& path = "d", std::uint64_t bytes = 64 * kMiB) {
    SandboxSpec spec = spec_of(Preset::standard);
    spec.disk = PersistentDisk{path};
    spec.limits.disk_bytes = bytes;
    return spec;
  }
  static SandboxSpec with_volume(const std::string& source, const std::string& target,
                                 bool read_only = false) {
    SandboxSpec spec = spec_of(Preset::standard);
    spec.volumes.push_back({source, target, read_only});
    return spec;
  }
  void make_volume(const std::string& source, std::uint64_t bytes = 0) {
    VolumeOptions volume;
    volume.bytes = bytes;
    must(engine()->make_volume(source, volume));
  }
  void end(SandboxPtr& box) {
    must(box->destroy());
    box.reset();
  }
  std::string out(Sandbox& box, std::string script, std::string user = "user") {
    RunResult result = sh(box, std::move(script), std::move(user));
    return result.out + result.err;
  }
};

// ---- disks
// ---------------------------------------------------------------------------------------

TEST_F(StorageTest, EverythingWrittenIsThereAgain) {
  auto box = sandbox(with_disk());
  EXPECT_EQ(out(*box, "echo work > /workspace/file; mkdir ~/folder; echo mine > ~/folder/file"),
            "");
  EXPECT_EQ(out(*box,
                "echo root > /root/file; echo etc > /etc/added; echo bin > /usr/local/bin/added;"
                "chmod 755 /usr/local/bin/added; rm /etc/hostname; echo new > /opt/new;"
                "chown 1234:4321 /opt/new; ln -s /opt/new /srv/link",
                "root"),
            "");
  EXPECT_EQ(out(*box, "echo x > /tmp/gone; echo x > /dev/shm/gone"), "");
  std::string range = read_host_file("/proc/" + std::to_string(box->host_pid()) + "/uid_map");
  end(box);

  box = sandbox(with_disk());
  EXPECT_NE(read_host_file("/proc/" + std::to_string(box->host_pid()) + "/uid_map"), range);
  EXPECT_EQ(out(*box, "cat /workspace/file ~/folder/file /etc/added /srv/link"),
            "work\nmine\netc\nnew\n");
  EXPECT_EQ(out(*box, "cat /root/file /usr/local/bin/added", "root"), "root\nbin\n");
  EXPECT_EQ(
      out(*box, "stat -c %u:%g /workspace/file /home/user/folder /root/file /opt/new", "root"),
      "1000:1000\n1000:1000\n0:0\n1234:4321\n");
  EXPECT_EQ(out(*box, "ls /tmp /dev/shm; test -e /etc/hostname || echo removed"),
            "/dev/shm:\n\n/tmp:\nremoved\n");
  EXPECT_EQ(out(*box, "echo more >> /workspace/file && cat /workspace/file"), "work\nmore\n");
  EXPECT_EQ(box->isolation().find("disk_limit")->guarantee, Guarantee::full);
  end(box);

  // The same with a root that cannot be written.
  SandboxSpec strict = with_disk();
  strict.root = RootMode::read_only;
  box = sandbox(strict);
  EXPECT_EQ(out(*box, "cat /workspace/file /etc/added"), "work\nmore\netc\n");
  EXPECT_NE(sh(*box, "echo x > /etc/added", "root").status.exit_code, 0);
  EXPECT_EQ(out(*box, "echo again >> /workspace/file && cat ~/folder/file"), "mine\n");
}

TEST_F(StorageTest, TheSizeHolds) {
  auto box = sandbox(with_disk("small", 32 * kMiB));
  RunResult full =
      sh(*box, "dd if=/dev/zero of=/workspace/big bs=1M count=100 2>&1; echo; df -k /");
  EXPECT_THAT(full.out, testing::HasSubstr("No space left on device"));
  Usage usage = must(box->usage());
  EXPECT_GT(usage.disk_bytes, 15 * kMiB);
  EXPECT_LE(usage.disk_limit_bytes, 32 * kMiB);
  EXPECT_EQ(out(*box, "rm /workspace/big; echo fine > /workspace/ok; cat /workspace/ok"), "fine\n");
  end(box);
  struct stat info {};
  ASSERT_EQ(::stat((options().storage_dir / "small").c_str(), &info), 0);
  EXPECT_LE(static_cast<std::uint64_t>(info.st_blocks) * 512, 33 * kMiB);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(StorageTest, ADiskMayBeLargerThanMemory) {
  SandboxSpec spec = with_disk("large", 1024 * kMiB);
  spec.limits.memory_bytes = 128 * kMiB;
  spec.limits.milli_cpus = 0;
  auto box = sandbox(spec);
  RunResult wrote = sh(*box, "dd if=/dev/zero of=/workspace/big bs=1M count=300 2>&1");
  EXPECT_TRUE(wrote.status.ok()) << wrote.out;
  EXPECT_EQ(out(*box, "stat -c %s /workspace/big"), std::to_string(300 * kMiB) + "\n");
  // Memory for files is limited all the same.
  EXPECT_NE(sh(*box, "dd if=/dev/zero of=/tmp/big bs=1M count=300").status.exit_code, 0);
}

TEST_F(StorageTest, OneAtATime) {
  auto box = sandbox(with_disk());
  EXPECT_TRUE(failed_with(wait(engine()->create(with_disk())), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(engine()->remove_storage("d")), Errc::conflict));
  auto other = sandbox(with_disk("e"));
  for (int i = 0; i < 5; ++i) {
    end(box);
    box = sandbox(with_disk());  // At once: what is being given up is waited for.
  }
  box.reset();
  must(engine()->remove_storage("d"));
  EXPECT_FALSE(fs::exists(options().storage_dir / "d"));
}

TEST_F(StorageTest, ADiskBelongsToItsEnvironment) {
  auto box = sandbox(with_disk());
  end(box);
  fs::create_directories(scratch() / "root/bin");
  write_host_file(scratch() / "root/bin/tool", tool_image(), 0755);
  SandboxSpec other = with_disk();
  other.environment = {Environment::Kind::folder, scratch() / "root"};
  EXPECT_TRUE(failed_with(wait(engine()->create(other)), Errc::conflict));
  box = sandbox(with_disk());
  EXPECT_EQ(out(*box, "echo fine"), "fine\n");
}

// What a program puts where the next set-up mounts must not lead it anywhere.
TEST_F(StorageTest, PlantedLinksLeadNowhere) {
  auto box = sandbox(with_disk());
  sh(*box,
     "mkdir -p /srv/evil; ln -s /blank /srv/evil/user; mv /home /home.old; ln -s /srv/evil /home;"
     "rmdir /opt; ln -s /blank /opt; rm -rf /mnt; ln -s / /mnt; rm -rf /var/tmp; ln -s /proc "
     "/var/tmp",
     "root");
  end(box);
  box = sandbox(with_disk());
  EXPECT_EQ(out(*box, "echo ok > ~/file; cat /home/user/file; stat -c %F /home"),
            "ok\ndirectory\n");
  EXPECT_EQ(
      out(*box, "cat /proc/kcore 2>&1 | wc -c; ls /proc/acpi /proc/bus 2>/dev/null | wc -l",
          "root"),
      out(*sandbox(), "cat /proc/kcore 2>&1 | wc -c; ls /proc/acpi /proc/bus 2>/dev/null | wc -l",
          "root"));
  end(box);
  // A volume is not put behind such a link, either.
  make_volume("v");
  SandboxSpec spec = with_disk();
  spec.volumes.push_back({"v", "/mnt/data", false});
  EXPECT_FALSE(wait(engine()->create(spec)));
  spec.volumes[0].target = "/data";
  box = sandbox(spec);
  EXPECT_EQ(out(*box, "echo x > /data/x; cat /data/x"), "x\n");
}

TEST_F(StorageTest, NamesStayBelowTheFolder) {
  for (const char* path : {"../x", "/etc/x", "a/../../x", "", "."})
    EXPECT_TRUE(failed_with(wait(engine()->create(with_disk(path))), Errc::invalid)) << path;
  must(engine()->make_volume("real", {}));
  fs::create_directory_symlink("/etc", options().storage_dir / "link");
  fs::create_symlink("/etc/passwd", options().storage_dir / "file");
  for (const char* path : {"link", "file", "link/passwd"}) {
    EXPECT_FALSE(wait(engine()->create(with_disk(path)))) << path;
    EXPECT_FALSE(wait(engine()->create(with_volume(path, "/data")))) << path;
    EXPECT_FALSE(wait(engine()->remove_storage(path))) << path;
  }
  // What others may have written is not mounted.
  write_host_file(options().storage_dir / "open", std::string(32 * kMiB, '\0'), 0666);
  ::chmod((options().storage_dir / "open").c_str(), 0666);
  EXPECT_TRUE(failed_with(wait(engine()->create(with_disk("open"))), Errc::denied));
  // Nor what is no file system.
  write_host_file(options().storage_dir / "noise", noise(32 * kMiB), 0600);
  EXPECT_FALSE(wait(engine()->create(with_disk("noise"))));
  EXPECT_TRUE(fs::exists("/etc/passwd"));
}

TEST_F(StorageTest, WhereThereIsNoFolderThereAreNoDisks) {
  options().storage_dir.clear();
  EXPECT_TRUE(failed_with(wait(engine()->create(with_disk())), Errc::unsupported));
  EXPECT_TRUE(failed_with(wait(engine()->make_volume("v", {})), Errc::unsupported));
}

TEST_F(StorageTest, NeverFromAPool) {
  EXPECT_TRUE(failed_with(wait(engine()->warm(with_disk(), {})), Errc::invalid));
}

TEST_F(StorageTest, QuickEnough) {
  auto first = Clock::now();
  auto box = sandbox(with_disk("q", 256 * kMiB));
  auto made = since(first);
  end(box);
  std::vector<double> times;
  std::vector<double> at_once;
  for (int i = 0; i < 40; ++i) {
    // Every other time right after the last one has ended: then its last writes are waited for.
    if (i % 2 == 0) std::this_thread::sleep_for(150ms);
    auto started = Clock::now();
    box = sandbox(with_disk("q", 256 * kMiB));
    (i % 2 == 0 ? times : at_once)
        .push_back(std::chrono::duration<double, std::milli>(Clock::now() - started).count());
    end(box);
  }
  std::sort(times.begin(), times.end());
  std::sort(at_once.begin(), at_once.end());
  std::printf(
      "with a new disk of 256 MiB: %ld ms; with one that is there: %.1f ms, p95 %.1f ms;"
      " right after another had it: %.1f ms\n",
      static_cast<long>(made.count()), times[10], times[18], at_once[10]);
  EXPECT_LT(times[10], 500);
}

// ---- volumes
// -------------------------------------------------------------------------------------

TEST_F(StorageTest, VolumesAreShared) {
  for (std::uint64_t bytes : {std::uint64_t{0}, 32 * kMiB}) {
    std::string name = bytes == 0 ? "folder" : "image";
    make_volume(name, bytes);
    auto one = sandbox(with_volume(name, "/data"));
    auto two = sandbox(with_volume(name, "/workspace/shared/data"));
    auto reader = sandbox(with_volume(name, "/data", true));
    EXPECT_EQ(out(*one, "echo hello > /data/file; stat -c %u:%g /data /data/file"),
              "1000:1000\n1000:1000\n");
    EXPECT_EQ(out(*two, "cat /workspace/shared/data/file; echo two >> /workspace/shared/data/file"),
              "hello\n");
    EXPECT_EQ(out(*reader, "cat /data/file; stat -c %u:%g /data/file"), "hello\ntwo\n1000:1000\n");
    for (const char* user : {"user", "root"}) {
      EXPECT_THAT(out(*reader, "echo x > /data/new", user), testing::HasSubstr("Read-only"));
      EXPECT_THAT(out(*reader, "rm /data/file", user), testing::HasSubstr("Read-only"));
    }
    EXPECT_EQ(
        out(*two, "echo r > /workspace/shared/data/r; chown 7:8 /workspace/shared/data/r", "root"),
        "");
    EXPECT_EQ(out(*one, "stat -c %u:%g /data/r; ls -A /data"), "7:8\nfile\nr\n");
    one.reset();
    two.reset();
    reader.reset();
    auto again = sandbox(with_volume(name, "/data"));
    EXPECT_EQ(out(*again, "cat /data/file"), "hello\ntwo\n");
    EXPECT_EQ(again->isolation().find("volumes")->guarantee,
              bytes == 0 ? Guarantee::partial : Guarantee::full);
  }
}

TEST_F(StorageTest, AVolumesSizeHolds) {
  make_volume("v", 16 * kMiB);
  auto box = sandbox(with_volume("v", "/data"));
  EXPECT_THAT(out(*box, "dd if=/dev/zero of=/data/big bs=1M count=100"),
              testing::HasSubstr("No space left"));
  EXPECT_EQ(out(*box, "rm /data/big; echo x > /data/x; cat /data/x"), "x\n");
  struct stat info {};
  ASSERT_EQ(::stat((options().storage_dir / "v").c_str(), &info), 0);
  EXPECT_LE(static_cast<std::uint64_t>(info.st_blocks) * 512, 17 * kMiB);
}

TEST_F(StorageTest, FilesOfAFolderAreNobodysOutside) {
  make_volume("v");
  auto box = sandbox(with_volume("v", "/data"));
  sh(*box, "cp /bin/true /data/suid; chown 0:0 /data/suid; chmod 6755 /data/suid", "root");
  sh(*box, "echo x > /data/file");
  struct stat info {};
  ASSERT_EQ(::stat((options().storage_dir / "v/suid").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, kVolumeIds);
  ASSERT_EQ(::stat((options().storage_dir / "v/file").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, kVolumeIds + 1000);
  EXPECT_EQ(out(*box, "stat -c %u /data/suid"), "0\n");
}

TEST_F(StorageTest, LinksInAVolumeStayInside) {
  make_volume("v");
  auto box = sandbox(with_volume("v", "/data"));
  sh(*box,
     "ln -s /etc/shadow /data/shadow; ln -s /proc/1/root /data/root; ln -s ../../../../etc "
     "/data/up",
     "root");
  EXPECT_NE(sh(*box, "cat /data/shadow", "root").status.exit_code, 0);
  EXPECT_EQ(out(*box, "cat /data/up/passwd", "root"), out(*box, "cat /etc/passwd", "root"));
  EXPECT_NE(sh(*box, "ls /data/root/", "root").status.exit_code, 0);
  EXPECT_FALSE(wait(box->read_file("/data/shadow")));
  // As a source of the next one it is refused.
  EXPECT_FALSE(wait(engine()->create(with_volume("v/up", "/x"))));
  EXPECT_NE(sh(*box, "mknod /data/null c 1 3", "root").status.exit_code, 0);
}

TEST_F(StorageTest, TargetsAreChecked) {
  make_volume("v");
  for (const char* target :
       {"/proc/x", "/dev/x", "/usr/x", "/etc", "/", "..", "data", "/data/../etc"})
    EXPECT_TRUE(failed_with(wait(engine()->create(with_volume("v", target))), Errc::invalid))
        << target;
  EXPECT_TRUE(failed_with(wait(engine()->create(with_volume("none", "/data"))), Errc::not_found));
}

TEST_F(StorageTest, ManyVolumesOneInTheOther) {
  SandboxSpec spec = spec_of(Preset::strict);  // Its root cannot be written.
  for (int i = 0; i < 8; ++i) make_volume("v" + std::to_string(i), i % 2 == 0 ? 0 : 16 * kMiB);
  const char* targets[] = {"/data/in/it", "/data",          "/workspace", "/workspace/x",
                           "/home/user",  "/home/user/y/z", "/mnt/a",     "/opt/deep/er/b"};
  for (int i = 0; i < 8; ++i) spec.volumes.push_back({"v" + std::to_string(i), targets[i], false});
  auto box = sandbox(spec);
  for (const char* target : targets)
    EXPECT_EQ(out(*box, "echo x > " + std::string(target) + "/f && cat " + target + "/f"), "x\n")
        << target;
  EXPECT_EQ(out(*box, "grep -c ' /data\\| /workspace\\| /home\\| /mnt\\| /opt' /proc/mounts"),
            "10\n")
      << "the eight, and two that a root which cannot be written has of its own";
}

TEST_F(StorageTest, VolumesInPlaceOfItsFoldersAreNoPartOfASandbox) {
  make_volume("v");
  for (const char* target : {"/workspace", "/home", "/home/user"})
    for (Preset preset : {Preset::strict, Preset::standard}) {
      SandboxSpec spec = spec_of(preset);
      spec.volumes.push_back({"v", target, false});
      auto from = sandbox(spec);
      EXPECT_EQ(out(*from, "echo x > " + std::string(target) + "/f; echo y > /tmp/own"), "");
      Changes changes = must(from->changes());
      ASSERT_EQ(changes.entries.size(), 1U) << target;
      EXPECT_EQ(changes.entries[0].path, "/tmp/own");
      auto to = sandbox(spec);
      auto restored = wait(to->restore_files(must(from->save_files())));
      EXPECT_TRUE(succeeded(restored)) << target << " " << to_string(preset);
      EXPECT_EQ(out(*to, "cat /tmp/own"), "y\n");
    }
}

TEST_F(StorageTest, FoldersOfALayerOnTheWayToAVolumeAreNotMissing) {
  make_volume("v");
  fs::create_directories(scratch() / "work/data/old");
  write_host_file(scratch() / "work/data/file", "x");
  for (const char* target : {"/workspace/data/old", "/workspace/data/new/one", "/workspace/more"}) {
    SandboxSpec spec = with_volume("v", target);
    spec.environment.workspace = (scratch() / "work").native();
    auto from = sandbox(spec);
    for (const FileChange& change : must(from->changes()).entries)
      ADD_FAILURE() << target << ": " << change.path;
    auto to = sandbox(spec);
    EXPECT_TRUE(succeeded(wait(to->restore_files(must(from->save_files()))))) << target;
    EXPECT_EQ(out(*to, "cat data/file"), "x");
  }
}

TEST_F(StorageTest, VolumesInUseAreNotRemoved) {
  make_volume("f");
  make_volume("i", 16 * kMiB);
  EXPECT_TRUE(failed_with(wait(engine()->make_volume("f", {})), Errc::conflict));
  auto one = sandbox(with_volume("f", "/data"));
  auto two = sandbox(with_volume("i", "/data"));
  EXPECT_TRUE(failed_with(wait(engine()->remove_storage("f")), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(engine()->remove_storage("i")), Errc::conflict));
  end(one);
  end(two);
  EXPECT_TRUE(eventually([&] { return wait(engine()->remove_storage("f")).has_value(); }));
  EXPECT_TRUE(eventually([&] { return wait(engine()->remove_storage("i")).has_value(); }));
  EXPECT_TRUE(fs::is_empty(options().storage_dir));
}

// ---- what is left
// --------------------------------------------------------------------------------

TEST_F(StorageTest, FiftyCyclesLeaveNothing) {
  make_volume("f");
  make_volume("i", 16 * kMiB);
  auto cycle = [&] {
    SandboxSpec spec = with_disk();
    spec.volumes = {{"f", "/f", false}, {"i", "/i", false}};
    auto box = sandbox(spec);
    EXPECT_EQ(out(*box, "echo x > /f/x; echo x > /i/x; echo x > /workspace/x"), "");
    end(box);
  };
  std::size_t loops = bound_loops();
  cycle();
  EXPECT_TRUE(eventually([&] { return bound_loops() <= loops; }));
  std::size_t mounts = lines_of("/proc/self/mountinfo");
  std::size_t descriptors = open_descriptors();
  for (int i = 0; i < 50; ++i) cycle();
  EXPECT_TRUE(eventually([&] { return bound_loops() <= loops; })) << bound_loops();
  EXPECT_EQ(lines_of("/proc/self/mountinfo"), mounts);
  EXPECT_TRUE(eventually([&] { return open_descriptors() <= descriptors + 2; }))
      << open_descriptors() << " of " << descriptors;
}

TEST_F(StorageTest, AdoptedWithEverything) {
  options().instance = "node";
  make_volume("f");
  make_volume("i", 16 * kMiB);
  SandboxSpec spec = with_disk();
  spec.volumes = {{"f", "/f", false}, {"i", "/i", false}};
  auto box = sandbox(spec);
  must(box->keep("with storage"));
  EXPECT_EQ(out(*box, "echo x > /workspace/x; echo f > /f/f; echo i > /i/i"), "");
  must(engine()->leave());
  box.reset();
  drop_engine();

  auto all = engine()->adopted();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0]->spec(), spec);
  EXPECT_EQ(out(*all[0], "cat /workspace/x /f/f /i/i"), "x\nf\ni\n");
  // Still in use, and the volumes still shared.
  EXPECT_TRUE(failed_with(wait(engine()->create(with_disk())), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(engine()->remove_storage("i")), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(engine()->remove_storage("f")), Errc::conflict));
  auto other = sandbox(with_volume("i", "/data"));
  EXPECT_EQ(out(*other, "cat /data/i; echo other > /data/other"), "i\n");
  EXPECT_EQ(out(*all[0], "cat /i/other"), "other\n");
  other.reset();
  all.clear();
  auto next = sandbox(with_disk());
  EXPECT_EQ(out(*next, "cat /workspace/x"), "x\n");
  next.reset();
  std::size_t loops = bound_loops();
  stop_engine();
  EXPECT_LE(bound_loops(), loops);
}

TEST_F(StorageTest, AKilledDaemonLeavesNoDeviceBehind) {
  options().instance = "node";
  std::size_t loops = bound_loops();
  KeptVictim victim;
  std::vector<int> pids = victim.start(options(), "storage");
  ASSERT_EQ(pids.size(), 2U);
  EXPECT_EQ(bound_loops(), loops + 3);
  victim.kill();
  EXPECT_TRUE(eventually([&] { return !process_lives(pids[1]); }));
  EXPECT_TRUE(eventually([&] { return bound_loops() == loops + 2; })) << "the loose one's disk";

  auto all = engine()->adopted();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(out(*all[0], "cat /workspace/name /data/kept /data/loose"), "kept\nkept\nloose\n");
  EXPECT_TRUE(failed_with(wait(engine()->create(with_disk("kept"))), Errc::conflict));
  // The journal of the other is replayed, and the volume is the same one.
  SandboxSpec spec = with_disk("loose");
  spec.volumes.push_back({"shared", "/data", false});
  auto box = sandbox(spec);
  EXPECT_EQ(out(*box, "cat /workspace/name; echo new > /data/new"), "loose\n");
  EXPECT_EQ(out(*all[0], "cat /data/new"), "new\n");
  EXPECT_EQ(bound_loops(), loops + 3);
  box.reset();
  all.clear();
  EXPECT_TRUE(eventually([&] { return bound_loops() == loops; }));
}

}  // namespace
}  // namespace asr::test
