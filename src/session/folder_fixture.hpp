// A folder to write to beside one that must not be, for the tests of both who do.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "session/folder_writer.hpp"

namespace asr {

namespace fs = std::filesystem;
using Kind = FolderStep::Kind;

inline UniqueFd file_with(std::string_view text) {
  UniqueFd fd(::memfd_create("contents", MFD_CLOEXEC));
  EXPECT_EQ(::pwrite(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return fd;
}

inline FolderStep file(std::string path, std::string_view text, std::uint32_t mode = 0644) {
  return {Kind::file, std::move(path), mode, text.size(), {}};
}
inline FolderStep folder(std::string path, std::uint32_t mode = 0755) {
  return {Kind::folder, std::move(path), mode, 0, {}};
}
inline FolderStep link(std::string path, std::string target) {
  return {Kind::link, std::move(path), 0777, 0, std::move(target)};
}
inline FolderStep removal(std::string path) { return {Kind::removal, std::move(path), 0, 0, {}}; }

class FolderWriterTest : public testing::Test {
 protected:
  FolderWriterTest() {
    std::string pattern = (fs::temp_directory_path() / "folder-writer-XXXXXX").native();
    base_ = ::mkdtemp(pattern.data());
    fs::create_directory(base_ / "in");
    fs::create_directory(base_ / "out");
    write(base_ / "out/secret", "canary");
  }
  ~FolderWriterTest() override {
    std::error_code ec;
    fs::remove_all(base_, ec);
  }

  fs::path in() const { return base_ / "in"; }
  static void write(const fs::path& path, std::string_view text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  static std::string read(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  // Everything in there, by name: what a file holds, where a link leads, "/" for a folder.
  std::map<std::string, std::string> all() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(in())) {
      std::string name = entry.path().lexically_relative(in());
      if (entry.is_symlink())
        found[name] = "-> " + fs::read_symlink(entry.path()).native();
      else
        found[name] = entry.is_directory() ? "/" : read(entry.path());
    }
    return found;
  }

  FolderWriter writer(FolderRules rules = {}) const {
    UniqueFd fd(::open(in().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    auto opened = FolderWriter::open(std::move(fd), rules);
    EXPECT_TRUE(opened);
    return *std::move(opened);
  }

  struct Step {
    FolderStep step;
    std::string text;
  };
  static Result<std::vector<FolderWriter::Done>> make(FolderWriter& writer,
                                                      const std::vector<Step>& steps) {
    for (const Step& each : steps) TRY(writer.check(each.step));
    for (const Step& each : steps) {
      UniqueFd contents = file_with(each.text);
      TRY(writer.prepare(each.step, contents.get()));
    }
    return writer.commit();
  }

  fs::path base_;
};

}  // namespace asr
