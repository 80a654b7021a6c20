#include "cli/prompt_cells.hpp"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/units.hpp"
#include "cli/cell_answer.hpp"
#include "cli/report.hpp"
#include "cli/terminal.hpp"

namespace asr {

namespace {

using namespace std::chrono_literals;

constexpr auto kAnswerWithin = 15s;
constexpr auto kStartWithin = 90s;  // an interpreter, on a machine that is busy
constexpr int kInterruptAgainMs = 100;
constexpr std::size_t kLongestPrompt = 200;
constexpr int kEnough = 3;  // interrupts that a cell, or its server, may ignore

}  // namespace

std::string PromptCells::context_path(std::string_view rest) const {
  return session_path(plan_.session, "/contexts/" + plan_.language + std::string(rest));
}

Result<std::vector<std::string>> PromptCells::complete(const std::string& text) {
  json::value answer = TRY(remote_.call("POST", context_path("/complete"),
                                        json::object{{"text", repair_utf8(text)}}, kStartWithin));
  std::vector<std::string> matches;
  const json::object* fields = answer.if_object();
  const json::value* all = fields ? fields->if_contains("matches") : nullptr;
  if (!all || !all->is_array()) return matches;
  for (const json::value& match : all->get_array())
    if (match.is_string()) matches.emplace_back(match.get_string());
  return matches;
}

std::string PromptCells::version() {
  auto context = remote_.call("GET", context_path(""), nullptr, kAnswerWithin);
  return context ? printable(text_at(*context, "version")) : "";
}

// ---- while it runs

Result<json::value> PromptCells::run(const std::string& code, LineEditor* editor) {
  json::object request{{"language", plan_.language}, {"code", repair_utf8(code)}};
  if (plan_.timeout > 0) request["timeout_s"] = plan_.timeout;
  interrupts_ = 0;
  owes_interrupt_ = false;
  begin_line();
  auto showing = [this](std::string_view kind, const json::object& what) {
    return show(kind, what);
  };
  RemoteCell cell(remote_, plan_.session, std::move(request), showing);
  json::value answer = TRY(attend(cell, editor));
  show_end(answer, editor != nullptr);
  return answer;
}

Result<json::value> PromptCells::attend(RemoteCell& cell, LineEditor* editor) {
  for (;;) {
    cell.settle();
    while (auto signal = signals_.take()) {
      if (*signal == SIGTSTP) ::kill(::getpid(), SIGSTOP);
      if (wants_the_end(*signal)) wanted_end_ = *signal;
      if (*signal != SIGINT && wanted_end_ == 0) continue;
      owes_interrupt_ = true;
      ++interrupts_;
    }
    if (auto end = cell.end()) {
      begin_line();
      is_unread_ = cell.is_unread();
      if (is_unread_) interrupt();
      return *std::move(end);
    }
    if (owes_interrupt_) interrupt();
    if (wanted_end_ != 0 || interrupts_ >= kEnough) {
      begin_line();
      return fail(Errc::timeout, "the cell does not let go; it may go on in the session");
    }
    if (auto question = cell.question()) {
      answer(cell, *question, editor);
      continue;
    }
    pollfd both[]{{signals_.descriptor(), POLLIN, 0}, {cell.descriptor(), POLLIN, 0}};
    (void)::poll(both, 2, owes_interrupt_ ? kInterruptAgainMs : -1);
  }
}

// A cell that has not begun yet cannot be interrupted: then it is tried again.
void PromptCells::interrupt() {
  auto done = remote_.call("POST", context_path("/interrupt"), nullptr, kAnswerWithin);
  owes_interrupt_ = !done && done.error().code == Errc::conflict;
}

// Nobody to answer: there is no way to say so to a program that asks, but to interrupt it.
void PromptCells::answer(RemoteCell& cell, const RemoteCell::Question& question,
                         LineEditor* editor) {
  using End = TypedLine::End;
  if (!editor) {
    begin_line();
    std::fputs("agent-sandbox: the program asks for input, and there is no terminal to ask\n",
               stderr);
    owes_interrupt_ = true;
    return interrupt();
  }
  auto echo = question.password ? LineEditor::Echo::hidden : LineEditor::Echo::shown;
  auto goes_on = [&cell] {
    cell.settle();
    return !cell.end();
  };
  std::string prompt = printable(take_line() + question.prompt);
  TypedLine line = editor->ask(prompt, echo, cell.descriptor(), goes_on);
  if (line.end == End::asked) wanted_end_ = line.signal;
  if (line.end == End::entered) {
    auto sent = remote_.call("POST", context_path("/input"),
                             json::object{{"text", repair_utf8(line.text)}}, kAnswerWithin);
    if (!sent && sent.error().code != Errc::conflict) complain(sent.error());
  } else if (line.end != End::overtaken) {
    ++interrupts_;
    owes_interrupt_ = true;
    interrupt();
  }
}

bool PromptCells::show(std::string_view kind, const json::object& what) {
  if (kind == "stdout") return print(stdout, text_at(what, "text"));
  if (kind == "stderr") return print(stderr, text_at(what, "text"));
  std::string text = kind == "result" ? result_text(what) : std::string();
  if (text.empty()) return true;
  begin_line();
  return print(stdout, text + "\n");
}

bool PromptCells::print(FILE* to, const std::string& text) {
  if (text.empty()) return true;
  std::size_t end = text.rfind('\n');
  {
    std::lock_guard lock(mutex_);
    if (end != std::string::npos) line_.clear();
    line_ += text.substr(end == std::string::npos ? 0 : end + 1);
    if (line_.size() > kLongestPrompt) line_.erase(0, line_.size() - kLongestPrompt);
  }
  bool written = std::fwrite(text.data(), 1, text.size(), to) == text.size();
  return std::fflush(to) == 0 && written;
}

// Only where people look: a pipe gets what the program wrote, and no more.
void PromptCells::begin_line() {
  std::lock_guard lock(mutex_);
  bool is_seen = !std::exchange(line_, {}).empty() && ::isatty(STDOUT_FILENO) != 0;
  if (!is_seen) return;
  std::fputs("\n", stdout);
  std::fflush(stdout);
}

// What a program has written of a line before it asks belongs to its question: the editor writes it
// again, and has to know how long it is.
std::string PromptCells::take_line() {
  std::lock_guard lock(mutex_);
  if (line_.empty() || ::isatty(STDOUT_FILENO) == 0) return "";
  std::fputs("\r", stdout);
  std::fflush(stdout);
  return std::exchange(line_, {});
}

// ---- after its end

void PromptCells::show_end(const json::value& answer, bool is_interactive) {
  const json::object* fields = answer.if_object();
  if (!fields) return;
  const json::value* error = fields->if_contains("error");
  bool is_status = error && text_at(*error, "name") == "ExitStatus";  // of Bash: no more to tell
  if (error && error->is_object() && !has_exited(answer) && (!is_status || is_interactive))
    print_traceback(*error);
  auto says = [&](const char* name) {
    const json::value* value = fields->if_contains(name);
    return value && value->is_bool() && value->get_bool();
  };
  if (text_at(answer, "status") == "timeout")
    std::fprintf(stderr, "agent-sandbox: %s\n", printable(text_at(*error, "value")).c_str());
  if (says("truncated"))
    std::fputs("agent-sandbox: the output was too long; the rest is lost\n", stderr);
  if (says("restarted") && !has_exited(answer))
    std::fputs("agent-sandbox: the interpreter begins anew; its variables are lost\n", stderr);
  const json::value* artifacts = fields->if_contains("artifacts");
  if (artifacts && artifacts->is_array()) fetch_all(artifacts->get_array());
}

void PromptCells::fetch_all(const json::array& artifacts) {
  for (const json::value& artifact : artifacts) {
    std::string name = printable(text_at(artifact, "name"));
    if (text_at(artifact, "artifact_id").empty()) {
      std::fprintf(stderr, "agent-sandbox: %s: %s\n", name.c_str(),
                   printable(text_at(artifact, "problem")).c_str());
      continue;
    }
    auto goes_on = [this] {
      while (auto signal = signals_.take()) {
        if (wants_the_end(*signal)) wanted_end_ = *signal;
        if (*signal == SIGINT || wanted_end_ != 0) return false;
      }
      return true;
    };
    auto place =
        fetch_artifact(remote_, plan_.session, artifact, plan_.keep, IfTaken::number, goes_on);
    if (!place) {
      complain(Error(place.error().code, name + ": " + place.error().what, place.error().hint));
      return;
    }
    bool is_seen = ::isatty(STDERR_FILENO) != 0;
    std::string shown = is_seen ? Paint().dim(place->native()) : place->native();
    std::fprintf(stderr, "%s\n", shown.c_str());
  }
}

bool PromptCells::may_go_on() {
  auto session = remote_.exchange(ClientRequest(), session_path(plan_.session));
  if (!session) return true;  // The server may come back, and its sessions with it.
  if (session->status == 404 || session->status == 410) return false;
  auto told = parse_json(session->body);
  return !told || text_at(*told, "state") != "gone";
}

}  // namespace asr
