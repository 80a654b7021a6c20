#include "provider/abilities.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "provider/e2b/e2b.hpp"
#include "provider/provider.hpp"

namespace asr {
namespace {

using testing::HasSubstr;

TEST(Abilities, EachHasANameAndWordsOfItsOwn) {
  std::set<Ability> seen;
  std::set<std::string_view> names;
  for (const AbilityName& each : all_abilities()) {
    EXPECT_TRUE(seen.insert(each.ability).second) << each.name;
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    EXPECT_EQ(to_string(each.ability), each.name);
    EXPECT_FALSE(each.what.empty()) << each.name;
  }
  // The last of the enumeration: none is left out of what GET /api/providers tells.
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(Ability::archive_checks) + 1);
}

TEST(Abilities, WhoSaysNothingCanDoEverything) {
  Abilities all;
  for (const AbilityName& each : all_abilities()) {
    EXPECT_TRUE(all.can(each.ability)) << each.name;
    EXPECT_EQ(all.why_not(each.ability), "");
    EXPECT_TRUE(all.check(each.ability, "somebody"));
  }
}

TEST(Abilities, WhatIsMissingIsToldWithWhoAndWhy) {
  Abilities some;
  some.lacks(Ability::volumes, "there is no room").may_not(Ability::internet, "nobody wants it");
  EXPECT_FALSE(some.can(Ability::volumes));
  EXPECT_FALSE(some.can(Ability::internet));
  EXPECT_TRUE(some.can(Ability::commands));
  EXPECT_EQ(some.why_not(Ability::volumes), "there is no room");
  auto lacking = some.check(Ability::volumes, "somebody");
  ASSERT_FALSE(lacking);
  EXPECT_EQ(lacking.error().code, Errc::unsupported);
  EXPECT_EQ(lacking.error().what, "not supported by this provider: somebody cannot attach volumes");
  EXPECT_EQ(lacking.error().hint, "there is no room");
  // What somebody forbids is a refusal, not a lack.
  auto forbidden = some.check(Ability::internet, "somebody");
  ASSERT_FALSE(forbidden);
  EXPECT_EQ(forbidden.error().code, Errc::denied);
  EXPECT_THAT(forbidden.error().what, HasSubstr("not allowed by this server"));
}

TEST(Abilities, TheLastWordHolds) {
  Abilities some;
  some.lacks(Ability::fork, "first").may_not(Ability::fork, "second");
  EXPECT_EQ(some.why_not(Ability::fork), "second");
  auto checked = some.check(Ability::fork, "somebody");
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, Errc::denied);
}

TEST(Abilities, ProvidersGiveAReasonForEverythingTheyLack) {
  for (const Abilities& own : {native_abilities({}), e2b_abilities()})
    for (const AbilityName& each : all_abilities())
      EXPECT_EQ(own.can(each.ability), own.why_not(each.ability).empty()) << each.name;
}

// What a session there is promised: docs/providers.md.
TEST(Abilities, E2bHasWhatEverySessionNeeds) {
  Abilities e2b = e2b_abilities();
  for (Ability each : {Ability::commands, Ability::terminals, Ability::signals,
                       Ability::interpreters, Ability::files, Ability::archives, Ability::watches,
                       Ability::ports, Ability::pause, Ability::usage, Ability::fork,
                       Ability::survival, Ability::images, Ability::isolation, Ability::internet})
    EXPECT_TRUE(e2b.can(each)) << to_string(each);
}

TEST(Abilities, TheWholeInternetIsTheSettingsToGive) {
  EXPECT_FALSE(native_abilities({false}).can(Ability::internet));
  EXPECT_TRUE(native_abilities({true}).can(Ability::internet));
}

}  // namespace
}  // namespace asr
