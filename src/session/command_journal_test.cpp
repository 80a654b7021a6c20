#include "session/command_journal.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "base/id.hpp"

namespace asr {
namespace {

namespace fs = std::filesystem;
using Stream = OutputChunk::Stream;

class Journal : public testing::Test {
 protected:
  Journal() : folder_(fs::temp_directory_path() / ("asr-journal-" + random_name(10))) {}
  ~Journal() override { fs::remove_all(folder_); }

  fs::path file() const { return folder_ / "sub" / "commands"; }
  CommandJournal open() {
    return {file(), [this](const Error& error) { complaints_.push_back(error.what); }};
  }
  std::vector<JournaledCommand> read() {
    auto all = CommandJournal::read(file(), kMostCommandOutput);
    EXPECT_TRUE(all) << (all ? "" : all.error().what);
    return all ? std::move(*all) : std::vector<JournaledCommand>();
  }

  fs::path folder_;
  std::vector<std::string> complaints_;
};

TEST_F(Journal, GivesBackWhatWasWritten) {
  CommandJournal journal = open();
  journal.began(1, {{"argv", json::array{"ls"}}});
  journal.wrote(1, Stream::out, "out");
  journal.began(2, {});
  journal.wrote(1, Stream::err, std::string("\0\xff", 2));
  ExitStatus status;
  status.reason = EndReason::out_of_memory;
  status.exit_code = 137;
  status.signal = 9;
  status.wall = std::chrono::nanoseconds(123456789);
  status.max_rss_bytes = 1ULL << 40;
  journal.ended(1, status);
  auto all = read();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].number, 1U);
  EXPECT_EQ(all[0].about.at("argv").at(0), "ls");
  EXPECT_EQ(all[0].output.text_of(Stream::out), "out");
  EXPECT_EQ(all[0].output.text_of(Stream::err), std::string("\0\xff", 2));
  ASSERT_TRUE(all[0].status);
  EXPECT_EQ(all[0].status->reason, EndReason::out_of_memory);
  EXPECT_EQ(all[0].status->exit_code, 137);
  EXPECT_EQ(all[0].status->wall, std::chrono::nanoseconds(123456789));
  EXPECT_EQ(all[0].status->max_rss_bytes, 1ULL << 40);
  EXPECT_FALSE(all[1].status);
  EXPECT_TRUE(complaints_.empty());
}

TEST_F(Journal, NothingIsMadeBeforeItIsNeeded) {
  CommandJournal journal = open();
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_TRUE(read().empty());
}

TEST_F(Journal, KeepsOnlyTheLastOfMuchOutput) {
  CommandJournal journal = open();
  journal.began(7, {});
  for (int i = 0; i < 40; ++i) journal.wrote(7, Stream::out, std::string(64 * 1024, 'a' + i % 26));
  auto all = read();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].output.end(), 40U * 64 * 1024);
  EXPECT_EQ(all[0].output.kept(), kMostCommandOutput);
}

TEST_F(Journal, ATornRecordIsCutOffAndOthersFollow) {
  for (int cut = 1; cut < 40; cut += 3) {
    fs::remove_all(folder_);
    CommandJournal journal = open();
    journal.began(1, {});
    journal.wrote(1, Stream::out, "whole");
    auto size = fs::file_size(file());
    journal.wrote(1, Stream::out, std::string(24, 'x'));
    fs::resize_file(file(), size + static_cast<std::uintmax_t>(cut));
    ASSERT_EQ(read().at(0).output.text_of(Stream::out), "whole") << cut;
    CommandJournal next = open();
    next.wrote(1, Stream::out, " more");
    EXPECT_EQ(read().at(0).output.text_of(Stream::out), "whole more") << cut;
  }
}

TEST_F(Journal, IsWrittenAnewWhenMostOfItIsNotWanted) {
  CommandJournal journal = open();
  bool asked = false;
  journal.when_large([&] { asked = true; });
  journal.began(1, {});
  journal.wrote(1, Stream::out, std::string(5 << 20, 'x'));
  journal.settle();
  ASSERT_TRUE(asked);
  journal.save_room(1000, [](CommandJournal& fresh) {
    fresh.began(1, {}, 5000);
    fresh.wrote(1, Stream::out, "rest");
  });
  EXPECT_LT(fs::file_size(file()), 200U);
  journal.wrote(1, Stream::out, "!");
  auto all = read();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].output.begin(), 5000U);
  EXPECT_EQ(all[0].output.text_of(Stream::out), "rest!");
  EXPECT_FALSE(fs::exists(file().native() + ".new"));
}

TEST_F(Journal, IsLeftAloneWhileItIsWanted) {
  CommandJournal journal = open();
  journal.began(1, {});
  journal.wrote(1, Stream::out, std::string(5 << 20, 'x'));
  auto size = fs::file_size(file());
  journal.save_room(4 << 20, [](CommandJournal&) { FAIL(); });
  EXPECT_EQ(fs::file_size(file()), size);
}

TEST_F(Journal, SealedItIsTheNextLifes) {
  CommandJournal journal = open();
  journal.began(1, {});
  journal.seal();
  journal.ended(1, {});
  EXPECT_FALSE(read().at(0).status);
}

TEST_F(Journal, WhatCannotBeWrittenIsTold) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "sub") << "a file where a folder should be";
  CommandJournal journal = open();
  journal.began(1, {});
  EXPECT_EQ(complaints_.size(), 1U);
}

TEST_F(Journal, AFullDiskLeavesNoHalfRecord) {
  // /dev/full takes nothing: the file is a link to it.
  fs::create_directories(file().parent_path());
  fs::create_symlink("/dev/full", file());
  CommandJournal journal = open();
  journal.began(1, {});
  EXPECT_EQ(complaints_.size(), 1U);
}

TEST_F(Journal, DamageIsAnError) {
  fs::create_directories(file().parent_path());
  std::ofstream(file()) << std::string(64, '\xff');
  EXPECT_FALSE(CommandJournal::read(file(), kMostCommandOutput));
}

}  // namespace
}  // namespace asr
