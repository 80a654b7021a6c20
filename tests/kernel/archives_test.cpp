// Tar streams in and out of sandboxes, honest and hostile.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "base/unique_fd.hpp"
#include "kernel_test.hpp"
#include "tar_writer.hpp"

namespace asr::test {
namespace {

using testing::Contains;
using testing::HasSubstr;

class Archives : public KernelTest {
 protected:
  Result<Sandbox::ArchiveReport> unpack(Sandbox& box, std::string_view bytes,
                                        std::string path = "/workspace/in",
                                        std::string user = "user") {
    return wait(box.archive_in(std::move(path), in_memory(bytes), std::move(user)));
  }
  std::string pack(Sandbox& box, const std::string& path) {
    return read_fd(must(box.archive_out(path)).get());
  }
};

// ---- honest
// --------------------------------------------------------------------------------------

TEST_F(Archives, TreeGoesFromOneSandboxToAnother) {
  auto from = sandbox();
  auto to = sandbox();
  std::string data = noise(3 << 20, 9);
  must(from->write_file("/workspace/t/data", data));
  sh(*from,
     "cd t; mkdir -p sub/empty; echo x > sub/x; chmod 700 sub; chmod 640 sub/x; chmod 755 data; ln "
     "-s sub/x link; "
     "ln -s /nowhere broken; touch -d @1000000000 sub/x; mkfifo fifo; printf '' > ''\"$(printf "
     "'new\\nline')\"; "
     "mkdir -p $(printf 'l%.0s' $(seq 120))/$(printf 'm%.0s' $(seq 120)); "
     "echo long > $(printf 'l%.0s' $(seq 120))/$(printf 'm%.0s' $(seq 120))/$(printf 'n%.0s' $(seq "
     "120))");
  auto report = unpack(*to, pack(*from, "/workspace/t"), "/workspace/t");
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(report->skipped, 0U);
  EXPECT_TRUE(must(to->read_file("/workspace/t/data")) == data);
  const char* listing =
      "cd t; find . ! -name fifo -printf '%p %y %m %l\\n' | sort; cat l*/m*/n*; stat -c %Y sub/x";
  EXPECT_EQ(sh(*to, listing).out, sh(*from, listing).out);
}

TEST_F(Archives, HardLinksStayLinks) {
  auto from = sandbox();
  auto to = sandbox();
  sh(*from, "mkdir t; head -c 1000000 /dev/zero > t/a; ln t/a t/b; ln t/a t/c");
  ASSERT_TRUE(succeeded(unpack(*to, pack(*from, "/workspace/t"), "/workspace/t")));
  EXPECT_EQ(sh(*to, "stat -c '%h %s' t/a t/b t/c").out, "3 1000000\n3 1000000\n3 1000000\n");
}

TEST_F(Archives, HardLinksOfAnArchiveAreMade) {
  auto box = sandbox();
  auto report = unpack(*box, TarWriter().file("a", "same").hard_link("d/b", "a").finish());
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(report->entries, 2U);
  EXPECT_EQ(sh(*box, "stat -c %h in/a; cat in/d/b").out, "2\nsame");
}

TEST_F(Archives, ModesOfDirectoriesAreKept) {
  auto box = sandbox();
  TarWriter tar;
  tar.directory("locked", 0555)
      .file("locked/f", "x", 0444)
      .directory("open", 0775)
      .directory("mine", 0700);
  ASSERT_TRUE(succeeded(unpack(*box, tar.finish())));
  EXPECT_EQ(sh(*box, "stat -c %a in/locked in/locked/f in/open in/mine").out,
            "555\n444\n775\n700\n");
}

TEST_F(Archives, SingleFileGoesOut) {
  auto from = sandbox();
  auto to = sandbox();
  must(from->write_file("/workspace/one", "contents"));
  ASSERT_TRUE(succeeded(unpack(*to, pack(*from, "/workspace/one"))));
  EXPECT_EQ(must(to->read_file("/workspace/in/one")), "contents");
}

TEST_F(Archives, EmptyFolderGoesOutAndIn) {
  auto box = sandbox();
  must(box->make_directory("/workspace/empty"));
  auto report = unpack(*box, pack(*box, "/workspace/empty"), "/workspace/again");
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(report->entries, 0U);
}

TEST_F(Archives, GzipIsRecognised) {
  auto box = sandbox();
  auto report = unpack(*box, gzip(TarWriter().file("f", "packed").finish()));
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(must(box->read_file("/workspace/in/f")), "packed");
}

// Read while it is written: nothing on the way holds all of it.
TEST_F(Archives, ComeThroughAPipeToo) {
  auto box = sandbox();
  std::string bytes = TarWriter().file("big", noise(2 << 20)).file("last", "x").finish();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]);
  std::thread writer([&bytes, end = UniqueFd(ends[1])] {
    for (std::size_t at = 0; at < bytes.size();) {
      ssize_t n =
          ::write(end.get(), bytes.data() + at, std::min<std::size_t>(10'000, bytes.size() - at));
      if (n <= 0) return;
      at += static_cast<std::size_t>(n);
    }
  });
  auto report = wait(box->archive_in("/workspace/in", std::move(reader)));
  writer.join();
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(must(box->read_file("/workspace/in/last")), "x");
}

TEST_F(Archives, TenThousandEntries) {
  auto box = sandbox();
  TarWriter tar;
  for (int i = 0; i < 10'000; ++i)
    tar.file("d" + std::to_string(i % 100) + "/f" + std::to_string(i), "x");
  auto report = unpack(*box, tar.finish());
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(report->entries, 10'000U);
  EXPECT_EQ(sh(*box, "find in -type f | wc -l").out, "10000\n");
  EXPECT_GT(pack(*box, "/workspace/in").size(), 10'000U * 512);
}

TEST_F(Archives, FilesBelongToTheUserAskedFor) {
  auto box = sandbox();
  ASSERT_TRUE(succeeded(unpack(*box, TarWriter().file("f", "x").finish())));
  EXPECT_EQ(must(box->stat("/workspace/in/f")).uid, 1000U);
  EXPECT_TRUE(
      failed_with(unpack(*box, TarWriter().file("f", "x").finish(), "/opt/in"), Errc::denied));
  ASSERT_TRUE(succeeded(unpack(*box, TarWriter().file("f", "x").finish(), "/opt/in", "root")));
}

// What cannot be read inside is not in the archive as something else, and the reader can tell.
TEST_F(Archives, UnreadableFileIsNotPassedOverInSilence) {
  auto from = sandbox();
  auto to = sandbox();
  sh(*from,
     "mkdir /workspace/t; chmod 777 /workspace/t; echo x > /workspace/t/a; chmod 600 "
     "/workspace/t/a",
     "root");
  auto report = unpack(*to, pack(*from, "/workspace/t"));
  EXPECT_FALSE(report) << "an archive that ends early looks like a whole one";
}

// A caller who stops reading frees the worker.
TEST_F(Archives, ReaderThatLeavesEndsTheWorker) {
  auto box = sandbox();
  must(box->write_file("/workspace/big", noise(8 << 20)));
  std::uint32_t before = must(box->usage()).pids;
  { UniqueFd pipe = must(box->archive_out("/workspace")); }
  EXPECT_TRUE(eventually([&] { return must(box->usage()).pids <= before; }))
      << must(box->usage()).pids;
}

// ---- hostile
// -------------------------------------------------------------------------------------

TEST_F(Archives, NamesThatLeadOutsideAreSkipped) {
  auto box = sandbox();
  TarWriter tar;
  tar.file("../escaped", "x").file("a/../../escaped", "x").file("..", "x").file("ok/..", "x");
  tar.hard_link("passwd", "../../etc/passwd").hard_link("passwd2", "/../etc/passwd");
  tar.file("good", "good");
  auto report = unpack(*box, tar.finish());
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(report->entries, 1U);
  EXPECT_EQ(report->skipped, 6U);
  EXPECT_THAT(report->reasons, Contains(HasSubstr("../escaped: ")));
  EXPECT_EQ(sh(*box, "ls; find in -type f").out, "in\nin/good\n");
}

TEST_F(Archives, AbsoluteNamesLandBelow) {
  auto box = sandbox();
  auto report = unpack(*box, TarWriter().file("/etc/passwd", "mine").file("//tmp//x", "y").finish(),
                       "/workspace/in", "root");
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(must(box->read_file("/workspace/in/etc/passwd")), "mine");
  EXPECT_THAT(must(box->read_file("/etc/passwd")), HasSubstr("root:"));
  EXPECT_TRUE(failed_with(wait(box->stat("/tmp/x")), Errc::not_found));
}

TEST_F(Archives, NothingIsWrittenThroughALink) {
  auto box = sandbox();
  must(box->write_file("/workspace/target/f", "before"));
  TarWriter tar;
  tar.symlink("out", "/workspace/target").file("out/f", "through");
  tar.symlink("file", "/workspace/target/f").file("file", "replaced");
  tar.symlink("up", "..").file("up/escaped", "x").directory("up/dir");
  tar.symlink("a", "b").symlink("b", "/workspace/target").hard_link("a/g", "file");
  tar.symlink("through", "/workspace/target").hard_link("linked", "through/f");
  auto report = unpack(*box, tar.finish());
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(must(box->read_file("/workspace/target/f")), "before");
  EXPECT_EQ(must(box->read_file("/workspace/in/file")), "replaced");
  EXPECT_EQ(sh(*box, "ls /workspace /workspace/target").out,
            "/workspace:\nin\ntarget\n\n/workspace/target:\nf\n");
  EXPECT_TRUE(failed_with(wait(box->stat("/workspace/in/linked")), Errc::not_found));
}

TEST_F(Archives, ExistingLinksAreNotFollowedEither) {
  auto box = sandbox();
  sh(*box, "mkdir target in; echo before > target/f; ln -s ../target in/d; ln -s ../target/f in/f");
  auto report = unpack(*box, TarWriter().file("d/f", "x").file("f", "new").finish());
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(must(box->read_file("/workspace/target/f")), "before\n");
  EXPECT_EQ(must(box->read_file("/workspace/in/f")), "new");
}

TEST_F(Archives, DevicesAndFifosAreSkipped) {
  auto box = sandbox();
  TarWriter tar;
  tar.entry("null", '3').entry("disk", '4').entry("fifo", '6').file("f", "x");
  auto report = unpack(*box, tar.finish(), "/workspace/in", "root");
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(report->skipped, 3U);
  EXPECT_EQ(sh(*box, "ls in").out, "f\n");
}

TEST_F(Archives, SetuidBitsAreDropped) {
  auto box = sandbox();
  ASSERT_TRUE(
      succeeded(unpack(*box, TarWriter().file("su", "x", 06755).directory("d", 02755).finish(),
                       "/workspace/in", "root")));
  EXPECT_EQ(must(box->stat("/workspace/in/su")).mode, 0755U);
}

TEST_F(Archives, LastOfEqualNamesWins) {
  auto box = sandbox();
  TarWriter tar;
  tar.file("f", "first").file("f", "second").file("./f", "third").directory("d").file("d/x", "x");
  auto report = unpack(*box, tar.finish());
  ASSERT_TRUE(succeeded(report));
  EXPECT_EQ(must(box->read_file("/workspace/in/f")), "third");
  // A file where a full directory is, and the other way round, are skipped, not forced.
  report = unpack(*box, TarWriter().file("d", "x").directory("f").file("f/below", "x").finish());
  ASSERT_TRUE(succeeded(report));
  EXPECT_GE(report->skipped, 2U);
  EXPECT_EQ(must(box->read_file("/workspace/in/d/x")), "x");
}

TEST_F(Archives, TruncatedStreamIsInvalid) {
  auto box = sandbox();
  std::string bytes =
      TarWriter().file("a", "whole").file("b", std::string(100'000, 'b')).unfinished();
  EXPECT_TRUE(failed_with(unpack(*box, bytes.substr(0, bytes.size() - 50'000)), Errc::invalid));
  EXPECT_TRUE(failed_with(unpack(*box, bytes.substr(0, 700)), Errc::invalid));
  EXPECT_TRUE(
      failed_with(unpack(*box, TarWriter().header_only("f", 1ULL << 40).finish()), Errc::invalid));
  std::string packed = gzip(TarWriter().file("a", "whole").file("b", noise(100'000)).finish());
  EXPECT_TRUE(failed_with(unpack(*box, packed.substr(0, packed.size() / 2)), Errc::invalid));
  EXPECT_EQ(sh(*box, "echo alive").out, "alive\n");
}

TEST_F(Archives, GarbageIsInvalid) {
  auto box = sandbox();
  EXPECT_TRUE(failed_with(unpack(*box, noise(100'000)), Errc::invalid));
  EXPECT_TRUE(failed_with(unpack(*box, "not an archive"), Errc::invalid));
  must(box->ping());
}

// Something that is no archive at all ends the call, too.
TEST_F(Archives, NothingAtAllIsAnAnswer) {
  auto box = sandbox();
  auto nothing = unpack(*box, "");
  if (nothing)
    EXPECT_EQ(nothing->entries, 0U);
  else
    EXPECT_EQ(nothing.error().code, Errc::invalid);
}

TEST_F(Archives, BombFillsTheDiskLimitAndNoMore) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.limits.disk_bytes = 32 << 20;
  auto box = sandbox(spec);
  // Below the limit of one file, or another limit would end it first.
  TarWriter tar;
  std::string zeros(16 << 20, '\0');
  for (int i = 0; i < 4; ++i) tar.file("zeros" + std::to_string(i), zeros);
  std::string bomb = gzip(tar.finish());
  ASSERT_LT(bomb.size(), 1U << 20);
  auto report = unpack(*box, bomb);
  EXPECT_TRUE(failed_with(report, Errc::exhausted));
  EXPECT_LE(must(box->usage()).disk_bytes, 32ULL << 20);
  EXPECT_EQ(sh(*box, "echo alive").out, "alive\n");
  must(box->remove("/workspace/in"));
  must(box->write_file("/workspace/f", "room again"));
}

TEST_F(Archives, FileBiggerThanTheDiskIsExhausted) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.limits.disk_bytes = 32 << 20;
  auto box = sandbox(spec);
  std::string bomb =
      gzip(TarWriter().header_only("zeros", 256ULL << 20).unfinished(), 256ULL << 20);
  ASSERT_LT(bomb.size(), 1U << 20);
  auto started = Clock::now();
  EXPECT_TRUE(failed_with(unpack(*box, bomb), Errc::exhausted));
  EXPECT_LT(since(started), 20s);
  must(box->ping());
}

TEST_F(Archives, ThousandLevelsDeepAreBounded) {
  auto box = sandbox();
  std::string name;
  while (name.size() < 90) name += "d/";
  TarWriter tar;
  tar.file(name + "f", "x");
  ASSERT_TRUE(succeeded(unpack(*box, tar.finish())));
  auto made = sandbox_with_tool();
  ASSERT_TRUE(must(made->run(tool({"deep", "/workspace", "1000"}))).status.ok());
  (void)pack(*made, "/workspace");
  must(made->ping());
}

}  // namespace
}  // namespace asr::test
