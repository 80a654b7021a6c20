#include "provider/e2b/core.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "provider/e2b/execution.hpp"

namespace asr::e2b {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMostKept = 2000;
constexpr auto kHelperTime = 120s;
constexpr std::size_t kMostHelperOutput = 8 << 20;

// As tools of the C library word it.
Errc code_in(const std::string& complaint) {
  constexpr std::pair<std::string_view, Errc> kWords[] = {
      {"No such file", Errc::not_found},     {"Permission denied", Errc::denied},
      {"not permitted", Errc::denied},       {"Read-only", Errc::denied},
      {"File exists", Errc::conflict},       {"not empty", Errc::conflict},
      {"Is a directory", Errc::conflict},    {"Not a directory", Errc::not_found},
      {"No space", Errc::exhausted},         {"quota", Errc::exhausted},
      {"File name too long", Errc::invalid}, {"too many levels", Errc::invalid}};
  for (const auto& [word, code] : kWords)
    if (complaint.find(word) != std::string::npos) return code;
  return Errc::invalid;
}

}  // namespace

void KeptPrograms::load() {
  std::ifstream in(file_);
  std::ostringstream text;
  text << in.rdbuf();
  auto value = parse_json(text.str(), 10'000);
  if (!value || !value->is_object()) return;
  for (const auto& [tag, label] : value->get_object())
    if (label.is_string() && labels_.size() < kMostKept)
      labels_[std::string(tag)] = std::string(label.get_string());
}

Result<void> KeptPrograms::write() const {
  if (file_.empty()) return {};
  json::object all;
  for (const auto& [tag, label] : labels_) all[tag] = label;
  std::string next = file_ + ".new";
  {
    std::ofstream out(next, std::ios::trunc);
    out << to_text(all);
    if (!out.flush()) return fail(Errc::os, "cannot write " + next);
  }
  std::error_code ec;
  std::filesystem::rename(next, file_, ec);
  if (ec) return fail(Errc::os, "cannot write " + file_ + ": " + ec.message());
  return {};
}

Result<void> KeptPrograms::add(const std::string& tag, const std::string& label) {
  if (labels_.size() >= kMostKept) return fail(Errc::exhausted, "too many programs are kept");
  labels_[tag] = label;
  return write();
}

void KeptPrograms::remove(const std::string& tag) {
  if (labels_.erase(tag) != 0) (void)write();
}

void KeptPrograms::forget() {
  labels_.clear();
  std::error_code ignored;
  if (!file_.empty()) std::filesystem::remove(file_, ignored);
}

void Core::set_state(SandboxState now) {
  if (state == SandboxState::gone || state == now) return;
  state = now;
  changed.ring();
  if (now != SandboxState::gone) return;
  kept.forget();
  for (auto& tell : std::exchange(told, {})) asio::post(remote->executor(), std::move(tell));
}

Result<void> Core::check_ready() const {
  if (state == SandboxState::gone) return fail(Errc::gone, "the sandbox has ended");
  if (state == SandboxState::paused) return fail(Errc::conflict, "the sandbox is paused");
  return {};
}

asio::awaitable<Error> Core::look(std::shared_ptr<Core> core, Error error) {
  if (core->state == SandboxState::gone) co_return Error(Errc::gone, "the sandbox has ended");
  if (error.code != Errc::gone && error.code != Errc::provider) co_return error;
  auto asking = core->remote->control("GET", "/sandboxes/" + core->place.id, std::nullopt,
                                      Repeat::freely, 10s);
  auto answer = co_await std::move(asking);
  if (answer && answer->status == 404) {
    core->set_state(SandboxState::gone);
    co_return Error(Errc::gone, "the sandbox has ended");
  }
  if (error.code == Errc::gone)  // It lives, as the other half of the server says.
    co_return Error(Errc::provider, "the provider's sandbox does not answer",
                    "try again in a moment");
  co_return error;
}

asio::awaitable<Result<json::value>> ask(CorePtr core, std::string method, json::value body,
                                         std::string user, Repeat repeat,
                                         std::chrono::seconds within) {
  CO_TRY(core->check_ready());
  auto calling = core->remote->call(core->place, std::move(method), std::move(body),
                                    std::move(user), repeat, within);
  auto answer = co_await std::move(calling);
  if (answer) co_return answer;
  auto looking = Core::look(core, answer.error());
  co_return fail(co_await std::move(looking));
}

asio::awaitable<Result<std::string>> run_helper(CorePtr core, std::vector<std::string> argv,
                                                std::string user) {
  Command command;
  command.argv = std::move(argv);
  command.user = std::move(user);
  command.cwd = "/";
  command.env = {{"LC_ALL", "C"}};
  command.wall_time = kHelperTime;
  command.cpu_time = std::chrono::milliseconds(0);
  command.output_bytes = kMostHelperOutput;
  auto starting = start_program(core, std::move(command), Limits(), Unconfirmed::ends_by_itself);
  std::shared_ptr<Execution> program = CO_TRY(co_await std::move(starting));
  std::string out, err;
  for (;;) {
    auto reading = program->read();
    auto chunk = CO_TRY(co_await std::move(reading));
    if (!chunk) break;
    std::string& into = chunk->stream == OutputChunk::Stream::out ? out : err;
    into += chunk->data;
  }
  auto waiting = program->wait();
  ExitStatus status = CO_TRY(co_await std::move(waiting));
  if (status.ok()) co_return out;
  if (status.reason == EndReason::exited)
    co_return fail(code_in(err), err.empty() ? "a helper failed in the sandbox" : shown(err));
  co_return fail(Errc::provider, "a helper did not come to its end in the sandbox");
}

}  // namespace asr::e2b
