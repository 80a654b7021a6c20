#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <sstream>

#include "cli/replay_compare.hpp"
#include "cli/replay_files.hpp"
#include "cli/replay_history.hpp"
#include "session/content_hash.hpp"

namespace asr {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kSession = R"({"number":0,"kind":"session","format":1,"dropped":2})"
                                 "\n";

std::string line(int number, int began_ms, int took_ms, const std::string& argv) {
  json::object step{{"number", number},
                    {"kind", "command"},
                    {"argv", json::array{"/bin/sh", "-c", argv}},
                    {"started_us", 1'000'000 + 1000 * began_ms},
                    {"duration_ms", took_ms},
                    {"status", "exited"}};
  return to_text(step) + "\n";
}

Result<ReplayHistory> read(const std::string& text, std::uint64_t until = 0) {
  std::istringstream stream(text);
  return read_history(stream, "steps.jsonl", until);
}

std::vector<std::string> summaries(const ReplayHistory& history) {
  std::vector<std::string> all;
  for (const ReplayStep& step : history.steps) all.push_back(step.summary());
  return all;
}

TEST(ReplayHistory, StepsComeInTheOrderTheyBegan) {
  // A server began first and ended last.
  auto history =
      read(kSession + line(3, 10, 1, "curl") + line(4, 20, 1, "kill") + line(5, 0, 30, "server"));
  ASSERT_TRUE(history) << history.error().what;
  EXPECT_EQ(history->dropped, 2U);
  EXPECT_THAT(summaries(*history), ElementsAre("server", "curl", "kill"));
  EXPECT_TRUE(history->steps[0].overlaps);
  EXPECT_FALSE(history->steps[1].overlaps);
  EXPECT_FALSE(history->steps[2].overlaps);
}

TEST(ReplayHistory, WhatRanOnIsKnown) {
  std::string running =
      R"({"number":null,"kind":"command","argv":["server"],"started_us":1000001,"duration_ms":0,"status":"running"})";
  auto history = read(kSession + line(3, 10, 1, "curl") + running + "\n");
  ASSERT_TRUE(history);
  EXPECT_THAT(summaries(*history), ElementsAre("server", "curl"));
  EXPECT_TRUE(history->steps[0].was_running());
  EXPECT_TRUE(history->steps[0].overlaps);
}

TEST(ReplayHistory, UntilAStep) {
  std::string text = kSession + line(3, 0, 1, "one") + line(4, 10, 1, "two") +
                     line(5, 20, 1, "three") + line(6, 5, 100, "beside");
  auto history = read(text, 4);
  ASSERT_TRUE(history);
  EXPECT_THAT(summaries(*history), ElementsAre("one", "beside", "two"));
  EXPECT_TRUE(history->steps[1].overlaps);
  EXPECT_FALSE(read(text, 7));
}

TEST(ReplayHistory, WhatIsNoHistoryIsRefusedWithItsPlace) {
  for (const auto& [text, problem] : std::initializer_list<std::pair<std::string, std::string>>{
           {"", "steps.jsonl has no history in it"},
           {"{\"a\": ", "steps.jsonl:1: malformed JSON"},
           {kSession + std::string("[]\n"), "steps.jsonl:2: not a JSON object"},
           {kSession + std::string("{\"kind\":\"cell\"}\n"), "steps.jsonl:2: this is no step"},
           {"{\"kind\":\"session\",\"format\":2}\n", "a later version wrote it"}}) {
    auto history = read(text);
    ASSERT_FALSE(history) << text;
    EXPECT_THAT(history.error().what, HasSubstr(problem));
  }
}

TEST(ReplayHistory, SummariesAreShortAndHarmless) {
  ReplayStep step;
  step.kind = "cell";
  step.told = {{"context_id", "python"}, {"code", "\n\x1b[31mx = 1\ny = 2\n"}};
  EXPECT_EQ(step.summary(), "python: ?[31mx = 1 …");
  step.told["code"] = std::string(59, 'x') + "äää";
  EXPECT_EQ(step.summary(), "python: " + std::string(59, 'x') + " …");
  step.kind = "file";
  step.told = {{"operation", "write"}, {"path", "/workspace/a"}};
  EXPECT_EQ(step.summary(), "file: write /workspace/a");
}

TEST(ReplayCompare, AddressesAreNotCompared) {
  EXPECT_EQ(without_addresses("<object at 0x7f0012ab34cd>"), "<object at 0x…>");
  EXPECT_EQ(without_addresses("0x10 0xFFFF 0x"), "0x10 0xFFFF 0x");
  EXPECT_EQ(without_addresses("0x1234567"), "0x…");
}

json::object command(std::string out, int code = 0) {
  return {{"status", "exited"},
          {"exit_code", code},
          {"signal", nullptr},
          {"stdout", std::move(out)},
          {"stderr", ""}};
}

std::vector<std::string> places(const std::vector<Difference>& differences) {
  std::vector<std::string> all;
  for (const Difference& one : differences) all.push_back(one.what);
  return all;
}

TEST(ReplayCompare, Commands) {
  EXPECT_THAT(compare_command(command("a\n"), command("a\n")), IsEmpty());
  EXPECT_THAT(compare_command(command("at 0x7f0012ab"), command("at 0x7fff12ab34")), IsEmpty());
  EXPECT_THAT(places(compare_command(command("a\n"), command("b\n", 1))),
              ElementsAre("exit_code", "stdout"));
  json::object binary = command("\xEF\xBF\xBD");
  binary["stdout_base64"] = base64("\xff");
  json::object other = command("\xEF\xBF\xBD");
  other["stdout_base64"] = base64("\xfe");
  EXPECT_THAT(places(compare_command(binary, other)), ElementsAre("stdout"));
}

TEST(ReplayCompare, OfLongOutputTheEnd) {
  json::object before = command("end");
  before["stdout_cut"] = 1000;
  before["output_bytes"] = 1003;
  json::object after = command(std::string(1000, 'x') + "end");
  after["output_bytes"] = 1003;
  EXPECT_THAT(compare_command(before, after), IsEmpty());
  after["output_bytes"] = 1004;
  EXPECT_THAT(places(compare_command(before, after)), ElementsAre("output_bytes"));
}

json::object cell(std::string status, json::array results, json::value error = nullptr) {
  return {{"status", std::move(status)},
          {"stdout", ""},
          {"stderr", ""},
          {"results", std::move(results)},
          {"error", std::move(error)}};
}

TEST(ReplayCompare, Cells) {
  json::array one{json::object{{"is_main", true}, {"text/plain", "1"}}};
  json::array two{json::object{{"is_main", true}, {"text/plain", "2"}}};
  EXPECT_THAT(compare_cell(cell("ok", one), cell("ok", one)), IsEmpty());
  EXPECT_THAT(places(compare_cell(cell("ok", one), cell("ok", two))),
              ElementsAre("result 1 text/plain"));
  EXPECT_THAT(places(compare_cell(cell("ok", {}), cell("ok", one))),
              ElementsAre("result 1 is_main", "result 1 text/plain"));
  json::object error{{"name", "E"}, {"value", "v"}, {"traceback", "at 0x7f0012ab34"}};
  json::object moved = error;
  moved["traceback"] = "at 0x7fff12ab34";
  EXPECT_THAT(compare_cell(cell("error", {}, error), cell("error", {}, moved)), IsEmpty());
  EXPECT_THAT(places(compare_cell(cell("ok", {}), cell("error", {}, error))),
              ElementsAre("status", "error name", "error value", "error traceback"));
  EXPECT_THAT(compare_cell(cell("interrupted", {}, error), cell("timeout", {})), IsEmpty());
}

TEST(ReplayCompare, LongResultsByTheirHash) {
  std::string picture(100'000, 'p');
  ContentHash hash;
  hash.feed(picture);
  json::object about;
  hash.describe(about);
  json::array before{json::object{{"image/png", json::object{{"left_out", about}}}}};
  json::array after{json::object{{"image/png", picture}}};
  EXPECT_THAT(compare_cell(cell("ok", before), cell("ok", after)), IsEmpty());
  after[0].as_object()["image/png"] = picture + "x";
  EXPECT_THAT(places(compare_cell(cell("ok", before), cell("ok", after))),
              ElementsAre("result 1 image/png"));
}

TEST(ReplayCompare, ADifferenceIsShownAsADiff) {
  std::string text = diff_of({"stdout", "same\nold\x1b[2J\n", "same\nnew\n"});
  EXPECT_THAT(text, HasSubstr("-old?[2J\n+new\n"));
  EXPECT_THAT(text, HasSubstr(" same\n"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_LT(diff_of({"stdout", std::string(1 << 20, 'a'), std::string(1 << 20, 'b')}).size(),
            10'000U);
}

TEST(ReplayFiles, AreFoundByTheirContent) {
  std::string pattern = testing::TempDir() + "replay-XXXXXX";
  std::filesystem::path folder = ::mkdtemp(pattern.data());
  std::filesystem::create_directories(folder / "deep/er");
  std::ofstream(folder / "deep/er/some-name") << "content";
  std::ofstream(folder / "same-size") << "CONTENT";
  auto files = ReplayFiles::in(folder);
  ASSERT_TRUE(files);
  ContentHash hash;
  hash.feed("content");
  json::object about;
  hash.describe(about);
  EXPECT_EQ(files->find(about), folder / "deep/er/some-name");
  about["sha256"] = "0";
  EXPECT_EQ(files->find(about), std::nullopt);
  EXPECT_EQ(ReplayFiles().find(about), std::nullopt);
  EXPECT_FALSE(ReplayFiles::in(folder / "nowhere"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace asr
