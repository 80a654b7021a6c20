#include "session/batch_request.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

Result<BatchRequest> read(std::string_view text, std::size_t most = 100) {
  auto body = parse_json(text);
  EXPECT_TRUE(body) << text;
  return batch_request_from(body->get_object(), most);
}

std::string item(std::string_view more, std::string_view id = "a") {
  return R"({"id":")" + std::string(id) + R"(","code":"1","language":"python")" +
         std::string(more) + "}";
}

Result<BatchRequest> read_item(std::string_view more) {
  return read(R"({"items":[)" + item(more) + "]}");
}

std::string complaint(const Result<BatchRequest>& result) {
  EXPECT_FALSE(result);
  if (result) return "";
  EXPECT_EQ(result.error().code, Errc::invalid);
  return result.error().what;
}

TEST(BatchRequest, SaysWhatIsWanted) {
  auto request = read_item(
      R"(,"stdin":"in","expect":{"stdout":"out","exact":true},
          "limits":{"wall_s":1.5,"cpu_s":0.5,"memory_mb":64,"output_mb":0.5,"pids":3,"cpus":0.5},
          "files":[{"path":"sub/x","content":"1"},{"path":"/tmp/y","content_base64":"AAE="}],
          "checker":{"code":"2","language":"c++"})");
  ASSERT_TRUE(request) << request.error().what;
  const BatchItem& one = request->items.at(0);
  EXPECT_EQ(one.id, "a");
  EXPECT_EQ(one.program.language->name, "python");
  EXPECT_EQ(one.input, "in");
  EXPECT_EQ(one.expected, "out");
  EXPECT_EQ(one.compare, Compare::bytes);
  EXPECT_EQ(one.limits.wall_time, std::chrono::milliseconds(1500));
  EXPECT_EQ(one.limits.cpu_time, std::chrono::milliseconds(500));
  EXPECT_EQ(one.limits.memory_bytes, 64U << 20);
  EXPECT_EQ(one.limits.disk_bytes, 32U << 20);
  EXPECT_EQ(one.limits.output_bytes, 1U << 19);
  EXPECT_EQ(one.limits.milli_cpus, 500U);
  EXPECT_EQ(one.program.files.at(0).path, "/workspace/sub/x");
  EXPECT_EQ(one.program.files.at(1).content, std::string("\0\1", 2));
  EXPECT_EQ(one.checker->language->name, "cpp");
  EXPECT_GT(one.bytes(), 10U);
}

TEST(BatchRequest, TimesFitEachOther) {
  auto times = [](std::string_view limits) {
    auto request = read_item(R"(,"limits":)" + std::string(limits));
    EXPECT_TRUE(request) << limits;
    const Limits& own = request->items.at(0).limits;
    return std::pair(own.wall_time / std::chrono::seconds(1),
                     own.cpu_time / std::chrono::seconds(1));
  };
  EXPECT_EQ(times("{}"), std::pair(20L, 10L));
  EXPECT_EQ(times(R"({"memory_mb":64})"), std::pair(20L, 10L));
  EXPECT_EQ(times(R"({"wall_s":1})"), std::pair(1L, 10L));
  EXPECT_EQ(times(R"({"wall_s":60})"), std::pair(60L, 60L));
  EXPECT_EQ(times(R"({"cpu_s":60})"), std::pair(120L, 60L));
  EXPECT_EQ(times(R"({"cpu_s":1})"), std::pair(20L, 1L));
  EXPECT_EQ(times(R"({"cpu_s":2,"wall_s":3})"), std::pair(3L, 2L));
}

TEST(BatchRequest, ErrorsNameTheirPlace) {
  EXPECT_NE(complaint(read_item(R"(,"stdin":"a","stdin_base64":"YQ==")")).find("/items/0"),
            std::string::npos);
  EXPECT_NE(complaint(read_item(R"(,"stdin_base64":"?")")).find("/items/0/stdin_base64"),
            std::string::npos);
  EXPECT_NE(complaint(read_item(R"(,"expect":{"exact":true})")).find("/items/0/expect"),
            std::string::npos);
  EXPECT_NE(complaint(read_item(R"(,"limits":{"memory_mb":64,"disk_mb":64})")).find("/limits"),
            std::string::npos);
  EXPECT_NE(complaint(read_item(R"(,"files":[{"path":"main.py"}])")).find("/files/0/path"),
            std::string::npos);
  EXPECT_NE(complaint(read(R"({"items":[{"id":"a","code":"","language":"cobol"}]})"))
                .find("/items/0/language"),
            std::string::npos);
}

TEST(BatchRequest, IdsAreUniqueAndItemsAreCounted) {
  std::string two = R"({"items":[)" + item("") + "," + item("", "b") + "]}";
  EXPECT_TRUE(read(two));
  EXPECT_NE(complaint(read(two, 1)).find("/items must have at most 1"), std::string::npos);
  std::string twice = R"({"items":[)" + item("") + "," + item("") + "]}";
  EXPECT_NE(complaint(read(twice)).find("/items/1/id"), std::string::npos);
}

TEST(BatchRequest, WhatDoesNotFitIsRefusedAtOnce) {
  std::string large = R"(,"limits":{"memory_mb":16},"files":[{"path":"x","content":")" +
                      std::string(6 << 20, 'x') + R"("}])";
  EXPECT_NE(complaint(read_item(large)).find("do not fit"), std::string::npos);
}

TEST(Program, BuildsAreToldApartByAllTheyDependOn) {
  Program one;
  one.language = find_program_language("c");
  one.code = "int main() {}";
  Program other = one;
  EXPECT_EQ(build_name(one), build_name(other));
  other.language = find_program_language("c++");
  EXPECT_NE(build_name(one), build_name(other));
  other = one;
  other.files.push_back({"/workspace/a.h", "", 0644});
  EXPECT_NE(build_name(one), build_name(other));
  Program moved = one;
  moved.files.push_back({"/workspace/a", ".h", 0644});
  EXPECT_NE(build_name(moved), build_name(other));
}

TEST(Program, RunsWithItsOwnLimits) {
  Limits limits = judged_limits();
  limits.wall_time = std::chrono::seconds(3);
  Command command = program_command(*find_program_language("python"), limits);
  EXPECT_EQ(command.argv.front(), "python3");
  EXPECT_EQ(command.wall_time, std::chrono::seconds(3));
  EXPECT_EQ(command.overflow, OutputOverflow::kill);
  EXPECT_EQ(find_program_language("fortran"), nullptr);
  for (const Limits& each : {judged_limits(), build_limits(), checker_limits()})
    EXPECT_TRUE(check(judging_spec(each)));
}

}  // namespace
}  // namespace asr
