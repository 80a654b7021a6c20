// agent-sandbox key …: who may use a server.
#include <CLI/CLI.hpp>

#include "base/units.hpp"
#include "cli/answer.hpp"
#include "cli/commands.hpp"

namespace asr {

void add_key_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* group = app.add_subcommand("key", "Keys to a server");
  group->require_subcommand(1);
  auto output = std::make_shared<Output>();
  auto name = std::make_shared<std::string>();
  auto role = std::make_shared<std::string>("user");
  auto ttl = std::make_shared<std::string>();
  CLI::App* create = group->add_subcommand("create", "Make a key and print it, this once");
  create->add_option("name", *name, "Whose it is")->required();
  create->add_option("--role", *role, "viewer, user, operator or admin");
  create->add_option("--ttl", *ttl, "How long it is valid, such as 24h");
  auto e2b = std::make_shared<bool>(false);
  create->add_flag("--e2b", *e2b, "In the form E2B's SDKs want: e2b_ and hex digits");
  create->add_flag("--json", output->json, "As JSON");
  create->callback([=, &invocation] {
    json::object body{{"name", *name}, {"role", *role}};
    if (!ttl->empty()) {
      auto time = parse_duration(*ttl);
      if (!time) {
        invocation.status = output->failed(time.error());
        return;
      }
      body["ttl_s"] = std::chrono::ceil<std::chrono::seconds>(*time).count();
    }
    if (*e2b) body["form"] = "e2b";
    auto answer = call("POST", "/api/keys", body);
    invocation.status = output->show(answer, [&] { return text_at(*answer, "key") + "\n"; });
  });

  CLI::App* list = group->add_subcommand("list", "All keys, without their secrets");
  list->add_flag("--json", output->json, "As JSON");
  list->callback([=, &invocation] {
    auto answer = call("GET", "/api/keys");
    invocation.status = output->show(answer, [&] {
      Table table({"KEY", "NAME", "ROLE", "BEGINS", "EXPIRES", "REVOKED"});
      for (const json::value& key : answer->at("keys").as_array())
        table.add({text_at(key, "key_id"), printable(text_at(key, "name")), text_at(key, "role"),
                   printable(text_at(key, "prefix")), text_at(key, "expires_at"),
                   text_at(key, "revoked_at")});
      return table.text();
    });
  });

  CLI::App* revoke = group->add_subcommand("revoke", "Revoke a key for good");
  auto id = std::make_shared<std::string>();
  revoke->add_option("key", *id, "Its id, from key list")->required();
  revoke->callback([=, &invocation] {
    auto answer = call("DELETE", "/api/keys/" + percent_encode(*id));
    invocation.status = output->show(answer, [] { return std::string(); });
  });
}

}  // namespace asr
