#include "session/history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "session/content_hash.hpp"
#include "session/history_reader.hpp"
#include "session/history_steps.hpp"

namespace asr {
namespace {

using testing::HasSubstr;
using testing::Not;

class HistoryTest : public testing::Test {
 protected:
  HistoryTest() {
    std::string pattern = testing::TempDir() + "history-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~HistoryTest() override { std::filesystem::remove_all(folder_); }

  History make(std::uint64_t most_bytes = 1 << 20) {
    return {folder_ / "of", most_bytes,
            [] {
              return json::object{{"kind", "session"}};
            },
            [this](const Error& error) { problems_.push_back(error.what); }};
  }
  static json::object step(const std::string& text) {
    return {{"kind", "command"}, {"stdout", text}};
  }
  HistoryReader read() {
    auto reader = HistoryReader::open(folder_ / "of");
    EXPECT_TRUE(reader) << reader.error().what;
    return std::move(*reader);
  }
  static std::vector<std::string> texts(const HistoryReader::Page& page) {
    std::vector<std::string> all;
    for (const std::string& line : page.steps) {
      auto parsed = parse_json(line);
      EXPECT_TRUE(parsed) << line;
      all.emplace_back(parsed->at("stdout").as_string());
    }
    return all;
  }
  std::uintmax_t size_of(const char* name) {
    std::error_code ec;
    auto size = std::filesystem::file_size(folder_ / "of" / name, ec);
    return ec ? 0 : size;
  }
  void append(std::string_view text) {
    std::ofstream file(folder_ / "of" / kHistoryFile, std::ios::app | std::ios::binary);
    file << text;
  }

  std::filesystem::path folder_;
  std::vector<std::string> problems_;
};

TEST_F(HistoryTest, NothingIsMadeBeforeSomethingIsDone) {
  { History history = make(); }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "of"));
  EXPECT_EQ(read().last(), 0U);
  EXPECT_FALSE(read().about());
}

TEST_F(HistoryTest, StepsAreNumberedAndPrivate) {
  History history = make();
  for (const char* text : {"one", "two", "three"}) history.add(step(text));
  HistoryReader reader = read();
  EXPECT_EQ(reader.first(), 1U);
  EXPECT_EQ(reader.last(), 3U);
  EXPECT_EQ(reader.dropped(), 0U);
  EXPECT_EQ(reader.about()->at("kind").as_string(), "session");
  struct stat info {};
  ASSERT_EQ(::stat((folder_ / "of" / kHistoryFile).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_TRUE(problems_.empty());
}

TEST_F(HistoryTest, PagesGoOnWhereTheyEnded) {
  History history = make();
  for (int i = 1; i <= 25; ++i)
    history.add(step(std::string(static_cast<std::size_t>(i * 37), 'x')));
  HistoryReader reader = read();
  std::vector<std::size_t> sizes;
  std::optional<std::uint64_t> from = 1;
  while (from) {
    auto page = reader.page(*from, 4, 1 << 20);
    ASSERT_TRUE(page) << page.error().what;
    EXPECT_LE(page->steps.size(), 4U);
    for (const std::string& text : texts(*page)) sizes.push_back(text.size());
    from = page->next;
  }
  ASSERT_EQ(sizes.size(), 25U);
  for (std::size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(sizes[i], (i + 1) * 37);
  EXPECT_EQ(texts(*reader.page(25, 100, 1 << 20)), std::vector{std::string(25 * 37, 'x')});
  EXPECT_TRUE(reader.page(26, 100, 1 << 20)->steps.empty());
  EXPECT_EQ(reader.page(1, 100, 1)->steps.size(), 1U) << "a page has one step, however long";
}

TEST_F(HistoryTest, GoesOnAfterTheProcess) {
  {
    History history = make();
    history.add(step("before"));
  }
  History history = make();
  history.add(step("after"));
  HistoryReader reader = read();
  EXPECT_EQ(texts(*reader.page(1, 10, 1 << 20)), (std::vector<std::string>{"before", "after"}));
  EXPECT_EQ(reader.last(), 2U);
}

TEST_F(HistoryTest, ALineThatWasNotWrittenToItsEndIsDropped) {
  make().add(step("whole"));
  std::string torn = history_line(2, R"({"kind":"command","stdout":"torn"})");
  append(torn.substr(0, torn.size() - 5));
  EXPECT_EQ(texts(*read().page(1, 10, 1 << 20)), std::vector<std::string>{"whole"})
      << "by whoever reads first";
  make().add(step("next"));
  HistoryReader reader = read();
  EXPECT_EQ(texts(*reader.page(1, 10, 1 << 20)), (std::vector<std::string>{"whole", "next"}));
  EXPECT_EQ(reader.last(), 2U);
  EXPECT_TRUE(problems_.empty());
}

TEST_F(HistoryTest, EvenTheFirstLineMayBeTorn) {
  std::filesystem::create_directories(folder_ / "of");
  append("{\"number\":0,\"kind\":\"sess");
  EXPECT_EQ(read().last(), 0U);
  make().add(step("first"));
  HistoryReader reader = read();
  EXPECT_EQ(reader.about()->at("kind").as_string(), "session");
  EXPECT_EQ(texts(*reader.page(1, 10, 1 << 20)), std::vector<std::string>{"first"});
}

TEST_F(HistoryTest, TheOldestMakeRoomAndThatIsTold) {
  constexpr std::uint64_t kMost = 128 << 10;
  History history = make(kMost);
  std::string text(5000, 'x');
  for (int i = 0; i < 200; ++i) {
    history.add(step(text));
    ASSERT_LE(size_of(kHistoryFile) + size_of(kOldHistoryFile), kMost);
  }
  HistoryReader reader = read();
  EXPECT_EQ(reader.last(), 200U);
  EXPECT_GT(reader.dropped(), 100U);
  EXPECT_EQ(reader.first(), reader.dropped() + 1);
  EXPECT_TRUE(reader.about());
  auto all = reader.page(0, 1000, 1 << 20);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->steps.size(), 200 - reader.dropped()) << "across both files";
  EXPECT_GT(all->steps.size(), 10U);
  auto later = reader.page(199, 1000, 1 << 20);
  EXPECT_EQ(later->steps.size(), 2U);
  // Killed after it has made room.
  std::filesystem::rename(folder_ / "of" / kHistoryFile, folder_ / "of" / kOldHistoryFile);
  make(kMost).add(step("next"));
  EXPECT_EQ(read().last(), 201U);
  EXPECT_TRUE(problems_.empty());
}

TEST_F(HistoryTest, AStepThatIsTooLargeIsToldInBrief) {
  History history = make(History::kLeastBytes);
  json::object large = step(std::string(History::kLeastBytes, 'x'));
  large["status"] = "exited";
  history.add(large);
  auto page = read().page(1, 10, 1 << 20);
  ASSERT_EQ(page->steps.size(), 1U);
  EXPECT_THAT(page->steps[0], HasSubstr("\"left_out\":\"it was too large\""));
  EXPECT_THAT(page->steps[0], HasSubstr("\"status\":\"exited\""));
  EXPECT_THAT(page->steps[0], Not(HasSubstr("xxxx")));
}

TEST_F(HistoryTest, AHeadingWithTooManyFilesIsShortened) {
  json::array files;
  for (int i = 0; i < 1000; ++i) files.push_back(json::object{{"path", std::string(100, 'p')}});
  History history(
      folder_ / "of", History::kLeastBytes,
      [&] {
        return json::object{{"kind", "session"}, {"files", files}};
      },
      [](const Error& error) { FAIL() << error.what; });
  history.begin();
  EXPECT_EQ(read().about()->at("files_left_out").as_int64(), 1000);
}

TEST_F(HistoryTest, SealedItBelongsToSomebodyElse) {
  History history = make();
  history.add(step("one"));
  history.seal();
  history.add(step("two"));
  EXPECT_EQ(read().last(), 1U);
}

TEST_F(HistoryTest, DamageIsAnErrorAndNothingWorse) {
  make().add(step("one"));
  append("no JSON at all\n");
  EXPECT_FALSE(HistoryReader::open(folder_ / "of"));
  make().add(step("two"));
  EXPECT_EQ(problems_.size(), 1U);
}

TEST(ContentHash, KnowsAContentAgain) {
  ContentHash hash;
  hash.feed("a");
  hash.feed("bc");
  json::object out;
  hash.describe(out);
  EXPECT_EQ(out.at("size").to_number<int>(), 3);
  EXPECT_EQ(out.at("sha256").as_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_FALSE(out.contains("sha256_bytes"));
}

TEST(ContentHash, ALongOneByItsBeginning) {
  std::string block(1 << 20, 'x');
  ContentHash one;
  ContentHash other;
  for (std::uint64_t fed = 0; fed < ContentHash::kHashed; fed += block.size()) {
    one.feed(block);
    other.feed(block);
  }
  other.feed("y");
  json::object whole;
  json::object longer;
  one.describe(whole);
  other.describe(longer);
  EXPECT_EQ(whole.at("sha256"), longer.at("sha256"));
  EXPECT_FALSE(whole.contains("sha256_bytes"));
  EXPECT_EQ(longer.at("sha256_bytes").to_number<std::uint64_t>(), ContentHash::kHashed);
  EXPECT_EQ(longer.at("size").to_number<std::uint64_t>(), ContentHash::kHashed + 1);
}

json::object cell_answer(std::string out, json::array results) {
  return {{"context_id", "python"},
          {"language", "python"},
          {"status", "ok"},
          {"stdout", std::move(out)},
          {"stderr", ""},
          {"truncated", false},
          {"results", std::move(results)},
          {"error", nullptr},
          {"execution_count", 1},
          {"duration_ms", 1.5},
          {"restarted", false},
          {"artifacts", json::array()}};
}

TEST(HistorySteps, OutputIsCutInFrontBetweenCharacters) {
  std::string text;
  while (text.size() <= kMostStepOutput) text += "ä";
  text += "end";
  CellRequest request;
  request.code = "print()";
  json::object step = cell_step(facts_of(request), cell_answer(text, {}));
  std::string_view kept(step.at("stdout").as_string());
  EXPECT_LE(kept.size(), kMostStepOutput);
  EXPECT_TRUE(kept.ends_with("end"));
  EXPECT_TRUE(is_utf8(kept));
  EXPECT_EQ(step.at("stdout_cut").to_number<std::size_t>(), text.size() - kept.size());
  EXPECT_FALSE(step.contains("stdout_base64"));
}

TEST(HistorySteps, ALongResultIsKnownByItsHash) {
  std::string picture(kMostStepOutput + 1, 'p');
  json::array results{
      json::object{{"is_main", true}, {"text/plain", "<Figure>"}, {"image/png", picture}}};
  CellRequest request;
  json::object step = cell_step(facts_of(request), cell_answer("", results));
  const json::object& kept = step.at("results").at(0).as_object();
  EXPECT_EQ(kept.at("text/plain").as_string(), "<Figure>");
  EXPECT_EQ(kept.at("image/png").at("left_out").at("size").to_number<std::size_t>(),
            picture.size());
  EXPECT_EQ(kept.at("is_main"), json::value(true));
}

TEST(HistorySteps, SecretsAreNotTaken) {
  CellRequest request;
  request.code = "import os";
  request.env = {{"TOKEN", "canary"}};
  request.files = {{"/workspace/key", "canary", 0600}};
  std::string text = to_text(cell_step(facts_of(request), cell_answer("", {})));
  EXPECT_THAT(text, HasSubstr("TOKEN"));
  EXPECT_THAT(text, HasSubstr("/workspace/key"));
  EXPECT_THAT(text, Not(HasSubstr("canary")));
  request.history = false;
  request.code = "canary";
  text = to_text(cell_step(facts_of(request), cell_answer("canary", {})));
  EXPECT_THAT(text, HasSubstr("left_out"));
  EXPECT_THAT(text, Not(HasSubstr("canary")));
}

}  // namespace
}  // namespace asr
