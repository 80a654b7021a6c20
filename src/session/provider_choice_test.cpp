#include "session/provider_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "provider/e2b/e2b.hpp"

namespace asr {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::chrono::seconds kHour{3600};

// With the abilities of a real one; nothing is made here.
class Known final : public Provider {
 public:
  Known(std::string name, Abilities abilities)
      : name_(std::move(name)), can_(std::move(abilities)) {}
  std::string_view name() const noexcept override { return name_; }
  const Abilities& abilities() const noexcept override { return can_; }
  std::chrono::seconds longest_life() const noexcept override { return life; }
  std::string trouble() const override { return in_trouble; }
  asio::awaitable<Result<std::shared_ptr<Sandbox>>> create(SandboxSpec, SandboxWish) override {
    co_return fail(Errc::unsupported, "nothing is made here");
  }
  std::vector<PoolState> pools() const override { return {}; }
  bool can_keep() const noexcept override { return false; }
  asio::awaitable<std::vector<std::shared_ptr<Sandbox>>> adopt(std::vector<KnownSandbox>) override {
    co_return std::vector<std::shared_ptr<Sandbox>>();
  }
  asio::awaitable<Result<void>> make_volume(std::string, VolumeOptions) override {
    co_return fail(Errc::unsupported, "nothing is made here");
  }
  asio::awaitable<Result<void>> remove_storage(std::string) override { co_return Result<void>(); }

  std::chrono::seconds life{0};
  std::string in_trouble;

 private:
  std::string name_;
  Abilities can_;
};

class ProviderChoiceTest : public testing::Test {
 protected:
  static SessionRequest asked(std::string_view text) {
    auto body = parse_json(text);
    EXPECT_TRUE(body) << text;
    auto request = session_request_from(body->get_object());
    EXPECT_TRUE(request) << text << ": " << request.error().what;
    return request ? *request : SessionRequest();
  }
  static Needs needs(std::string_view text, std::chrono::seconds usual = kHour) {
    SessionRequest request = asked(text);
    return needs_of(request, request.ttl.value_or(usual));
  }
  static bool needs_it(std::string_view text, Ability ability) {
    auto all = needs(text).abilities;
    return std::count(all.begin(), all.end(), ability) == 1;
  }
  Result<ProviderChoice> choose(std::string_view text, std::chrono::seconds usual = kHour) {
    return choose_provider(needs(text, usual), {&native_, &e2b_});
  }
  std::string chosen(std::string_view text) {
    auto choice = choose(text);
    return choice ? choice->name : choice.error().what + " (" + choice.error().hint + ")";
  }

  Known native_{"native", native_abilities({})};
  Known e2b_{"e2b", e2b_abilities()};
};

TEST_F(ProviderChoiceTest, APlainSessionNeedsNothingButAWall) {
  EXPECT_THAT(needs("{}").abilities, ElementsAre(Ability::isolation));
  auto choice = choose("{}");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->name, "native");
  EXPECT_THAT(choice->reason, HasSubstr("the first that can"));
  EXPECT_THAT(choice->reason, Not(HasSubstr("e2b")));
}

TEST_F(ProviderChoiceTest, EachWishIsANeed) {
  EXPECT_TRUE(needs_it(R"({"persistent":true})", Ability::disks));
  EXPECT_TRUE(needs_it(R"({"volumes":[{"name":"v","path":"/v"}]})", Ability::volumes));
  EXPECT_TRUE(needs_it(R"({"environment":"template:base"})", Ability::images));
  EXPECT_TRUE(needs_it(R"({"environment":"folder:/tmp"})", Ability::environments));
  EXPECT_TRUE(needs_it(R"({"environment":"snapshot:x"})", Ability::checkpoints));
  EXPECT_TRUE(needs_it(R"({"auto_checkpoint":true})", Ability::checkpoints));
  EXPECT_TRUE(needs_it(R"({"tier":"browser"})", Ability::browser));
  EXPECT_TRUE(needs_it(R"({"preview":{"access":"token"}})", Ability::ports));
  EXPECT_TRUE(needs_it(R"({"wake_on_traffic":true})", Ability::ports));
  EXPECT_TRUE(needs_it(R"({"wake_on_traffic":true})", Ability::pause));
  EXPECT_TRUE(needs_it(R"({"at_expiry":"pause"})", Ability::pause));
  EXPECT_TRUE(needs_it(R"({"network":{"mode":"public"}})", Ability::allow_list));
  EXPECT_TRUE(needs_it(R"({"network":{"mode":"full"}})", Ability::internet));
  EXPECT_FALSE(needs_it(R"({"network":{"mode":"full"}})", Ability::isolation));
}

// Each of these is what decides: without the wish the other one is taken.
TEST_F(ProviderChoiceTest, WhatIsAskedForDecides) {
  EXPECT_EQ(chosen(R"({"environment":"template:base"})"), "e2b");
  EXPECT_EQ(chosen(R"({"network":{"mode":"full"}})"), "e2b");
  // The nearest one is out of the way, so that whoever is taken is taken for the wish.
  std::swap(native_, e2b_);
  ASSERT_EQ(chosen("{}"), "e2b");
  EXPECT_EQ(chosen(R"({"tier":"browser"})"), "native");
  EXPECT_EQ(chosen(R"({"network":{"mode":"public"}})"), "native");
  EXPECT_EQ(chosen(R"({"persistent":true})"), "native");
  EXPECT_EQ(chosen(R"({"volumes":[{"name":"v","path":"/v"}]})"), "native");
  EXPECT_EQ(chosen(R"({"environment":"folder:/tmp"})"), "native");
  EXPECT_EQ(chosen(R"({"auto_checkpoint":true})"), "native");
}

TEST_F(ProviderChoiceTest, APreviewGoesWhereThereArePorts) {
  Abilities deaf = native_abilities({});
  deaf.lacks(Ability::ports, "nobody can call in");
  native_ = Known("native", deaf);
  EXPECT_EQ(chosen("{}"), "native");
  auto choice = choose(R"({"preview":{"access":"token"}})");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->name, "e2b");
  EXPECT_THAT(choice->reason, HasSubstr("ports"));
  EXPECT_THAT(choice->reason, HasSubstr("not native (ports: nobody can call in)"));
}

TEST_F(ProviderChoiceTest, ASessionThatIsToBeKeptFromTheNetworkIs) {
  Abilities open = native_abilities({true});
  open.lacks(Ability::isolation, "there are no walls");
  native_ = Known("native", open);
  EXPECT_EQ(chosen("{}"), "e2b");
  EXPECT_EQ(chosen(R"({"network":{"mode":"full"}})"), "native");
}

TEST_F(ProviderChoiceTest, ALongLifeGoesWhereItIsGiven) {
  std::swap(native_, e2b_);  // Now e2b is asked first.
  native_.life = 24h;
  ASSERT_EQ(native_.name(), "e2b");
  EXPECT_EQ(chosen(R"({"ttl_s":86400})"), "e2b");
  auto choice = choose(R"({"ttl_s":86401})");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->name, "native");
  EXPECT_THAT(choice->reason, HasSubstr("a life of 86401 s"));
  EXPECT_THAT(choice->reason, HasSubstr("its sandboxes live for 86400 s at most"));
  EXPECT_EQ(chosen(R"({"ttl_s":0})"), "native");  // for ever
  // The server's own habit counts as well.
  auto usual = choose("{}", std::chrono::seconds(0));
  ASSERT_TRUE(usual);
  EXPECT_EQ(usual->name, "native");
  EXPECT_EQ(choose("{}", kHour)->name, "e2b");
}

TEST_F(ProviderChoiceTest, OnlyThoseThatAreEnabledAreTaken) {
  auto alone = choose_provider(needs(R"({"environment":"template:base"})"), {&native_});
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().code, Errc::unsupported);
  EXPECT_THAT(alone.error().hint, HasSubstr("not native (images: "));
  auto nobody = choose_provider(needs("{}"), {});
  EXPECT_FALSE(nobody);
}

TEST_F(ProviderChoiceTest, WhoIsInTroubleIsPassedOver) {
  native_.in_trouble = "it does not answer";
  auto choice = choose("{}");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->name, "e2b");
  EXPECT_THAT(choice->reason, HasSubstr("not native (it does not answer)"));
  e2b_.in_trouble = "neither does this one";
  EXPECT_FALSE(choose("{}"));
}

TEST_F(ProviderChoiceTest, WhereNobodyCanEachIsToldWithItsReason) {
  auto none = choose(R"({"environment":"template:base","persistent":true})");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::unsupported);
  EXPECT_THAT(none.error().hint, HasSubstr("not native (images: "));
  EXPECT_THAT(none.error().hint, HasSubstr("not e2b (disks: "));
}

TEST_F(ProviderChoiceTest, WhoIsNamedMustBeAbleToAllOfIt) {
  EXPECT_TRUE(check(needs("{}"), e2b_));
  auto browser = check(needs(R"({"tier":"browser"})"), e2b_);
  ASSERT_FALSE(browser);
  EXPECT_EQ(browser.error().code, Errc::unsupported);
  EXPECT_THAT(browser.error().what, HasSubstr("not supported by this provider: e2b cannot"));
  auto forbidden = check(needs(R"({"network":{"mode":"full"}})"), native_);
  ASSERT_FALSE(forbidden);
  EXPECT_EQ(forbidden.error().code, Errc::denied);
  e2b_.life = kHour;
  EXPECT_TRUE(check(needs(R"({"ttl_s":3600})"), e2b_));
  auto longer = check(needs(R"({"ttl_s":3601})"), e2b_);
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().code, Errc::unsupported);
  EXPECT_THAT(longer.error().what, HasSubstr("a life of 3601 s"));
  EXPECT_FALSE(check_life(std::chrono::seconds(0), e2b_));
  EXPECT_TRUE(check_life(std::chrono::seconds(0), native_));
}

}  // namespace
}  // namespace asr
