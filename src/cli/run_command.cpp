// agent-sandbox run: a file of code in a session of its own, and what it made.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

#include "base/scope_exit.hpp"
#include "cli/answer.hpp"
#include "cli/cell_answer.hpp"
#include "cli/commands.hpp"
#include "cli/effects_text.hpp"
#include "cli/report.hpp"

namespace asr {

namespace {

struct RunOptions {
  std::string file;
  std::string language;
  std::string keep;  // a folder for what it made
  double timeout = 0;
  bool json = false;
  bool effects = false;
};

constexpr std::pair<std::string_view, std::string_view> kEndings[]{{".py", "python"},
                                                                   {".js", "javascript"},
                                                                   {".mjs", "javascript"},
                                                                   {".ts", "typescript"},
                                                                   {".sh", "bash"}};

Result<std::string> language_of(const RunOptions& options) {
  if (!options.language.empty()) return options.language;
  for (const auto& [ending, language] : kEndings)
    if (options.file.ends_with(ending)) return std::string(language);
  return fail(Errc::invalid, "what language is " + options.file + "?",
              "say it with --language python, javascript, typescript or bash");
}

Result<std::string> text_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(Errc::not_found, "cannot read " + path);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

Result<int> run(const RunOptions& options) {
  json::object cell{{"language", TRY(language_of(options))}, {"code", TRY(text_in(options.file))}};
  if (options.timeout > 0) cell["timeout_s"] = options.timeout;
  if (options.effects) cell["effects"] = true;
  Remote remote = TRY(Remote::find());
  json::value made = TRY(remote.call("POST", "/api/sessions", json::object()));
  std::string session = text_at(made, "session_id");
  ScopeExit end([&] { (void)remote.call("DELETE", session_path(session)); });
  json::value answer = TRY(remote.call("POST", session_path(session, "/execute"), cell));
  if (options.json)
    std::fprintf(stdout, "%s\n", to_text(answer).c_str());
  else
    print_answer(answer);
  if (options.effects && !options.json) {
    std::fflush(stdout);
    std::fputs(effects_text(answer.at("effects")).c_str(), stderr);
  }
  if (!options.keep.empty())
    for (const json::value& artifact : answer.at("artifacts").as_array())
      if (artifact.at("artifact_id").is_string())
        TRY(fetch_artifact(remote, session, artifact, options.keep, IfTaken::refuse));
  return text_at(answer, "status") == "ok" ? 0 : 1;
}

}  // namespace

void add_run_command(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(
      "run", "Run a file of code in a session of its own, and show what it made");
  command->add_option("file", options->file, "Python, JavaScript, TypeScript or Bash")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--language", options->language, "If its name does not tell");
  command->add_option("--keep", options->keep, "A folder for the pictures and files it made")
      ->type_name("DIR");
  command->add_option("--timeout", options->timeout, "Seconds it may take");
  command->add_flag("--json", options->json, "The whole answer as JSON");
  command->add_flag("--effects", options->effects,
                    "Tell what it did: files, processes, connections, refused calls");
  command->callback([options, &invocation] {
    auto status = run(*options);
    invocation.status = status          ? *status
                        : options->json ? print_json_error(status.error())
                                        : complain(status.error());
  });
}

}  // namespace asr
