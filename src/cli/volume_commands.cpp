// agent-sandbox volume …: files that sessions share and that outlive them.
#include <CLI/CLI.hpp>

#include "base/units.hpp"
#include "cli/answer.hpp"
#include "cli/commands.hpp"

namespace asr {

namespace {

std::string volume_path(const std::string& name) { return "/api/volumes/" + percent_encode(name); }

std::string size_of(const json::value& volume) {
  boost::system::error_code ec;
  auto bytes = volume.at("size").to_number<std::uint64_t>(ec);
  return ec ? "" : format_bytes(bytes);
}

std::string volume_table(const json::array& volumes) {
  Table table({"NAME", "SIZE", "CREATED"});
  for (const json::value& volume : volumes)
    table.add({printable(text_at(volume, "name")), size_of(volume), text_at(volume, "created_at")});
  return table.text();
}

std::string use_table(const json::value& volume) {
  const json::value* uses = volume.as_object().if_contains("used_by");
  if (!uses || !uses->is_array() || uses->get_array().empty()) return "";
  Table table({"SESSION", "PATH", "ACCESS"});
  for (const json::value& use : uses->get_array())
    table.add({text_at(use, "session_id"), printable(text_at(use, "path")),
               text_at(use, "read_only") == "true" ? "read" : "read and write"});
  return "\n" + table.text();
}

void add_create(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto name = std::make_shared<std::string>();
  auto size = std::make_shared<std::string>();
  CLI::App* command = group.add_subcommand("create", "Make a volume");
  command->add_option("name", *name, "Its name: a-z, 0-9, dot, dash and underscore")->required();
  command->add_option("--size", *size, "At most so much in it; 1G if not said")->type_name("SIZE");
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    json::object body{{"name", *name}};
    if (!size->empty()) {
      auto bytes = parse_bytes(*size);
      if (!bytes) {
        invocation.status = output->failed(bytes.error());
        return;
      }
      body["size"] = *bytes;
    }
    auto answer = call("POST", "/api/volumes", body);
    invocation.status = output->show(answer, [&] { return text_at(*answer, "name") + "\n"; });
  });
}

void add_list(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  CLI::App* command = group.add_subcommand("list", "Yours, by name");
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = call("GET", "/api/volumes");
    invocation.status =
        output->show(answer, [&] { return volume_table(answer->at("volumes").as_array()); });
  });
}

void add_get(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto name = std::make_shared<std::string>();
  CLI::App* command = group.add_subcommand("get", "One of them, and who uses it");
  command->add_option("name", *name, "Its name")->required();
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = call("GET", volume_path(*name));
    invocation.status = output->show(
        answer, [&] { return volume_table(json::array{*answer}) + use_table(*answer); });
  });
}

void add_remove(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto name = std::make_shared<std::string>();
  CLI::App* command = group.add_subcommand("rm", "Remove it with all that is in it");
  command->add_option("name", *name, "Its name")->required();
  command->callback([=, &invocation] {
    auto answer = call("DELETE", volume_path(*name));
    invocation.status = output->show(answer, [] { return std::string(); });
  });
}

}  // namespace

void add_volume_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* group =
      app.add_subcommand("volume", "Volumes of a server: files that outlive sessions");
  group->require_subcommand(1);
  add_create(*group, invocation);
  add_list(*group, invocation);
  add_get(*group, invocation);
  add_remove(*group, invocation);
}

}  // namespace asr
