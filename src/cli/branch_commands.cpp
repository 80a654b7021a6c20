// agent-sandbox session checkpoint, rollback, fork, merge, tree …, and snapshot …: saved states of
// sessions, and branches that go on from them.
#include <CLI/CLI.hpp>
#include <boost/json/parse.hpp>
#include <cstdio>

#include "cli/answer.hpp"
#include "cli/branch_answer.hpp"
#include "cli/commands.hpp"
#include "cli/request_body.hpp"

namespace asr {

namespace {

constexpr int kConflicts = 1;  // exit code of a merge that changed nothing

// In JSON they are a part of the answer.
void warn(const Output& output, const json::value& state) {
  if (output.json) return;
  for (const std::string& loss : losses_of(state))
    std::fprintf(stderr, "agent-sandbox: warning: %s\n", loss.c_str());
}

std::string row_of(const json::value& checkpoint) {
  return checkpoint_table(json::array{checkpoint}, nullptr, letters_of_locale());
}

CLI::Option* add_session(CLI::App& command, std::string& id) {
  return command.add_option("session", id, "Its id")->required();
}

// One that sends a name, and is answered with a checkpoint.
void add_by_name(CLI::App& group, Invocation& invocation, const char* verb, const char* help) {
  auto output = std::make_shared<Output>();
  auto id = std::make_shared<std::string>();
  auto name = std::make_shared<std::string>();
  CLI::App* command = group.add_subcommand(verb, help);
  add_session(*command, *id);
  command->add_option("name", *name, "Of the checkpoint: letters, digits, - _ and .")->required();
  command->add_flag("--json", output->json, "As JSON");
  std::string rest = std::string("/") + verb;
  command->callback([=, &invocation] {
    auto answer = call("POST", session_path(*id, rest), json::object{{"name", *name}});
    invocation.status = output->show(answer, [&] { return row_of(*answer); });
    if (answer) warn(*output, *answer);
  });
}

void add_undo(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto id = std::make_shared<std::string>();
  CLI::App* command =
      group.add_subcommand("undo", "Return to before what was run last, step by step");
  add_session(*command, *id);
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = call("POST", session_path(*id, "/undo"));
    invocation.status = output->show(answer, [&] { return row_of(*answer); });
    if (answer) warn(*output, *answer);
  });
}

void add_checkpoint_list(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto id = std::make_shared<std::string>();
  CLI::App* command =
      group.add_subcommand("checkpoints", "What it can go back to, the oldest first");
  add_session(*command, *id);
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = call("GET", session_path(*id, "/checkpoints"));
    invocation.status = output->show(answer, [&] {
      return checkpoint_table(answer->at("checkpoints").as_array(), answer->at("at"),
                              letters_of_locale());
    });
  });
}

void add_checkpoint_remove(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto id = std::make_shared<std::string>();
  auto name = std::make_shared<std::string>();
  CLI::App* command = group.add_subcommand("checkpoint-rm", "Forget a checkpoint");
  add_session(*command, *id);
  command->add_option("name", *name, "Of the checkpoint")->required();
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = call("DELETE", session_path(*id, "/checkpoints/" + percent_encode(*name)));
    invocation.status = output->show(answer, [] { return std::string(); });
  });
}

struct ForkOptions {
  std::string session, checkpoint, ttl;
  std::vector<std::string> labels;
  std::uint32_t count = 1;
};

Result<json::value> fork(const ForkOptions& options) {
  json::object body{{"count", options.count}};
  if (!options.checkpoint.empty()) body["checkpoint"] = options.checkpoint;
  TRY(put_pairs(body, "labels", options.labels));
  TRY(put_seconds(body, "ttl_s", options.ttl));
  return call("POST", session_path(options.session, "/fork"), body);
}

std::string ids_of(const json::value& sessions) {
  std::string text;
  for (const json::value& session : sessions.as_array())
    text += text_at(session, "session_id") + "\n";
  return text;
}

void add_fork(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto options = std::make_shared<ForkOptions>();
  CLI::App* command = group.add_subcommand(
      "fork", "Make sessions that go on from this very moment; print their ids");
  add_session(*command, options->session);
  command->add_option("--count", options->count, "So many, at most 100; 1 if not said")
      ->type_name("COUNT");
  command->add_option("--checkpoint", options->checkpoint, "From this checkpoint instead")
      ->type_name("NAME");
  command->add_option("--label", options->labels, "Theirs, instead of those it has")
      ->type_name("NAME=VALUE");
  command->add_option("--ttl", options->ttl, "How long they live, such as 2h; 0: for ever")
      ->type_name("TIME");
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = fork(*options);
    invocation.status = output->show(answer, [&] { return ids_of(answer->at("sessions")); });
    if (answer) warn(*output, answer->at("from"));
  });
}

// A merge with conflicts is an answer, too: it has another status, and tells them.
Result<json::value> merge(const std::string& into, const std::string& branch) {
  Remote remote = TRY(Remote::find());
  ClientRequest request;
  request.method = "POST";
  request.body = to_text(json::object{{"from", branch}});
  request.headers.add("Content-Type", "application/json");
  ClientResponse response = TRY(remote.exchange(std::move(request), session_path(into, "/merge")));
  auto report = parse_json(response.body);
  bool is_report = report && report->is_object() && report->get_object().contains("merged");
  if (response.status >= 300 && !is_report) return fail(error_in(response));
  return report;
}

int show_merge(const Output& output, const Result<json::value>& report) {
  if (!report) return output.failed(report.error());
  bool merged = text_at(*report, "merged") == "true";
  int status =
      output.show(report, [&] { return merged ? merged_table(*report) : conflict_table(*report); });
  if (status != 0 || merged) return status;
  if (!output.json)
    std::fputs("agent-sandbox: both have changed these: nothing was merged\n", stderr);
  return kConflicts;
}

void add_merge(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto id = std::make_shared<std::string>();
  auto branch = std::make_shared<std::string>();
  CLI::App* command = group.add_subcommand(
      "merge", "Bring in the files that a branch has changed, or none of them");
  add_session(*command, *id);
  command->add_option("--from", *branch, "The branch: a session that was forked from this one")
      ->type_name("SESSION")
      ->required();
  command->add_flag("--json", output->json, "As JSON");
  command->footer("Exit status: 1 if both have changed the same; then nothing is brought in.");
  command->callback(
      [=, &invocation] { invocation.status = show_merge(*output, merge(*id, *branch)); });
}

// Branches of branches are told as deep as they were made, deeper than other answers.
Result<json::value> tree_of(const std::string& id) {
  constexpr std::size_t kDeepest = 4096;
  Remote remote = TRY(Remote::find());
  ClientResponse response = TRY(remote.send(ClientRequest(), session_path(id, "/tree")));
  json::parse_options options;
  options.max_depth = kDeepest;
  json::error_code ec;
  json::value tree = json::parse(response.body, ec, {}, options);
  if (ec) return fail(Errc::internal, "the server's tree cannot be read: " + ec.message());
  return tree;
}

void add_tree(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto id = std::make_shared<std::string>();
  CLI::App* command = group.add_subcommand("tree", "Draw its checkpoints and branches");
  add_session(*command, *id);
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = tree_of(*id);
    invocation.status =
        output->show(answer, [&] { return draw_tree(*answer, letters_of_locale()); });
  });
}

void add_snapshot_create(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto id = std::make_shared<std::string>();
  auto name = std::make_shared<std::string>();
  CLI::App* command = group.add_subcommand(
      "create", "Keep a session's state; print the environment that it is for new ones");
  command->add_option("session", *id, "The session's id")->required();
  command->add_option("name", *name, "Its name: letters, digits, - _ and .")->required();
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = call("POST", session_path(*id, "/snapshot"), json::object{{"name", *name}});
    invocation.status =
        output->show(answer, [&] { return text_at(*answer, "environment") + "\n"; });
    if (answer) warn(*output, *answer);
  });
}

void add_snapshot_list(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  CLI::App* command = group.add_subcommand("list", "Yours");
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = call("GET", "/api/snapshots");
    invocation.status =
        output->show(answer, [&] { return snapshot_table(answer->at("snapshots").as_array()); });
  });
}

void add_snapshot_remove(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto name = std::make_shared<std::string>();
  CLI::App* command = group.add_subcommand("rm", "Forget it; sessions that were made from it stay");
  command->add_option("name", *name, "Its name")->required();
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = call("DELETE", "/api/snapshots/" + percent_encode(*name));
    invocation.status = output->show(answer, [] { return std::string(); });
  });
}

}  // namespace

void add_branch_commands(CLI::App& group, Invocation& invocation) {
  add_by_name(group, invocation, "checkpoint",
              "Save its files and its interpreters' memory under a name");
  add_checkpoint_list(group, invocation);
  add_checkpoint_remove(group, invocation);
  add_by_name(group, invocation, "rollback", "Return to a checkpoint: what ran since then ends");
  add_undo(group, invocation);
  add_fork(group, invocation);
  add_merge(group, invocation);
  add_tree(group, invocation);
}

void add_snapshot_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* group =
      app.add_subcommand("snapshot", "States of sessions, kept as environments for new ones");
  group->require_subcommand(1);
  add_snapshot_create(*group, invocation);
  add_snapshot_list(*group, invocation);
  add_snapshot_remove(*group, invocation);
}

}  // namespace asr
