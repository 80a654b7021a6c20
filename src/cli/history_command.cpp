// agent-sandbox session history: what was done in a session, as a table or as a file to replay.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/unique_fd.hpp"
#include "base/units.hpp"
#include "cli/answer.hpp"
#include "cli/commands.hpp"
#include "cli/replay_history.hpp"

namespace asr {

namespace {

struct HistoryOptions {
  std::string session, lines;
  std::uint64_t from = 1;
};

// All pages as one.
Result<json::value> whole_history(const HistoryOptions& options) {
  Remote remote = TRY(Remote::find());
  json::array steps;
  std::string from = std::to_string(options.from);
  for (;;) {
    std::string rest = "/history?limit=1000&from=" + from;
    json::value page = TRY(remote.call("GET", session_path(options.session, rest)));
    for (json::value& step : page.at("steps").as_array()) steps.push_back(std::move(step));
    from = text_at(page, "next");
    if (!from.empty()) continue;
    page.as_object()["steps"] = std::move(steps);
    return page;
  }
}

std::string row_time(const json::value& step) {
  const json::value* time = step.as_object().if_contains("duration_ms");
  double millis = time && time->is_number() ? time->to_number<double>() : 0;
  if (millis == 0) return "";
  return format_duration(std::chrono::microseconds(static_cast<std::int64_t>(millis * 1000)));
}

std::string history_table(const json::value& history) {
  Table table({"STEP", "AT", "TOOK", "STATUS", "WHAT"});
  for (const char* name : {"steps", "running"})
    for (const json::value& told : history.at(name).as_array()) {
      ReplayStep step;
      step.kind = text_at(told, "kind");
      step.told = told.as_object();
      std::string status = step.text("status");
      if (std::string code = step.text("exit_code"); !code.empty() && code != "0")
        status += " " + code;
      table.add(
          {step.text("number"), step.text("started_at"), row_time(told), status, step.summary()});
    }
  std::string text = table.text();
  if (std::string dropped = text_at(history, "dropped"); dropped != "0")
    text = dropped + " steps before these made room for them\n" + text;
  return text;
}

Result<void> write_lines(const HistoryOptions& options) {
  Remote remote = TRY(Remote::find());
  bool to_stdout = options.lines == "-";
  std::string half = options.lines + ".part";
  UniqueFd file;
  if (!to_stdout)
    file = UniqueFd(::open(half.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!to_stdout && !file) return fail_errno("write " + half);
  int to = to_stdout ? STDOUT_FILENO : file.get();
  bool written = true;
  ClientRequest request;
  request.headers.add("Accept", "application/jsonl");
  request.write_body = [&](std::string_view part) {
    while (!part.empty() && written) {
      ssize_t n = ::write(to, part.data(), part.size());
      if (n < 0 && errno == EINTR) continue;
      written = n > 0;
      if (written) part.remove_prefix(static_cast<std::size_t>(n));
    }
    return written;
  };
  auto answer = remote.send(std::move(request), session_path(options.session, "/history"));
  if (!written) answer = fail_errno("write " + (to_stdout ? "the history" : half));
  if (answer && !to_stdout && ::rename(half.c_str(), options.lines.c_str()) != 0)
    answer = fail_errno("rename " + half);
  if (answer) return {};
  if (!to_stdout) ::unlink(half.c_str());
  return fail(answer.error());
}

}  // namespace

void add_history_command(CLI::App& group, Invocation& invocation) {
  auto options = std::make_shared<HistoryOptions>();
  auto output = std::make_shared<Output>();
  CLI::App* command = group.add_subcommand("history", "What was done in it, step by step");
  command->add_option("session", options->session, "Its id")->required();
  command->add_option("--jsonl", options->lines, "All of it into this file, to replay; -: stdout")
      ->type_name("PATH");
  command->add_option("--from", options->from, "Only from this step on")->type_name("STEP");
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    if (!options->lines.empty()) {
      auto written = write_lines(*options);
      invocation.status = written ? 0 : output->failed(written.error());
      return;
    }
    auto history = whole_history(*options);
    invocation.status = output->show(history, [&] { return history_table(*history); });
  });
}

}  // namespace asr
