// agent-sandbox e2b …: how E2B's SDKs find this server.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/answer.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "cli/user_files.hpp"

namespace asr {

namespace {

// For a shell: whatever is in it stays one word.
std::string shell_word(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

bool is_e2b_key(const std::string& key) {
  constexpr std::string_view kPrefix = "e2b_";
  return key.starts_with(kPrefix) && key.size() > kPrefix.size() &&
         key.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string::npos;
}

int print_variables(const std::string& new_key) {
  auto login = find_login();
  if (!login) return complain(login.error());
  if (!new_key.empty()) {
    auto made = call("POST", "/api/keys", json::object{{"name", new_key}, {"form", "e2b"}});
    if (!made) return complain(made.error());
    login->key = text_at(*made, "key");
  }
  auto tell = [](const char* name, const std::string& value) {
    std::printf("export %s=%s\n", name, shell_word(value).c_str());
  };
  tell("E2B_API_KEY", login->key);
  tell("E2B_API_URL", login->url);
  tell("E2B_SANDBOX_URL", login->url);
  tell("E2B_VOLUME_API_URL", login->url);
  // Python looks at the form of a key, and ours have another.
  if (!is_e2b_key(login->key)) tell("E2B_VALIDATE_API_KEY", "false");
  return 0;
}

}  // namespace

void add_e2b_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* group = app.add_subcommand("e2b", "Use E2B's SDKs with a server of this kind");
  group->require_subcommand(1);
  auto new_key = std::make_shared<std::string>();
  CLI::App* env = group->add_subcommand("env", "Print the variables that point E2B's SDKs here");
  env->add_option("--new-key", *new_key, "With a key made for it, under this name")
      ->type_name("NAME");
  env->callback([=, &invocation] { invocation.status = print_variables(*new_key); });
}

}  // namespace asr
