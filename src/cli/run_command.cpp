// agent-sandbox run: a file of code in a session of its own, and what it made.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/scope_exit.hpp"
#include "base/units.hpp"
#include "cli/answer.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"

namespace asr {

namespace {

struct RunOptions {
  std::string file;
  std::string language;
  std::string keep;  // a folder for what it made
  double timeout = 0;
  bool json = false;
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

// Names come from inside the sandbox: only their last part counts, and never one that is taken.
Result<std::filesystem::path> place_for(const std::string& folder, const json::value& artifact) {
  std::filesystem::path name = std::filesystem::path(text_at(artifact, "name")).filename();
  if (name.empty() || name == "." || name == "..") name = text_at(artifact, "artifact_id");
  std::filesystem::path place = std::filesystem::path(folder) / name;
  if (std::filesystem::exists(std::filesystem::symlink_status(place)))
    return fail(Errc::conflict, place.native() + " is there already");
  return place;
}

Result<void> fetch(Remote& remote, const std::string& session, const json::value& artifact,
                   const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::filesystem::path place = TRY(place_for(folder, artifact));
  std::ofstream file(place, std::ios::binary);
  ClientRequest request;
  request.write_body = [&](std::string_view piece) {
    file.write(piece.data(), static_cast<std::streamsize>(piece.size()));
    return file.good();
  };
  std::string id = text_at(artifact, "artifact_id");
  TRY(remote.send(std::move(request), session_path(session, "/artifacts/" + percent_encode(id))));
  file.close();
  if (!file) return fail(Errc::exhausted, "cannot write " + place.native());
  return {};
}

void print_answer(const json::value& answer) {
  std::fputs(text_at(answer, "stdout").c_str(), stdout);
  std::fputs(text_at(answer, "stderr").c_str(), stderr);
  for (const json::value& result : answer.at("results").as_array())
    if (const json::value* text = result.as_object().if_contains("text/plain");
        text && text->is_string())
      std::fprintf(stdout, "%s\n", text->get_string().c_str());
  if (const json::value& error = answer.at("error"); error.is_object())
    std::fprintf(stderr, "%s\n", text_at(error, "traceback").c_str());
  const json::array& artifacts = answer.at("artifacts").as_array();
  if (artifacts.empty()) return;
  Table table({"MADE", "SIZE", "KIND"});
  for (const json::value& artifact : artifacts) {
    boost::system::error_code ec;
    const json::value* size = artifact.as_object().if_contains("size");
    table.add({printable(text_at(artifact, "name")),
               size ? format_bytes(size->to_number<std::uint64_t>(ec)) : "",
               printable(text_at(artifact, size ? "mime" : "problem"))});
  }
  std::fflush(stdout);
  std::fputs(table.text().c_str(), stderr);
}

Result<int> run(const RunOptions& options) {
  json::object cell{{"language", TRY(language_of(options))}, {"code", TRY(text_in(options.file))}};
  if (options.timeout > 0) cell["timeout_s"] = options.timeout;
  Remote remote = TRY(Remote::find());
  json::value made = TRY(remote.call("POST", "/api/sessions", json::object()));
  std::string session = text_at(made, "session_id");
  ScopeExit end([&] { (void)remote.call("DELETE", session_path(session)); });
  json::value answer = TRY(remote.call("POST", session_path(session, "/execute"), cell));
  if (options.json)
    std::fprintf(stdout, "%s\n", to_text(answer).c_str());
  else
    print_answer(answer);
  if (!options.keep.empty())
    for (const json::value& artifact : answer.at("artifacts").as_array())
      if (artifact.at("artifact_id").is_string())
        TRY(fetch(remote, session, artifact, options.keep));
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
  command->callback([options, &invocation] {
    auto status = run(*options);
    invocation.status = status          ? *status
                        : options->json ? print_json_error(status.error())
                                        : complain(status.error());
  });
}

}  // namespace asr
