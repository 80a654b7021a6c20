#include "api/e2b/process_events.hpp"

#include <signal.h>

#include <cstring>

namespace asr {

namespace {

json::object event(json::object what) { return {{"event", std::move(what)}}; }

}  // namespace

json::object start_event(std::int32_t pid) {
  return event({{"start", json::object{{"pid", pid}}}});
}

json::object data_event(const OutputLog::Piece& piece, bool terminal) {
  const char* name = terminal                                   ? "pty"
                     : piece.stream == OutputChunk::Stream::err ? "stderr"
                                                                : "stdout";
  return event({{"data", json::object{{name, base64(piece.data)}}}});
}

json::object keepalive_event() { return event({{"keepalive", json::object()}}); }

std::string signal_text(int number) {
  const char* known = ::sigdescr_np(number);
  std::string text = known ? known : "signal " + std::to_string(number);
  if (text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return "signal: " + text;
}

json::object end_event(const ExitStatus& status) {
  json::object end;
  bool exited = status.reason == EndReason::exited;
  if (exited) {
    end["exitCode"] = status.exit_code;
    end["exited"] = true;
    end["status"] = "exit status " + std::to_string(status.exit_code);
    if (status.exit_code != 0) end["error"] = end["status"];
  } else {
    end["exitCode"] = -1;
    end["exited"] = false;
    end["status"] = signal_text(status.signal == 0 ? SIGKILL : status.signal);
    end["error"] = status.reason == EndReason::out_of_memory
                       ? json::value("signal: killed (the sandbox is out of memory)")
                       : end["status"];
  }
  return event({{"end", std::move(end)}});
}

json::object process_info(const SessionCommand& command) {
  const Command& what = command.request().command;
  json::array args;
  for (std::size_t i = 1; i < what.argv.size(); ++i) args.emplace_back(repair_utf8(what.argv[i]));
  json::object envs;
  for (const std::string& name : command.request().env_names) {
    auto found = what.env.find(name);
    if (found != what.env.end()) envs[repair_utf8(name)] = repair_utf8(found->second);
  }
  json::object config{
      {"cmd", repair_utf8(what.argv.at(0))}, {"args", std::move(args)}, {"envs", std::move(envs)}};
  if (!what.cwd.empty()) config["cwd"] = repair_utf8(what.cwd);
  json::object info{{"config", std::move(config)}, {"pid", command.pid()}};
  if (!command.request().tag.empty()) info["tag"] = repair_utf8(command.request().tag);
  return info;
}

}  // namespace asr
