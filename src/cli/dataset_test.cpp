#include "cli/dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace asr {
namespace {

using testing::HasSubstr;

Result<Dataset> read(const std::string& text, const Solutions* solutions = nullptr,
                     const ItemDefaults& defaults = {}) {
  std::istringstream stream(text);
  return read_dataset(stream, "tasks.jsonl", solutions, defaults);
}

Solutions solutions_in(const std::string& text) {
  std::istringstream stream(text);
  auto read = read_solutions(stream, "solutions.jsonl");
  EXPECT_TRUE(read) << read.error().what;
  return read ? *read : Solutions();
}

std::string code_of(const JudgeItem& item) { return std::string(item.body.at("code").as_string()); }

constexpr const char* kHumanEval =
    R"({"task_id": "Own/0", "prompt": "def twice(x):\n", "canonical_solution": "    return 2 * x\n",)"
    R"( "test": "def check(f):\n    assert f(2) == 4\n", "entry_point": "twice"})";
constexpr const char* kMbpp =
    R"({"task_id": 7, "text": "Add.", "code": "def add(a, b):\n    return a + b",)"
    R"( "test_setup_code": "import math", "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]})";

TEST(Dataset, HumanEvalProblemsBecomePrograms) {
  auto dataset = read(kHumanEval);
  ASSERT_TRUE(dataset) << dataset.error().what;
  ASSERT_EQ(dataset->items.size(), 1U);
  const JudgeItem& item = dataset->items[0];
  EXPECT_EQ(item.id, "Own/0");
  EXPECT_EQ(item.body.at("language").as_string(), "python");
  EXPECT_EQ(
      code_of(item),
      "def twice(x):\n    return 2 * x\n\ndef check(f):\n    assert f(2) == 4\n\ncheck(twice)\n");
  EXPECT_FALSE(item.body.contains("limits"));
}

TEST(Dataset, MbppProblemsBecomePrograms) {
  auto dataset = read(kMbpp);
  ASSERT_TRUE(dataset) << dataset.error().what;
  EXPECT_EQ(dataset->items[0].id, "7");
  EXPECT_EQ(code_of(dataset->items[0]),
            "import math\ndef add(a, b):\n    return a + b\nassert add(1, 2) == 3\nassert add(0, "
            "0) == 0\n");
}

TEST(Dataset, MbppsNewerNames) {
  auto dataset = read(
      R"({"task_id": 7, "prompt": "Add.", "code": "f = 1", "test_imports": ["import math", "import re"],)"
      R"( "test_list": ["assert f"]})");
  ASSERT_TRUE(dataset) << dataset.error().what;
  EXPECT_EQ(code_of(dataset->items[0]), "import math\nimport re\nf = 1\nassert f\n");
}

TEST(Dataset, ItemsAreSentAsTheyAre) {
  auto dataset = read(
      R"({"id": "a", "code": "cat", "language": "bash", "stdin": "x", "expect": {"stdout": "x"}, "limits": {"wall_s": 1}})"
      "\n\n"
      R"({"id": "b", "code": "pass"})"
      "\r\n",
      nullptr, {"python", 5, 64});
  ASSERT_TRUE(dataset) << dataset.error().what;
  ASSERT_EQ(dataset->items.size(), 2U);
  EXPECT_EQ(to_text(dataset->items[0].body),
            R"({"id":"a","code":"cat","language":"bash","stdin":"x","expect":{"stdout":"x"},)"
            R"("limits":{"wall_s":1,"memory_mb":64}})");
  EXPECT_EQ(to_text(dataset->items[1].body),
            R"({"id":"b","code":"pass","language":"python","limits":{"wall_s":5,"memory_mb":64}})");
  EXPECT_EQ(dataset->items[1].line, 3U);
}

TEST(Dataset, ShapesAreToldApartLineByLine) {
  auto dataset =
      read(std::string(kHumanEval) + "\n" + kMbpp + "\n{\"id\": \"c\", \"code\": \"\"}\n");
  ASSERT_TRUE(dataset) << dataset.error().what;
  EXPECT_EQ(dataset->tasks, 3U);
}

TEST(Dataset, SolutionsOfOthers) {
  Solutions solutions = solutions_in(
      "{\"task_id\": \"Own/0\", \"completion\": \"    return x + x\\n\"}\n"
      "{\"task_id\": 7, \"completion\": \"A\"}\n{\"task_id\": \"7\", \"completion\": \"B\"}\n");
  auto dataset = read(
      std::string(kHumanEval) + "\n" + kMbpp + "\n{\"id\": \"c\", \"code\": \"\"}\n", &solutions);
  ASSERT_TRUE(dataset) << dataset.error().what;
  ASSERT_EQ(dataset->items.size(), 3U);
  EXPECT_THAT(code_of(dataset->items[0]), HasSubstr("return x + x"));
  EXPECT_EQ(dataset->items[0].id, "Own/0");
  EXPECT_EQ(dataset->items[1].id, "7#1");
  EXPECT_EQ(dataset->items[2].id, "7#2");
  EXPECT_EQ(dataset->items[2].task, "7");
  EXPECT_THAT(code_of(dataset->items[2]), HasSubstr("\nB\n"));
  EXPECT_EQ(dataset->unsolved, 1U);
}

TEST(Dataset, ErrorsNameTheLineAndWhatToDo) {
  std::pair<const char*, const char*> cases[]{
      {"{\"id\": \"a\", \"code\": \"\"}\n{", "tasks.jsonl:2: "},
      {"5", "tasks.jsonl:1: not a JSON object"},
      {"[{\"id\": 1}]", "tasks.jsonl:1: this is a list"},
      {"\x1f\x8b\x08", "compressed"},
      {"", "holds no task"},
      {"{\"question\": 1}", "tasks.jsonl:1: nobody knows such a line"},
      {"{\"id\": \"a\", \"code\": 5}", "\"code\" is not a text"},
      {"{\"id\": \"\", \"code\": \"\"}", "\"id\" is empty"},
      {"{\"id\": \"a\", \"code\": \"\"}\n{\"id\": \"a\", \"code\": \"\"}",
       "tasks.jsonl:2: \"a\" is also in line 1"},
      {"{\"task_id\": 1, \"code\": \"\", \"test_list\": []}", "\"test_list\" is empty"},
      {"{\"task_id\": 1, \"code\": \"\", \"test_list\": [5]}", "no text"},
      {"{\"task_id\": 1, \"code\": \"\", \"test_list\": \"assert\"}", "not a list"},
      {"{\"task_id\": 1, \"test_list\": [\"assert 1\"]}", "there is no solution"},
      {"{\"test\": \"\", \"entry_point\": \"f\", \"prompt\": \"\"}", "\"task_id\" is missing"},
  };
  for (const auto& [text, message] : cases) {
    auto dataset = read(text);
    ASSERT_FALSE(dataset) << text;
    EXPECT_EQ(dataset.error().code, Errc::invalid);
    EXPECT_THAT(dataset.error().what, HasSubstr(message));
    EXPECT_FALSE(dataset.error().hint.empty()) << text;
  }
}

TEST(Dataset, SolutionsThatAreWrong) {
  for (const char* text :
       {"", "{\"task_id\": 1}", "{\"completion\": \"\"}", "{\"task_id\": 1, \"completion\": 5}"}) {
    std::istringstream stream(text);
    auto read = read_solutions(stream, "solutions.jsonl");
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().what, HasSubstr("solutions.jsonl"));
  }
  Solutions unknown = solutions_in("{\"task_id\": \"nobody\", \"completion\": \"\"}");
  auto dataset = read(kMbpp, &unknown);
  ASSERT_FALSE(dataset);
  EXPECT_THAT(dataset.error().what,
              HasSubstr("solutions.jsonl:1: there is no task \"nobody\" in tasks.jsonl"));
}

TEST(Dataset, NamesOfSamplesAreNotTakenTwice) {
  Solutions solutions = solutions_in(
      "{\"task_id\": \"a\", \"completion\": \"\"}\n{\"task_id\": \"a\", \"completion\": \"\"}\n"
      "{\"task_id\": \"a#2\", \"completion\": \"\"}\n");
  auto dataset =
      read("{\"id\": \"a\", \"code\": \"\"}\n{\"id\": \"a#2\", \"code\": \"\"}\n", &solutions);
  ASSERT_FALSE(dataset);
  EXPECT_THAT(dataset.error().what, HasSubstr("a#2"));
}

}  // namespace
}  // namespace asr
