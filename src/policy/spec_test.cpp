#include "policy/spec.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace asr {
namespace {

using namespace std::string_literals;

using namespace std::chrono_literals;

TEST(Spec, EnvironmentsComeBackAsTheyAreWritten) {
  for (const char* text : {"host", "folder:/srv/root", "tar:/tmp/a b.tar.zst", "folder:tar:/x"})
    EXPECT_EQ(to_string(*parse_environment(text)), text);
  EXPECT_EQ(parse_environment("tar:/x")->kind, Environment::Kind::tarball);
}

TEST(Spec, UnknownWordsAreRefusedWithAHint) {
  for (const char* text : {"", "hosts", "Host", "folder", "image:debian", "/srv/root"}) {
    auto environment = parse_environment(text);
    ASSERT_FALSE(environment) << text;
    EXPECT_FALSE(environment.error().hint.empty()) << text;
  }
  EXPECT_FALSE(parse_environment("folder:"));
  EXPECT_FALSE(parse_environment("tar:"));
  EXPECT_FALSE(parse_preset("loose"));
  EXPECT_FALSE(parse_tier(""));
}

TEST(Spec, PresetsAndTiersComeBackAsTheyAreWritten) {
  for (Preset preset : {Preset::strict, Preset::standard})
    EXPECT_EQ(*parse_preset(to_string(preset)), preset);
  for (SyscallTier tier : {SyscallTier::strict, SyscallTier::browser})
    EXPECT_EQ(*parse_tier(to_string(tier)), tier);
}

TEST(Spec, BothPresetsCanWork) {
  EXPECT_TRUE(check(spec_of(Preset::strict)));
  EXPECT_TRUE(check(spec_of(Preset::standard)));
  EXPECT_EQ(spec_of(Preset::strict).root, RootMode::read_only);
  EXPECT_EQ(spec_of(Preset::strict).network, Network::none);
  EXPECT_EQ(spec_of(Preset::strict).limits.wall_time, 5s);
  SandboxSpec nowhere;
  nowhere.environment.kind = Environment::Kind::folder;
  EXPECT_FALSE(check(nowhere));
}

// Handing out a sandbox with another's limits or files would be a hole; a pool for each time limit
// a waste.
TEST(Spec, APoolKeyHoldsAllThatASandboxIsMadeOf) {
  const std::function<void(SandboxSpec&)> kMatters[] = {
      [](SandboxSpec& s) {
        s.environment = {Environment::Kind::folder, "/a"};
      },
      [](SandboxSpec& s) {
        s.environment = {Environment::Kind::tarball, "/a"};
      },
      [](SandboxSpec& s) { s.root = RootMode::read_only; },
      [](SandboxSpec& s) { s.network = Network::none; },
      [](SandboxSpec& s) { s.network = Network::proxied; },
      [](SandboxSpec& s) { s.network = Network::full; },
      [](SandboxSpec& s) {
        s.network = Network::proxied;
        s.proxy_port = 8080;
      },
      [](SandboxSpec& s) { s.tier = SyscallTier::browser; },
      [](SandboxSpec& s) { ++s.limits.memory_bytes; },
      [](SandboxSpec& s) { ++s.limits.milli_cpus; },
      [](SandboxSpec& s) { ++s.limits.pids; },
      [](SandboxSpec& s) { ++s.limits.disk_bytes; },
      [](SandboxSpec& s) { ++s.limits.inodes; },
      [](SandboxSpec& s) { ++s.limits.open_files; },
  };
  std::set<std::string> keys{pool_key(SandboxSpec{})};
  for (const auto& change : kMatters) {
    SandboxSpec spec;
    change(spec);
    keys.insert(pool_key(spec));
  }
  EXPECT_EQ(keys.size(), 1 + std::size(kMatters));
  SandboxSpec timed;
  timed.limits.wall_time = 1s;
  timed.limits.cpu_time = 1s;
  timed.limits.output_bytes = 1;
  EXPECT_EQ(pool_key(timed), pool_key(SandboxSpec{}));
}

// A path that looks like the rest of a key must not make two specs one.
TEST(Spec, APathCannotForgeAKey) {
  SandboxSpec forged;
  forged.environment = {Environment::Kind::folder, "/a|0|1|0"};
  SandboxSpec plain;
  plain.environment = {Environment::Kind::folder, "/a"};
  EXPECT_NE(pool_key(forged), pool_key(plain));
}

TEST(Spec, VolumesAppearOnlyWhereTheyMay) {
  auto at = [](std::string target) {
    SandboxSpec spec;
    spec.volumes.push_back({"data", std::move(target), false});
    return check(spec).has_value();
  };
  for (const char* target : {"/data", "/workspace", "/workspace/a/b", "/home/user/x", "/mnt/x",
                             "/opt/models", "/var/lib/x", "/procession"})
    EXPECT_TRUE(at(target)) << target;
  for (const char* target :
       {"",         "/",         "data",   "./data", "/proc", "/proc/x",  "/dev/shm",
        "/usr/lib", "/etc",      "/etc/x", "/sys/x", "/bin",  "/lib64/x", "/run/x",
        "/tmp",     "/a/../etc", "/..",    "/a/./b", "/a//b", "/a/",      "//a"})
    EXPECT_FALSE(at(target)) << target;
  EXPECT_FALSE(at("/data\0x"s));
  EXPECT_FALSE(at("/" + std::string(300, 'a')));
}

TEST(Spec, StorageHasPlainRelativeNames) {
  for (const char* path : {"a", "a/b", "tenant/disk.img", "a..b", "..a"})
    EXPECT_TRUE(check_storage_path(path)) << path;
  for (const char* path : {"", "/a", "../a", "a/../b", "a/", ".", "a//b", "./a"})
    EXPECT_FALSE(check_storage_path(path)) << path;
  SandboxSpec spec;
  spec.disk = PersistentDisk{"../x"};
  EXPECT_FALSE(check(spec));
}

TEST(Spec, VolumesAreFewAndDoNotHideEachOther) {
  SandboxSpec spec;
  spec.volumes = {{"a", "/data", false}, {"b", "/data", true}};
  EXPECT_FALSE(check(spec));
  spec.volumes.clear();
  for (int i = 0; i < 9; ++i) spec.volumes.push_back({"a", "/v" + std::to_string(i), false});
  EXPECT_FALSE(check(spec));
  spec.volumes.pop_back();
  EXPECT_TRUE(check(spec));
}

TEST(Spec, ADiskMayBeLargerThanMemory) {
  SandboxSpec spec;
  spec.limits.disk_bytes = spec.limits.memory_bytes * 10;
  EXPECT_FALSE(check(spec));
  spec.disk = PersistentDisk{"d"};
  EXPECT_TRUE(check(spec));
  spec.limits.disk_bytes = 1 << 20;
  EXPECT_FALSE(check(spec)) << "too small for a file system";
  EXPECT_FALSE(can_be_pooled(spec));
}

}  // namespace
}  // namespace asr
