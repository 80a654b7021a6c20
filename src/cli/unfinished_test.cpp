#include "cli/unfinished.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace asr {
namespace {

void expect(Tongue tongue, bool unfinished, std::initializer_list<const char*> all) {
  for (const char* code : all) EXPECT_EQ(is_unfinished(tongue, code), unfinished) << code;
}

TEST(Unfinished, PythonThatIsComplete) {
  expect(Tongue::python, false,
         {"",
          "x = 1",
          "print('a:')",
          "x[1:]",
          "f(1,\n  2)",
          "'''a\nb'''",
          "\"\"\"it's\"\"\"",
          "# if x:",
          "x = 1  # (",
          "'it\\'s'",
          "format(1)",
          "iffy = 3",
          "match = 1",
          "x = {1: 2}",
          "!echo it's (",
          "%timeit (",
          "d = {\n  'a': 1,\n}",
          "'#' + \"(\"",
          "f'{x}'",
          "x = 1 \\\n  + 2"});
}

TEST(Unfinished, PythonThatGoesOn) {
  expect(Tongue::python, true,
         {"f(", "x = [1,\n2,", "{", "'''a", "\"\"\"a\n\nb", "x = 1 \\", "f('a)'", "d = {\n\n",
          "'''\n", "f(  # )"});
}

TEST(Unfinished, PythonBlocksEndWithAnEmptyLine) {
  for (std::string head : {"def f():", "if x: y", "for i in range(3):", "while True:  # ever",
                           "class A: pass", "try:", "with a as b:", "async def f():", "@wrapped",
                           "match x:", "if(x): y", "%%bash\necho $("}) {
    EXPECT_TRUE(is_unfinished(Tongue::python, head)) << head;
    EXPECT_TRUE(is_unfinished(Tongue::python, head + "\n    pass")) << head;
    EXPECT_FALSE(is_unfinished(Tongue::python, head + "\n    pass\n")) << head;
    EXPECT_FALSE(is_unfinished(Tongue::python, head + "\n    pass\n  ")) << head;
  }
  // Inside brackets and texts an empty line is part of them.
  EXPECT_TRUE(is_unfinished(Tongue::python, "def f():\n    x = '''\n"));
  EXPECT_TRUE(is_unfinished(Tongue::python, "def f(\n"));
}

TEST(Unfinished, WrongPythonIsLeftToPython) {
  expect(Tongue::python, false, {"x = 'abc", "x = 'abc\ny", ")", "f())", "x = \"(", "]["});
}

TEST(Unfinished, JavaScriptThatIsComplete) {
  expect(Tongue::javascript, false,
         {"", "1 + 1", "f({a: [1, 2]})", "`a ${`b ${c}`} d`", "// {", "/* { */ 1", "'{'", "\"(\"",
          "/[(]/.test(x)", "x = a / b / (c)", "return /{/", "x = '\\'{'", "`\\``", "f(/\\//, 1)",
          "a[1] / 2", "a.replace(/'/g, '')", "function f() {\n  return 1;\n}", "\xC3\xA4 / 2"});
}

TEST(Unfinished, JavaScriptThatGoesOn) {
  expect(Tongue::javascript, true,
         {"function f() {", "f(", "[1,\n", "`a", "`a ${b", "`a ${b}", "/* a", "x = {\n\n",
          "f(() => {\n  g()\n", "f(')'", "f(/)/", "`${'`'}", "'a\\"});
}

TEST(Unfinished, WrongJavaScriptIsLeftToNode) {
  expect(Tongue::javascript, false, {"'abc", "'abc\n'", ")", "f(]", "}", "{)"});
}

TEST(Unfinished, BashThatIsComplete) {
  expect(Tongue::bash, false,
         {"",
          "echo hi",
          "echo 'a'\"b\"",
          "if true; then echo; fi",
          "for x in 1 2; do echo $x; done",
          "while read l; do :; done < file",
          "case $x in a) echo;; (b) echo;; esac",
          "f() { echo; }",
          "function f { echo; }",
          "echo $(date)",
          "echo \"$(echo \"a b\")\"",
          "echo ${x:-\"}\"}",
          "echo $((1 << 2))",
          "cat <<E\ntext\nE",
          "cat <<-'E'\n\ttext\n\tE\necho",
          "cat <<< word",
          "a=(1 2 3)",
          "(cd /; ls)",
          "echo done",
          "echo if",
          "'if'",
          "sleep 1 &",
          "a; b",
          "echo # it's",
          "echo a#'b'",
          "echo \\'",
          "echo `date`",
          "echo $'it\\'s'",
          "cmd 2>&1",
          "diff <(a) <(b)",
          "! true",
          "((x++))",
          "for ((i=0;i<3;i++)); do :; done",
          "if ! grep -q x f; then\n  echo no\nfi",
          "echo fi",
          "true &&\nfalse",
          "a |\nb",
          "x=1 # |",
          "until false; do break; done",
          "[[ a && b ]]",
          "echo \"it's\"",
          "cat <<A <<B\na\nA\nb\nB",
          "echo {a,b}",
          "{ echo; }",
          "f() { while :; do break; done }"});
}

TEST(Unfinished, BashThatGoesOn) {
  expect(Tongue::bash, true,
         {"echo 'a",
          "echo \"a",
          "if true",
          "if true; then",
          "for x in 1 2",
          "for x in 1 2; do",
          "while :; do\necho",
          "case $x in",
          "case $x in a) echo;;",
          "f() {",
          "f() {\necho \\{",
          "echo $(",
          "echo $(date",
          "echo \"$(date\"",
          "echo ${x",
          "cat <<E",
          "cat <<E\ntext",
          "cat <<E\nEE",
          "a |",
          "a &&",
          "a ||",
          "a | # then",
          "echo \\",
          "(",
          "a=(1",
          "echo `date",
          "((1 +",
          "function f {",
          "echo $'it\\'",
          "if true; then echo fi",
          "{ echo; \n",
          "a &&\n"});
}

TEST(Unfinished, WrongBashIsLeftToBash) {
  expect(Tongue::bash, false, {"fi", "done", ")", "echo )", "}", "if true; done", "esac; echo '"});
}

}  // namespace
}  // namespace asr
