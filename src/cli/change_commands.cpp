// agent-sandbox session diff and apply: what a session did to its files, and those of its changes
// that somebody wants in a folder of the server's machine.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/answer.hpp"
#include "cli/commands.hpp"
#include "cli/diff_colors.hpp"

namespace asr {

namespace {

struct DiffOptions {
  std::string session, since, path;
  std::string color = "auto";
  bool only_names = false;
};

std::string diff_path(const DiffOptions& options) {
  std::string query = options.only_names ? "?text=false" : "?text=true";
  if (!options.since.empty()) query += "&since=" + percent_encode(options.since);
  if (!options.path.empty()) query += "&path=" + percent_encode(options.path);
  return session_path(options.session, "/diff" + query);
}

std::string diff_text(const json::value& answer, Color color) {
  std::string text;
  for (const json::value& file : answer.at("files").as_array())
    text += text_of(file_diff_from(file), "", color);
  if (text_at(answer, "complete") != "true" || text_at(answer, "truncated") == "true")
    text += "There is more than can be shown: --path shows a part of it.\n";
  return text;
}

void add_diff(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto options = std::make_shared<DiffOptions>();
  CLI::App* command = group.add_subcommand("diff", "What it did to its files");
  command->add_option("session", options->session, "Its id")->required();
  command
      ->add_option("--since", options->since,
                   "A checkpoint, or @fork: what a branch began with; or its beginning")
      ->type_name("NAME");
  command->add_option("--path", options->path, "Only what is there or lies in it")
      ->type_name("PATH");
  command->add_flag("--names", options->only_names, "Without the lines that differ");
  command->add_option("--color", options->color, "Of what it shows")
      ->type_name("auto|always|never")
      ->capture_default_str();
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto color = color_for(options->color, STDOUT_FILENO);
    if (!color) {
      invocation.status = output->failed(color.error());
      return;
    }
    auto answer = call("GET", diff_path(*options));
    invocation.status = output->show(answer, [&] { return diff_text(*answer, *color); });
  });
}

struct ApplyOptions {
  std::string session, folder, from;
  std::vector<std::string> paths;
  bool remove = false;
  bool partial = false;
};

json::object body_of(const ApplyOptions& options) {
  json::object body{{"folder", options.folder}};
  if (!options.from.empty()) body["from"] = options.from;
  if (options.remove) body["remove"] = true;
  if (options.partial) body["partial"] = true;
  json::array paths;
  for (const std::string& path : options.paths) paths.emplace_back(path);
  if (!paths.empty()) body["paths"] = std::move(paths);
  return body;
}

std::string applied_table(const json::value& answer) {
  Table table({"ACTION", "PATH"});
  for (const json::value& file : answer.at("files").as_array())
    table.add({text_at(file, "action"), text_at(file, "path")});
  return table.text();
}

void add_apply(CLI::App& group, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  auto options = std::make_shared<ApplyOptions>();
  CLI::App* command = group.add_subcommand(
      "apply", "Take its changes into a folder of the server's machine, all or none");
  command->add_option("session", options->session, "Its id")->required();
  command->add_option("folder", options->folder, "One that serve --apply-folders names, or below")
      ->required();
  command->add_option("--from", options->from, "What the folder is to hold; /workspace if not said")
      ->type_name("PATH");
  command->add_option("--path", options->paths, "Only what is there or lies in it; can be repeated")
      ->type_name("PATH");
  command->add_flag("--remove", options->remove, "Remove there what was removed in the session");
  command->add_flag("--partial", options->partial, "Do what can be done, and tell what cannot");
  command->add_flag("--json", output->json, "As JSON");
  command->footer("Exit status: 1 if something was left out.");
  command->callback([=, &invocation] {
    auto answer = call("POST", session_path(options->session, "/apply"), body_of(*options));
    invocation.status = output->show(answer, [&] { return applied_table(*answer); });
    if (!answer) return;
    const json::array& left = answer->at("left").as_array();
    if (invocation.status == 0 && !left.empty()) invocation.status = 1;
    if (output->json) return;
    for (const json::value& one : left)
      std::fprintf(stderr, "agent-sandbox: left out %s: %s\n",
                   printable(text_at(one, "path")).c_str(), printable(text_at(one, "why")).c_str());
  });
}

}  // namespace

void add_change_commands(CLI::App& group, Invocation& invocation) {
  add_diff(group, invocation);
  add_apply(group, invocation);
}

}  // namespace asr
