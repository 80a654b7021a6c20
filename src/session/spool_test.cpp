#include "session/spool.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <optional>

#include "session/command_journal.hpp"
#include "session/history.hpp"
#include "session/history_reader.hpp"

namespace asr {
namespace {

namespace fs = std::filesystem;

class SpoolTest : public testing::Test {
 protected:
  SpoolTest() {
    std::string pattern = testing::TempDir() + "spool-XXXXXX";
    storage_ = ::mkdtemp(pattern.data());
    spool_ = std::make_shared<Spool>(storage_);
  }
  ~SpoolTest() override { fs::remove_all(storage_); }

  // As the next life of the server does it.
  void recover() {
    spool_ = std::make_shared<Spool>(storage_);
    auto is_wanted = [](const fs::path& file) { return file.parent_path().filename() != "gone"; };
    auto recovered = spool_->recover(is_wanted);
    EXPECT_TRUE(recovered) << recovered.error().what;
  }
  fs::path in(const std::string& session) const { return storage_ / "sessions" / session / "file"; }
  static std::string text_of(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  std::uintmax_t spooled_bytes() const {
    std::uintmax_t bytes = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(storage_))
      if (entry.is_regular_file()) bytes += entry.file_size();
    return bytes;
  }

  fs::path storage_;
  std::shared_ptr<Spool> spool_;
};

TEST_F(SpoolTest, NoFileIsMadeForWhatEndsSoon) {
  {
    SpooledFile file(spool_, in("a"));
    ASSERT_TRUE(file.append("one ", "two"));
    EXPECT_GT(spooled_bytes(), 0U);
  }
  EXPECT_EQ(spooled_bytes(), 0U);
  EXPECT_FALSE(fs::exists(storage_ / "sessions"));
}

// Somebody is always young, but nobody for long.
TEST_F(SpoolTest, WhatEndedGoesWithThoseThatWereYoungWithIt) {
  std::optional<SpooledFile> before;
  for (int i = 0; i < 100; ++i) {
    std::optional<SpooledFile> next;
    next.emplace(spool_, in(std::to_string(i)));
    ASSERT_TRUE(next->append("0123456789"));
    before.reset();
    before.emplace(spool_, in("long" + std::to_string(i)));
    ASSERT_TRUE(before->append("x"));
    spool_->turn();
  }
  EXPECT_LT(spooled_bytes(), 1000U);
}

TEST_F(SpoolTest, WhatWasWrittenSurvivesTheProcess) {
  SpooledFile a(spool_, in("a"));
  SpooledFile b(spool_, in("b"));
  SpooledFile gone(spool_, in("gone"));
  ASSERT_TRUE(a.append("one "));
  ASSERT_TRUE(b.append("other"));
  ASSERT_TRUE(gone.append("x"));
  ASSERT_TRUE(a.append("two\n\n"));
  recover();
  EXPECT_EQ(text_of(in("a")), "one two\n\n");
  EXPECT_EQ(text_of(in("b")), "other");
  EXPECT_FALSE(fs::exists(in("gone")));
  EXPECT_EQ(spooled_bytes(), 0U);
}

TEST_F(SpoolTest, WhatHasAFileIsNotWrittenAgain) {
  SpooledFile file(spool_, in("a"));
  ASSERT_TRUE(file.append("one"));
  ASSERT_TRUE(file.move_out());
  std::ofstream(in("a"), std::ios::app) << " more";
  SpooledFile moved(spool_, in("b"));
  ASSERT_TRUE(moved.append("one"));
  ASSERT_TRUE(moved.move_out());
  fs::remove(in("b"));
  recover();
  EXPECT_EQ(text_of(in("a")), "one more");
  EXPECT_FALSE(fs::exists(in("b")));
}

TEST_F(SpoolTest, ARecordThatWasNotWrittenToItsEndIsTheLast) {
  SpooledFile file(spool_, in("a"));
  ASSERT_TRUE(file.append("whole"));
  ASSERT_TRUE(file.append("torn"));
  for (const fs::directory_entry& entry : fs::directory_iterator(storage_))
    fs::resize_file(entry.path(), entry.file_size() - 1);
  recover();
  EXPECT_EQ(text_of(in("a")), "whole");
}

TEST_F(SpoolTest, IsNoLargerThanItsUsersNeed) {
  std::string text(8 << 10, 'x');
  SpooledFile stays(spool_, in("stays"));
  ASSERT_TRUE(stays.append("first "));
  for (int i = 0; i < 3000; ++i) {
    SpooledFile file(spool_, in(std::to_string(i)));
    ASSERT_TRUE(file.append(text));
  }
  ASSERT_TRUE(stays.append("last"));
  EXPECT_LT(spooled_bytes(), 10U << 20);
  recover();
  EXPECT_EQ(text_of(in("stays")), "first last");
}

TEST_F(SpoolTest, JournalsBeginThereAndMoveOutWhenTheyGrow) {
  fs::path path = storage_ / "sessions" / "a" / "commands";
  auto complain = [](const Error& error) { ADD_FAILURE() << error.what; };
  CommandJournal journal(path, complain, spool_);
  journal.began(1, {{"argv", json::array{"ls"}}});
  journal.wrote(1, OutputChunk::Stream::out, "young ");
  EXPECT_FALSE(fs::exists(path));
  std::string much(SpooledFile::kMost, 'x');
  journal.wrote(1, OutputChunk::Stream::out, much);
  journal.ended(1, ExitStatus());
  auto all = CommandJournal::read(path, kMostCommandOutput);
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 1U);
  EXPECT_EQ(all->front().output.text_of(OutputChunk::Stream::out), "young " + much);
  EXPECT_TRUE(all->front().status);
}

TEST_F(SpoolTest, JournalsThatAreLeftThereAreFoundByTheNextLife) {
  fs::path path = storage_ / "sessions" / "a" / "commands";
  auto complain = [](const Error& error) { ADD_FAILURE() << error.what; };
  CommandJournal journal(path, complain, spool_);
  journal.began(1, {{"argv", json::array{"ls"}}});
  journal.seal();
  recover();
  auto all = CommandJournal::read(path, kMostCommandOutput);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->size(), 1U);
}

TEST_F(SpoolTest, HistoriesGoOnWhereTheyMovedOut) {
  fs::path folder = storage_ / "sessions" / "a";
  auto complain = [](const Error& error) { ADD_FAILURE() << error.what; };
  auto about = [] { return json::object{{"kind", "session"}}; };
  History history(folder, 1 << 20, about, complain, spool_);
  history.add({{"kind", "command"}, {"stdout", "one"}});
  EXPECT_FALSE(fs::exists(folder));
  history.add({{"kind", "command"}, {"stdout", std::string(SpooledFile::kMost, 'x')}});
  history.add({{"kind", "command"}, {"stdout", "three"}});
  auto reader = HistoryReader::open(folder);
  ASSERT_TRUE(reader);
  auto page = reader->page(0, 100, 1 << 20);
  ASSERT_TRUE(page);
  ASSERT_EQ(page->steps.size(), 3U);
  EXPECT_TRUE(page->steps[0].starts_with("{\"number\":1,"));
  EXPECT_TRUE(page->steps[2].starts_with("{\"number\":3,"));
}

}  // namespace
}  // namespace asr
