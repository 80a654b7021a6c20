// agent-sandbox session …, preview, logs, events, key: the server's verbs on the command line.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/remote.hpp"
#include "cli/report.hpp"

namespace asr {

namespace {

struct Output {
  bool json = false;

  int failed(const Error& error) const { return json ? print_json_error(error) : complain(error); }
  int show(const Result<json::value>& answer, const std::function<std::string()>& text) const {
    if (!answer) return failed(answer.error());
    std::fputs(json ? (to_text(*answer) + "\n").c_str() : text().c_str(), stdout);
    return 0;
  }
};

Result<json::value> call(const std::string& method, const std::string& path,
                         const json::value& body = nullptr) {
  Remote remote = TRY(Remote::find());
  return remote.call(method, path, body);
}

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

Result<void> put_pairs(json::object& body, const char* name,
                       const std::vector<std::string>& pairs) {
  if (pairs.empty()) return {};
  json::object object;
  for (const std::string& pair : pairs) {
    std::size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(Errc::invalid, "'" + pair + "' is not NAME=VALUE");
    object[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  body[name] = std::move(object);
  return {};
}

struct CreateOptions {
  std::string environment, preset, memory, disk, ttl, idle;
  std::vector<std::string> env, labels;
  double cpus = 0;
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
  TRY(put_pairs(body, "env", options.env));
  TRY(put_pairs(body, "labels", options.labels));
  for (const auto& [name, text] :
       {std::pair("ttl_s", options.ttl), std::pair("idle_s", options.idle)}) {
    if (text.empty()) continue;
    auto time = TRY(parse_duration(text));
    body[name] = std::chrono::ceil<std::chrono::seconds>(time).count();
  }
  return body;
}

void add_create(CLI::App& group, Invocation& invocation) {
  auto options = std::make_shared<CreateOptions>();
  auto output = std::make_shared<Output>();
  CLI::App* command = group.add_subcommand("create", "Make a session and print its id");
  command->add_option("--environment", options->environment, "Where its files come from");
  command->add_option("--preset", options->preset, "strict or standard");
  command->add_option("--memory", options->memory, "At most so much, such as 512M");
  command->add_option("--disk", options->disk, "At most so much, such as 1G");
  command->add_option("--cpus", options->cpus, "At most so many, such as 0.5");
  command->add_option("--ttl", options->ttl, "How long it lives, such as 2h; 0: for ever");
  command->add_option("--idle", options->idle, "How long it may be unused");
  command->add_option("--env", options->env, "NAME=VALUE for its commands");
  command->add_option("--label", options->labels, "NAME=VALUE to find it by");
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
  command->add_option("--label", *labels, "NAME=VALUE: only those");
  command->add_option("--state", *states, "ready, paused or gone: only those");
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

}  // namespace

void add_session_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* group = app.add_subcommand("session", "Sessions of a server");
  group->require_subcommand(1);
  add_create(*group, invocation);
  add_list(*group, invocation);
  add_one(*group, invocation, "get", "One session", "GET", "");
  add_one(*group, invocation, "pause", "Stop all its processes", "POST", "/pause");
  add_one(*group, invocation, "resume", "Let them go on", "POST", "/resume");
  add_one(*group, invocation, "rm", "End it", "DELETE", "");
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
