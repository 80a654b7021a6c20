#include "interpreter/kernel_events.hpp"

#include <gtest/gtest.h>

#include "interpreter/language.hpp"

namespace asr {
namespace {

TEST(KernelEvents, ComeInPieces) {
  KernelEvents events;
  std::string text =
      "{\"event\":\"result\",\"id\":3,\"data\":{\"text/"
      "plain\":\"2\"}}\n{\"event\":\"done\",\"id\":3}\n";
  std::vector<KernelEvent> seen;
  for (char c : text) {
    ASSERT_TRUE(events.feed(std::string_view(&c, 1)));
    auto next = events.next();
    ASSERT_TRUE(next);
    if (*next) seen.push_back(**next);
  }
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].kind, KernelEvent::Kind::result);
  EXPECT_EQ(seen[0].id, 3U);
  EXPECT_EQ(seen[0].fields["data"].get_object()["text/plain"].get_string(), "2");
  EXPECT_EQ(seen[1].kind, KernelEvent::Kind::done);
}

TEST(KernelEvents, NonsenseIsAnError) {
  for (const char* line : {"", "x", "[]", "{}", "{\"event\":1}", "{\"event\":\"drop tables\"}",
                           "{\"event\":\"done\"", "\xff\xfe"}) {
    KernelEvents events;
    ASSERT_TRUE(events.feed(std::string(line) + "\n"));
    EXPECT_FALSE(events.next()) << line;
  }
}

TEST(KernelEvents, HostileNumbersAreNoRequests) {
  for (const char* id : {"-1", "1.5", "\"1\"", "1e99", "null", "18446744073709551616"}) {
    KernelEvents events;
    ASSERT_TRUE(events.feed("{\"event\":\"done\",\"id\":" + std::string(id) + "}\n"));
    auto next = events.next();
    if (next && *next) EXPECT_EQ((*next)->id, 0U) << id;
  }
}

TEST(KernelEvents, AreBounded) {
  KernelEvents events;
  std::string block(1 << 20, 'x');
  std::size_t taken = 0;
  while (events.feed(block)) taken += block.size();
  EXPECT_LE(taken, KernelEvents::kLongestLine);
}

TEST(Languages, AreKnownByTheirNames) {
  for (const char* name : {"python", "python3", "javascript", "js", "typescript", "bash"})
    EXPECT_NE(find_language(name), nullptr) << name;
  EXPECT_EQ(find_language("cobol"), nullptr);
  for (const LanguagePtr& language : languages()) {
    EXPECT_FALSE(language->is_brought());
    EXPECT_EQ(kernel_command(*language, nullptr).stdin_mode, StdinMode::both_ways);
    EXPECT_TRUE(kernel_greeting(*language).ends_with(language->kernel));
  }
}

TEST(Languages, OthersMayBeBrought) {
  for (const char* name : {"r", "c++", "objective-c", "x", "x1b", "b2_"}) {
    LanguagePtr language = possible_language(name);
    ASSERT_NE(language, nullptr) << name;
    EXPECT_EQ(language->name, name);
    EXPECT_TRUE(language->is_brought());
    Command command = kernel_command(*language, nullptr);
    EXPECT_EQ(command.argv, std::vector<std::string>{std::string(kKernelFolder) + name});
    EXPECT_EQ(command.stdin_mode, StdinMode::both_ways);
  }
  EXPECT_NE(possible_language(std::string(32, 'a')), nullptr);
  for (const char* name : {"python", "sh", "node"})
    EXPECT_EQ(possible_language(name), find_language(name)) << "ours are ours";
}

TEST(Languages, NamesThatLeadElsewhereAreNone) {
  for (const char* name : {"", ".", "..", "../x", "a/b", "/bin/sh", "R", "rR", "1c", "+", "-c",
                           "a b", "a:b", "a.b", "a\nb", "\xc3\xa9"})
    EXPECT_EQ(possible_language(name), nullptr) << name;
  EXPECT_EQ(possible_language(std::string(33, 'a')), nullptr);
  EXPECT_EQ(possible_language(std::string_view("a\0b", 3)), nullptr);
  // What names a context names no language.
  for (const char* name : {"x1", "x007"}) EXPECT_EQ(possible_language(name), nullptr) << name;
}

}  // namespace
}  // namespace asr
