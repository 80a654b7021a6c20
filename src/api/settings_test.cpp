#include "api/settings.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

TEST(Settings, TheStrongerSourceWins) {
  auto yaml = settings_from_yaml(
      "listen: 0.0.0.0:1\nsessions:\n  ttl: 5m\n  max: 7\nhosts: [a, b]\n", "x.yaml");
  ASSERT_TRUE(yaml) << yaml.error().what;
  auto file =
      settings_from_env_file("# words\nOTHER=1\nexport AGENT_SANDBOX_SESSIONS_TTL='10m'\n", ".env");
  ASSERT_TRUE(file) << file.error().what;
  const char* variables[] = {"HOME=/x", "AGENT_SANDBOX_LISTEN=127.0.0.1:2",
                             "AGENT_SANDBOX_URL=http://a", nullptr};
  auto environment = settings_from_environment(variables);
  ASSERT_TRUE(environment) << environment.error().what;
  auto settings = put_together({*yaml, *file, *environment});
  ASSERT_TRUE(settings) << settings.error().what;
  EXPECT_EQ(settings->listen, "127.0.0.1:2");
  EXPECT_EQ(settings->ttl, std::chrono::seconds(600));
  EXPECT_EQ(settings->most_sessions, 7U);
  EXPECT_EQ(settings->hosts, (std::vector<std::string>{"a", "b"}));
}

TEST(Settings, UnknownNamesAreRefusedWithTheirPlace) {
  auto yaml = settings_from_yaml("log:\n  level: info\n  colour: red\n", "x.yaml");
  ASSERT_FALSE(yaml);
  EXPECT_EQ(yaml.error().what, "x.yaml:3: there is no setting \"log.colour\"");
  EXPECT_FALSE(settings_from_env_file("AGENT_SANDBOX_NOPE=1\n", ".env"));
  const char* variables[] = {"AGENT_SANDBOX_NOPE=1", nullptr};
  EXPECT_FALSE(settings_from_environment(variables));
  EXPECT_FALSE(settings_from_yaml("a: &x [1]\nb: *x\n", "x.yaml"));
  EXPECT_FALSE(settings_from_yaml("listen: [unclosed\n", "x.yaml"));
  EXPECT_FALSE(settings_from_yaml("- list\n", "x.yaml"));
}

TEST(Settings, AProviderHasASectionOfItsOwn) {
  ::setenv("ASR_TEST_KEY", "very secret", 1);
  auto yaml = settings_from_yaml(
      "e2b:\n  enabled: true\n  api_key: ${ASR_TEST_KEY}\n  default_template: mine\n"
      "  timeout_seconds: 60\n  resources: {cpu: 2, memory_mb: 512}\n",
      "x.yaml");
  ASSERT_TRUE(yaml) << yaml.error().what;
  auto settings = put_together({*yaml});
  ASSERT_TRUE(settings) << settings.error().what;
  EXPECT_TRUE(settings->e2b_enabled);
  EXPECT_EQ(settings->e2b_api_key, "very secret");
  EXPECT_EQ(settings->e2b_memory_mb, 512U);
  std::string printed = print_settings(*settings);
  EXPECT_EQ(printed.find("very secret"), std::string::npos);
  auto again = settings_from_yaml(printed, "printed");
  ASSERT_TRUE(again) << again.error().what;
  EXPECT_EQ(again->at("e2b.resources.cpu"), "2");
  EXPECT_FALSE(put_together({{{"e2b.enabled", "true"}}})) << "without a key";
  EXPECT_FALSE(settings_from_yaml("e2b: {region: x}", "x.yaml"));
}

TEST(Settings, YamlIsFilledFromTheEnvironment) {
  ::setenv("ASR_TEST_VALUE", "from outside", 1);
  auto yaml = settings_from_yaml("storage: \"a ${ASR_TEST_VALUE} b\"\n", "x.yaml");
  ASSERT_TRUE(yaml);
  EXPECT_EQ((*yaml)["storage"], "a from outside b");
  EXPECT_FALSE(settings_from_yaml("storage: ${ASR_TEST_NOT_THERE}\n", "x.yaml"));
}

TEST(Settings, WrongValuesSayWhich) {
  auto bad = put_together({{{"sessions.max", "many"}}});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().what, "sessions.max: must be a number");
  EXPECT_FALSE(put_together({{{"tls.key", "x"}}}));
  EXPECT_FALSE(put_together({{{"no_auth", "maybe"}}}));
  EXPECT_FALSE(put_together({{{"log.level", "loud"}}}));
}

TEST(Settings, PrintedOnesCanBeReadAgainAndHideSecrets) {
  Settings settings;
  settings.admin_key = "very secret";
  settings.pool_size = 9;
  std::string text = print_settings(settings);
  EXPECT_EQ(text.find("very secret"), std::string::npos);
  auto again = settings_from_yaml(text, "printed");
  ASSERT_TRUE(again) << again.error().what;
  EXPECT_EQ((*again)["pool.size"], "9");
}

TEST(Settings, EachHasOneNameInEverySource) {
  for (const Setting& setting : all_settings()) {
    EXPECT_TRUE(setting.environment().starts_with("AGENT_SANDBOX_"));
    EXPECT_FALSE(setting.help.empty());
    if (setting.standard.empty()) continue;
    auto with_standard =
        put_together({{{std::string(setting.name), std::string(setting.standard)}}});
    ASSERT_TRUE(with_standard) << setting.name;
    EXPECT_EQ(setting.get(*with_standard), setting.get(Settings())) << setting.name;
  }
}

}  // namespace
}  // namespace asr
