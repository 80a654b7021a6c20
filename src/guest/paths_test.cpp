#include "guest/paths.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/id.hpp"
#include "os/file.hpp"

namespace asr {
namespace {

namespace fs = std::filesystem;

TEST(Paths, TheRootHasManyNames) {
  for (const char* path : {"/", "//", "///", ""}) EXPECT_TRUE(is_root(path)) << path;
  for (const char* path : {"/a", "a", "/.", ".."}) EXPECT_FALSE(is_root(path)) << path;
}

TEST(Paths, InsideMeansAWholeComponent) {
  EXPECT_TRUE(is_inside("/a/b", "/a"));
  EXPECT_TRUE(is_inside("/a", "/a"));
  EXPECT_TRUE(is_inside("/a/", "/a//"));
  EXPECT_FALSE(is_inside("/ab", "/a"));
  EXPECT_FALSE(is_inside("/", "/a"));
  EXPECT_TRUE(is_inside("/a", "/"));
}

class SandboxPaths : public testing::Test {
 protected:
  SandboxPaths() : dir_(fs::temp_directory_path() / ("asr-paths-" + random_name(10))) {
    fs::create_directories(dir_);
  }
  ~SandboxPaths() override { EXPECT_TRUE(remove_tree(AT_FDCWD, dir_.native())); }
  std::string in(const std::string& name) const { return dir_.native() + "/" + name; }
  fs::path dir_;
};

TEST_F(SandboxPaths, AParentIsOpenedAndTheNameLeftAlone) {
  fs::create_symlink("nowhere", in("link"));
  for (const char* name : {"link", "link/", "link///"}) {
    auto place = resolve_parent(in(name));
    ASSERT_TRUE(place) << name;
    EXPECT_EQ(place->name, "link");
    struct stat info {};
    EXPECT_EQ(::fstatat(place->parent.get(), place->name.c_str(), &info, AT_SYMLINK_NOFOLLOW), 0);
  }
}

TEST_F(SandboxPaths, NamesOfNothingAreRefused) {
  for (const std::string& path :
       {std::string(), std::string("/"), std::string("///"), std::string("."), std::string(".."),
        in("."), in(".."), in("../"), in("a/..")})
    EXPECT_EQ(resolve_parent(path).error().code, Errc::invalid) << path;
  EXPECT_EQ(resolve_parent(in("missing/file")).error().code, Errc::not_found);
}

TEST_F(SandboxPaths, MissingParentsAreMade) {
  EXPECT_TRUE(make_parents(in("a/b/c/file")));
  EXPECT_TRUE(fs::is_directory(in("a/b/c")));
  EXPECT_FALSE(fs::exists(in("a/b/c/file")));
  EXPECT_TRUE(make_parents(in("a/b/c/file"))) << "a second time changes nothing";
  EXPECT_TRUE(make_parents("/file"));
}

TEST_F(SandboxPaths, AFileOnTheWayIsAnError) {
  UniqueFd file(::open(in("file").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  EXPECT_FALSE(make_parents(in("file/below/name")));
  EXPECT_FALSE(resolve_parent(in("file/name")));
}

// A name has at most 4096 bytes, so 2048 levels: each costs a stack frame and nothing else.
TEST_F(SandboxPaths, DeepNamesDoNotOverflow) {
  std::string deep = dir_.native();
  while (deep.size() < 4000) deep += "/d";
  EXPECT_TRUE(make_parents(deep));
}

}  // namespace
}  // namespace asr
