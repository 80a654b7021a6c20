// agent-sandbox session … and preview: the sessions of a server.
#include <CLI/CLI.hpp>

#include "base/units.hpp"
#include "cli/answer.hpp"
#include "cli/commands.hpp"
#include "cli/request_body.hpp"

namespace asr {

namespace {

std::string session_table(const json::value& sessions) {
  Table table({"SESSION", "STATE", "ENVIRONMENT", "CREATED", "EXPIRES", "LABELS"});
  for (const json::value& session : sessions.as_array()) {
    std::string labels;
    if (const json::value* all = session.as_object().if_contains("labels"); all && all->is_object())
      for (const auto& [name, value] : all->get_object())
        labels += (labels.empty() ? "" : ",") + std::string(name) + "=" +
                  (value.is_string() ? std::string(value.get_string()) : "");
    table.add({text_at(session, "session_id"), text_at(session, "state"),
               printable(text_at(session, "environment")), text_at(session, "created_at"),
               text_at(session, "expires_at"), printable(labels)});
  }
  return table.text();
}

// NAME:/path or NAME:/path:ro.
Result<json::object> volume_from(const std::string& text) {
  std::size_t colon = text.find(':');
  bool read_only = text.ends_with(":ro");
  std::size_t end = read_only ? text.size() - 3 : text.size();
  if (colon == 0 || colon == std::string::npos || colon + 1 >= end || text[colon + 1] != '/')
    return fail(Errc::invalid, "'" + text + "' is not NAME:/path", "or NAME:/path:ro");
  return json::object{{"name", text.substr(0, colon)},
                      {"path", text.substr(colon + 1, end - colon - 1)},
                      {"read_only", read_only}};
}

struct CreateOptions {
  std::string environment, preset, memory, disk, ttl, idle;
  std::vector<std::string> env, labels, volumes;
  double cpus = 0;
  bool persistent = false;
  bool keep_artifacts = false;
  bool no_history = false;
  bool auto_checkpoint = false;
};

Result<json::object> body_of(const CreateOptions& options) {
  json::object body;
  json::object limits;
  if (!options.environment.empty()) body["environment"] = options.environment;
  if (!options.preset.empty()) body["preset"] = options.preset;
  if (!options.memory.empty()) limits["memory"] = options.memory;
  if (!options.disk.empty()) limits["disk"] = options.disk;
  if (options.cpus > 0) limits["cpus"] = options.cpus;
  if (!limits.empty()) body["limits"] = std::move(limits);
  if (options.persistent) body["persistent"] = true;
  if (options.keep_artifacts) body["keep_artifacts"] = true;
  if (options.no_history) body["history"] = false;
  if (options.auto_checkpoint) body["auto_checkpoint"] = true;
  json::array volumes;
  for (const std::string& text : options.volumes) volumes.push_back(TRY(volume_from(text)));
  if (!volumes.empty()) body["volumes"] = std::move(volumes);
  TRY(put_pairs(body, "env", options.env));
  TRY(put_pairs(body, "labels", options.labels));
  TRY(put_seconds(body, "ttl_s", options.ttl));
  TRY(put_seconds(body, "idle_s", options.idle));
  return body;
}

void add_create(CLI::App& group, Invocation& invocation) {
  auto options = std::make_shared<CreateOptions>();
  auto output = std::make_shared<Output>();
  CLI::App* command = group.add_subcommand("create", "Make a session and print its id");
  command->add_option("--environment", options->environment, "Where its files come from");
  command->add_option("--preset", options->preset, "Limits to start from")
      ->type_name("strict|standard");
  command->add_option("--memory", options->memory, "At most so much, such as 512M")
      ->type_name("SIZE");
  command->add_option("--disk", options->disk, "At most so much, such as 1G")->type_name("SIZE");
  command->add_option("--cpus", options->cpus, "At most so many, such as 0.5")->type_name("COUNT");
  command->add_option("--ttl", options->ttl, "How long it lives, such as 2h; 0: for ever")
      ->type_name("TIME");
  command->add_option("--idle", options->idle, "How long it may be unused")->type_name("TIME");
  command->add_option("--env", options->env, "A variable of its commands")->type_name("NAME=VALUE");
  command->add_option("--label", options->labels, "To find it by")->type_name("NAME=VALUE");
  command->add_flag("--persistent", options->persistent,
                    "Its files stay when it stops, until it is removed");
  command->add_flag("--keep-artifacts", options->keep_artifacts,
                    "What its cells made stays for a day when it has ended");
  command->add_flag("--no-history", options->no_history, "What is done in it is not kept");
  command->add_flag("--auto-checkpoint", options->auto_checkpoint,
                    "What is run in it can be undone, step by step");
  command->add_option("--volume", options->volumes, "A volume, and where it is inside")
      ->type_name("NAME:/PATH[:ro]");
  command->add_flag("--json", output->json, "The whole answer as JSON");
  command->callback([=, &invocation] {
    auto body = body_of(*options);
    if (!body) {
      invocation.status = output->failed(body.error());
      return;
    }
    auto answer = call("POST", "/api/sessions", *body);
    invocation.status = output->show(answer, [&] { return text_at(*answer, "session_id") + "\n"; });
  });
}

void add_list(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto labels = std::make_shared<std::vector<std::string>>();
  auto states = std::make_shared<std::vector<std::string>>();
  CLI::App* command = group.add_subcommand("list", "Sessions you may see, the newest first");
  command->add_option("--label", *labels, "Only those")->type_name("NAME=VALUE");
  command->add_option("--state", *states, "Only those; gone ones must be asked for")
      ->type_name("ready|paused|stopped|gone");
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    std::string path = "/api/sessions?limit=1000";
    for (const std::string& state : *states) path += "&state=" + percent_encode(state);
    for (std::string label : *labels) {
      if (std::size_t equals = label.find('='); equals != std::string::npos) label[equals] = ':';
      path += "&label=" + percent_encode(label);
    }
    auto answer = call("GET", path);
    invocation.status = output->show(answer, [&] { return session_table(answer->at("sessions")); });
  });
}

void add_one(CLI::App& group, Invocation& invocation, const char* name, const char* help,
             const char* method, const char* rest) {
  auto output = std::make_shared<Output>();
  auto id = std::make_shared<std::string>();
  CLI::App* command = group.add_subcommand(name, help);
  command->add_option("session", *id, "Its id")->required();
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = call(method, session_path(*id, rest));
    invocation.status = output->show(answer, [&]() -> std::string {
      return answer->is_null() ? "" : session_table(json::array{*answer});
    });
  });
}

void add_remove(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto id = std::make_shared<std::string>();
  auto keep = std::make_shared<bool>(false);
  CLI::App* command = group.add_subcommand("rm", "End it");
  command->add_option("session", *id, "Its id")->required();
  command->add_flag("--keep-artifacts", *keep, "What its cells made stays for a day");
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = call("DELETE", session_path(*id, *keep ? "?keep_artifacts=true" : ""));
    invocation.status = output->show(answer, [] { return std::string(); });
  });
}

std::string bytes_at(const json::value& object, std::string_view name) {
  const json::value* value = object.as_object().if_contains(name);
  boost::system::error_code ec;
  std::uint64_t bytes = value && value->is_number() ? value->to_number<std::uint64_t>(ec) : 0;
  return ec ? "" : format_bytes(bytes);
}

std::string usage_table(const json::array& samples) {
  Table table({"AT", "CPU", "MEMORY", "PEAK", "DISK", "PROCESSES"});
  for (const json::value& sample : samples) {
    const json::value* cpu = sample.as_object().if_contains("cpu_ms");
    auto micros = cpu && cpu->is_number() ? cpu->to_number<double>() * 1000 : 0;
    table.add({text_at(sample, "at"),
               format_duration(std::chrono::microseconds(static_cast<std::int64_t>(micros))),
               bytes_at(sample, "memory_bytes"), bytes_at(sample, "memory_peak_bytes"),
               bytes_at(sample, "disk_bytes"), text_at(sample, "pids")});
  }
  return table.text();
}

// The server gives a history in pages; a page that is not full is the last.
Result<json::value> usage_history(const std::string& id) {
  constexpr std::size_t kPage = 1000;
  Remote remote = TRY(Remote::find());
  json::array all;
  std::string from = "0";
  for (;;) {
    std::string rest = "/usage/history?limit=" + std::to_string(kPage) + "&from_ms=" + from;
    json::value page = TRY(remote.call("GET", session_path(id, rest)));
    const json::array& samples = page.at("samples").as_array();
    all.insert(all.end(), samples.begin(), samples.end());
    if (samples.size() < kPage) return json::object{{"samples", std::move(all)}};
    from = std::to_string(samples.back().at("at_ms").to_number<std::int64_t>() + 1);
  }
}

void add_usage(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto id = std::make_shared<std::string>();
  auto history = std::make_shared<bool>(false);
  CLI::App* command = group.add_subcommand("usage", "What it uses");
  command->add_option("session", *id, "Its id")->required();
  command->add_flag("--history", *history, "What it used, the oldest first");
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = *history ? usage_history(*id) : call("GET", session_path(*id, "/usage"));
    invocation.status = output->show(answer, [&] {
      return usage_table(*history ? answer->at("samples").as_array() : json::array{*answer});
    });
  });
}

}  // namespace

void add_session_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* group = app.add_subcommand("session", "Sessions of a server");
  group->require_subcommand(1);
  add_create(*group, invocation);
  add_list(*group, invocation);
  add_one(*group, invocation, "get", "One session", "GET", "");
  add_usage(*group, invocation);
  add_history_command(*group, invocation);
  add_one(*group, invocation, "pause", "Stop all its processes", "POST", "/pause");
  add_one(*group, invocation, "resume", "Let them go on; start a stopped session again", "POST",
          "/resume");
  add_branch_commands(*group, invocation);
  add_change_commands(*group, invocation);
  add_remove(*group, invocation);
}

void add_preview_command(CLI::App& app, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto id = std::make_shared<std::string>();
  auto port = std::make_shared<int>(0);
  CLI::App* command =
      app.add_subcommand("preview", "Print where a server inside a session can be seen");
  command->add_option("session", *id, "Its id")->required();
  command->add_option("port", *port, "The port inside")->required();
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = call("GET", session_path(*id, "/preview?port=" + std::to_string(*port)));
    invocation.status = output->show(answer, [&] { return text_at(*answer, "url") + "\n"; });
  });
}

}  // namespace asr
