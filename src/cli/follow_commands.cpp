// agent-sandbox events and logs: what happened, and what a command wrote; once, or as it goes on.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/commands.hpp"
#include "cli/remote.hpp"
#include "cli/report.hpp"

namespace asr {

namespace {

int show_events(bool follow, bool as_json, const std::string& session) {
  auto remote = Remote::find();
  if (!remote) return complain(remote.error());
  std::string after = "0";
  for (;;) {
    std::string path = "/api/events?limit=1000&after=" + after;
    if (!session.empty()) path += "&session_id=" + percent_encode(session);
    auto answer = remote->call("GET", path);
    if (!answer) return complain(answer.error());
    const json::array& events = answer->at("events").as_array();
    for (const json::value& event : events) {
      std::string line = as_json ? to_text(event)
                                 : text_at(event, "at") + "  " + text_at(event, "session_id") +
                                       "  " + text_at(event, "type") + "  " +
                                       printable(text_at(event, "data"));
      std::printf("%s\n", line.c_str());
    }
    after = text_at(*answer, "next_after");
    if (!events.empty()) continue;
    if (!follow) return 0;
    std::fflush(stdout);
    ::usleep(500'000);
  }
}

int show_output(bool follow, const std::string& session, const std::string& command) {
  auto remote = Remote::find();
  if (!remote) return complain(remote.error());
  std::string base =
      session_path(session, "/commands/" + percent_encode(command) + "/output?offset=");
  std::string offset = "0";
  for (;;) {
    auto answer = remote->call("GET", base + offset + (follow ? "&wait_s=20" : ""));
    if (!answer) return complain(answer.error());
    const json::array& chunks = answer->at("chunks").as_array();
    if (std::string lost = text_at(*answer, "lost_bytes"); lost != "0")
      std::fprintf(stderr, "agent-sandbox: the first %s bytes are no longer kept\n", lost.c_str());
    for (const json::value& chunk : chunks) {
      auto bytes = bytes_in(chunk);
      if (!bytes) return complain(bytes.error());
      std::FILE* to = text_at(chunk, "stream") == "stderr" ? stderr : stdout;
      std::fwrite(bytes->data(), 1, bytes->size(), to);
      std::fflush(to);
    }
    offset = text_at(*answer, "next_offset");
    if (answer->at("complete").as_bool() || (!follow && chunks.empty())) return 0;
  }
}

}  // namespace

void add_events_command(CLI::App& app, Invocation& invocation) {
  auto follow = std::make_shared<bool>(false);
  auto as_json = std::make_shared<bool>(false);
  auto session = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("events", "What happened on a server");
  command->add_flag("-f,--follow", *follow, "Go on as more happens");
  command->add_option("--session", *session, "Only of this session");
  command->add_flag("--json", *as_json, "One JSON object a line");
  command->callback(
      [=, &invocation] { invocation.status = show_events(*follow, *as_json, *session); });
}

void add_logs_command(CLI::App& app, Invocation& invocation) {
  auto follow = std::make_shared<bool>(false);
  auto session = std::make_shared<std::string>();
  auto id = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("logs", "What a command of a session wrote");
  command->add_option("session", *session, "The session's id")->required();
  command->add_option("command", *id, "The command's id, such as c1")->required();
  command->add_flag("-f,--follow", *follow, "Go on until it ends");
  command->callback([=, &invocation] { invocation.status = show_output(*follow, *session, *id); });
}

}  // namespace asr
