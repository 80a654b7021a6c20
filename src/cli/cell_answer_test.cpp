#include "cli/cell_answer.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

json::value answer(const char* status, const char* name = nullptr, const char* value = "") {
  json::value error = nullptr;
  if (name) error = json::object{{"name", name}, {"value", value}, {"traceback", ""}};
  return json::object{{"status", status}, {"error", error}};
}

TEST(CellAnswer, ExitCodesAreThoseOfPrograms) {
  EXPECT_EQ(exit_code_of(answer("ok")), 0);
  EXPECT_EQ(exit_code_of(answer("error", "NameError", "x")), 1);
  EXPECT_EQ(exit_code_of(answer("interrupted", "KeyboardInterrupt")), 130);
  EXPECT_EQ(exit_code_of(answer("timeout", "Timeout")), 137);
  EXPECT_EQ(exit_code_of(answer("out_of_memory", "OutOfMemory")), 137);
  EXPECT_EQ(exit_code_of(answer("error", "ExitStatus", "42")), 42);
  EXPECT_EQ(exit_code_of(answer("error", "ExitStatus", "nonsense")), 1);
  EXPECT_EQ(exit_code_of(answer("error", "SystemExit", "3")), 3);
  EXPECT_EQ(exit_code_of(answer("error", "SystemExit", "")), 0);
  EXPECT_EQ(exit_code_of(answer("error", "SystemExit", "None")), 0);
  EXPECT_EQ(exit_code_of(answer("error", "SystemExit", "a reason")), 1);
  EXPECT_EQ(exit_code_of(answer("error", "SystemExit", "-1")), 255);
  EXPECT_EQ(
      exit_code_of(answer("error", "InterpreterEnded", "the interpreter ended with exit code 7")),
      7);
  EXPECT_EQ(exit_code_of(answer("error", "InterpreterEnded", "the interpreter ended by signal 9")),
            1);
  EXPECT_EQ(exit_code_of(json::value(nullptr)), 1);
}

TEST(CellAnswer, TellsAnExitFromAFailure) {
  EXPECT_TRUE(has_exited(answer("error", "SystemExit", "0")));
  EXPECT_TRUE(
      has_exited(answer("error", "InterpreterEnded", "the interpreter ended with exit code 0")));
  EXPECT_FALSE(
      has_exited(answer("error", "InterpreterEnded", "the interpreter ended by signal 11")));
  EXPECT_FALSE(has_exited(answer("error", "ExitStatus", "1")));
  EXPECT_FALSE(has_exited(answer("ok")));
}

TEST(CellAnswer, NamesOfFilesStayInTheirFolder) {
  EXPECT_EQ(file_name_for("plot.png", "a1"), "plot.png");
  EXPECT_EQ(file_name_for("../../etc/passwd", "a1"), "passwd");
  EXPECT_EQ(file_name_for("..", "a1"), "a1");
  EXPECT_EQ(file_name_for("", "a1"), "a1");
  EXPECT_EQ(file_name_for("a/", "a1"), "a1");
  EXPECT_EQ(file_name_for(".bashrc", "a1"), "bashrc");
  EXPECT_EQ(file_name_for("a\033[2J\nb.png", "a1"), "a_[2J_b.png");
  EXPECT_EQ(file_name_for("...", "a1"), "file");
}

TEST(CellAnswer, ResultsCannotSpeakToATerminal) {
  EXPECT_EQ(result_text({{"text/plain", "a\n\tb\033[2J\xC2\x9B"}}), "a\n\tb?[2J?");
  EXPECT_EQ(result_text({{"image/png", "x"}}), "");
  EXPECT_EQ(result_text({{"text/plain", 5}}), "");
}

}  // namespace
}  // namespace asr
