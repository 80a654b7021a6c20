#include "session/text_diff.hpp"

#include <gtest/gtest.h>

#include <random>

namespace asr {
namespace {

std::string between(std::string_view before, std::string_view after) {
  return unified(diff_texts(before, after), {"/f", "/f"});
}

// What a reader of the hunks makes of `before`: proof that nothing in them is made up.
std::string patched(std::string_view before, const TextDiff& diff) {
  std::vector<std::string> lines;
  while (!before.empty()) {
    std::size_t end = std::min(before.find('\n'), before.size() - 1) + 1;
    lines.emplace_back(before.substr(0, end));
    before.remove_prefix(end);
  }
  std::string after;
  std::size_t at = 0;
  for (const DiffHunk& hunk : diff.hunks) {
    std::size_t from = hunk.before_lines > 0 ? hunk.before - 1 : hunk.before;
    while (at < from) after += lines.at(at++);
    for (const DiffLine& line : hunk.lines) {
      std::string text = line.text + (line.newline ? "\n" : "");
      if (line.kind != DiffLine::Kind::added) EXPECT_EQ(lines.at(at++), text);
      if (line.kind != DiffLine::Kind::removed) after += text;
    }
  }
  while (at < lines.size()) after += lines.at(at++);
  return after;
}

TEST(TextDiff, EqualTextsHaveNone) {
  EXPECT_TRUE(diff_texts("", "").hunks.empty());
  EXPECT_TRUE(diff_texts("a\nb\n", "a\nb\n").hunks.empty());
  EXPECT_EQ(between("a", "a"), "");
}

TEST(TextDiff, ALineInTheMiddle) {
  EXPECT_EQ(between("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n"),
            "--- a/f\n+++ b/f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
}

TEST(TextDiff, ChangesFarApartAreHunksOfTheirOwn) {
  std::string before, after;
  for (int i = 0; i < 40; ++i) {
    before += std::to_string(i) + "\n";
    after += i == 5 || i == 30 ? "x\n" : std::to_string(i) + "\n";
  }
  TextDiff diff = diff_texts(before, after);
  ASSERT_EQ(diff.hunks.size(), 2U);
  EXPECT_EQ(diff.hunks[1].before, 28U);
  EXPECT_EQ(diff.added, 2U);
  EXPECT_EQ(diff.removed, 2U);
  EXPECT_EQ(patched(before, diff), after);
}

TEST(TextDiff, AFileThatCameAndOneThatWent) {
  TextDiff came = diff_texts("", "a\nb\n");
  EXPECT_EQ(unified(came, {"", "/n"}), "--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+a\n+b\n");
  TextDiff went = diff_texts("a\n", "");
  EXPECT_EQ(unified(went, {"/o", ""}), "--- a/o\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n");
}

TEST(TextDiff, TheLastNewlineIsPartOfTheText) {
  EXPECT_EQ(between("a", "a\n"),
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n");
  EXPECT_EQ(between("a\n", "a"),
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n");
  EXPECT_EQ(between("a\nb", "x\nb"),
            "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+x\n b\n\\ No newline at end of file\n");
}

TEST(TextDiff, NamesThatWouldBreakTheFormatAreQuoted) {
  TextDiff diff = diff_texts("", "a\n");
  EXPECT_EQ(unified(diff, {"", "/a\n+++ b/etc"}).substr(0, 38),
            "--- /dev/null\n+++ \"b/a\\012+++ b/etc\"\n@");
}

TEST(TextDiff, TheShortestWay) {
  TextDiff diff = diff_texts("a\nb\nc\na\nb\nb\na\n", "c\nb\na\nb\na\nc\n");
  EXPECT_EQ(diff.added + diff.removed, 5U);  // the example of the paper
  EXPECT_EQ(patched("a\nb\nc\na\nb\nb\na\n", diff), "c\nb\na\nb\na\nc\n");
}

TEST(TextDiff, AnyTwoTexts) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    auto text = [&] {
      std::string result;
      for (auto lines = random() % 60; lines > 0; --lines)
        result += std::string(1, static_cast<char>('a' + random() % 6)) + "\n";
      if (random() % 4 == 0) result += "end";
      return result;
    };
    std::string before = text();
    std::string after = text();
    for (std::size_t work : {std::size_t{0}, std::size_t{20}, DiffOptions().most_work}) {
      TextDiff diff = diff_texts(before, after, {random() % 4, work});
      ASSERT_EQ(patched(before, diff), after) << before << "→\n" << after;
      ASSERT_EQ(diff.hunks.empty(), before == after);
    }
  }
}

TEST(TextDiff, FewLinesOfMany) {
  std::string before, after;
  for (int i = 0; i < 20000; ++i) {
    before += "line " + std::to_string(i) + "\n";
    if (i % 5 != 0) after += "line " + std::to_string(i) + "\n";
    if (i % 7 == 0) after += "new " + std::to_string(i) + "\n";
  }
  TextDiff diff = diff_texts(before, after);
  EXPECT_EQ(diff.removed, 4000U);  // Unique lines lead through, however many changed.
  EXPECT_EQ(diff.added, 2858U);
  EXPECT_EQ(patched(before, diff), after);
}

TEST(TextDiff, WhatWouldTakeForeverIsToldAsWrittenAnew) {
  std::mt19937 random(3);
  std::string before, after;
  for (int i = 0; i < 130000; ++i) {
    before += static_cast<char>('a' + random() % 2), before += '\n';
    after += static_cast<char>('a' + random() % 2), after += '\n';
  }
  TextDiff diff = diff_texts(before, after);
  EXPECT_EQ(patched(before, diff), after);
}

TEST(TextDiff, ZeroBytesAreNotText) {
  EXPECT_TRUE(is_text("a\tb\xff\n"));
  EXPECT_TRUE(is_text(""));
  EXPECT_FALSE(is_text(std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace asr
