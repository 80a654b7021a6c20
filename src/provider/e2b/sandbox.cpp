#include "provider/e2b/sandbox.hpp"

#include <signal.h>

#include <boost/asio/post.hpp>
#include <charconv>

#include "engine/told_effects.hpp"
#include "provider/e2b/scripts.hpp"

namespace asr::e2b {

using namespace std::chrono_literals;

namespace {

constexpr auto kLifeTime = 60s;  // to end or to pause one
constexpr std::chrono::seconds kResumeLease{300};

Error unsupported(std::string_view what) {
  return Error(Errc::unsupported, "not supported by this provider: e2b cannot " + std::string(what),
               "GET /api/providers tells what each can do");
}

// "12 (name with) brackets) S 1 …"
std::optional<ProcessInfo> process_in(std::string_view stat, std::string_view uid,
                                      std::string_view words) {
  ProcessInfo info;
  std::size_t close = stat.rfind(')');
  std::size_t open = stat.find('(');
  if (close == std::string_view::npos || open == std::string_view::npos) return std::nullopt;
  auto number = [](std::string_view text) {
    std::int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  info.pid = static_cast<std::int32_t>(number(stat.substr(0, open)));
  std::string_view name = stat.substr(open + 1, close - open - 1);
  std::vector<std::string_view> fields;
  for (std::string_view rest = stat.substr(close + 1); !rest.empty();) {
    std::size_t begin = rest.find_first_not_of(' ');
    if (begin == std::string_view::npos) break;
    std::size_t end = std::min(rest.find(' ', begin), rest.size());
    fields.push_back(rest.substr(begin, end - begin));
    rest.remove_prefix(end);
  }
  if (fields.size() < 22 || fields[0].empty()) return std::nullopt;
  info.state = fields[0][0];
  info.parent = static_cast<std::int32_t>(number(fields[1]));
  info.cpu = std::chrono::milliseconds(10 * (number(fields[11]) + number(fields[12])));
  info.rss_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(0, number(fields[21]))) * 4096;
  info.uid = static_cast<std::uint32_t>(number(uid));
  auto all = from_base64(words);
  if (all) {
    std::size_t at = 0;
    while (at < all->size()) {
      std::size_t end = std::min(all->find('\0', at), all->size());
      info.argv.push_back(all->substr(at, end - at));
      at = end + 1;
    }
  }
  if (info.argv.empty()) info.argv.push_back("[" + std::string(name) + "]");
  return info;
}

}  // namespace

RemoteSandbox::RemoteSandbox(CorePtr core, std::shared_ptr<Home> home, SandboxSpec spec,
                             Isolation isolation, std::string label)
    : core_(std::move(core)),
      home_(std::move(home)),
      id_(core_->place.id),
      spec_(std::move(spec)),
      isolation_(std::move(isolation)),
      label_(std::move(label)) {}

RemoteSandbox::~RemoteSandbox() {
  if (core_->state != SandboxState::gone && !home_->leaving && home_->remove) home_->remove(core_);
}

void RemoteSandbox::set_adopted(std::vector<RemoteProcess> processes) {
  adopted_ = std::move(processes);
}

std::vector<std::unique_ptr<Execution>> RemoteSandbox::adopted_executions() {
  std::vector<std::unique_ptr<Execution>> all;
  for (RemoteProcess& process : std::exchange(adopted_, {})) {
    auto known = core_->kept.all().find(process.tag);
    if (known != core_->kept.all().end())
      all.push_back(take_up_program(core_, process, known->second));
  }
  return all;
}

asio::awaitable<Result<std::unique_ptr<Execution>>> RemoteSandbox::start(Command command) {
  return start_program(core_, std::move(command), spec_.limits);
}

asio::awaitable<Result<RunResult>> RemoteSandbox::run(Command command, std::string input) {
  if (!input.empty()) command.stdin_mode = StdinMode::pipe;
  auto starting = start_program(core_, std::move(command), spec_.limits);
  std::shared_ptr<Execution> program = CO_TRY(co_await std::move(starting));
  if (!input.empty()) {
    auto writing = program->write_stdin(std::move(input));
    (void)co_await std::move(writing);
    auto closing = program->close_stdin();
    (void)co_await std::move(closing);
  }
  RunResult result;
  for (;;) {
    auto reading = program->read();
    auto chunk = CO_TRY(co_await std::move(reading));
    if (!chunk) break;
    (chunk->stream == OutputChunk::Stream::err ? result.err : result.out) += chunk->data;
  }
  auto waiting = program->wait();
  result.status = CO_TRY(co_await std::move(waiting));
  co_return result;
}

asio::awaitable<Result<std::vector<ProcessInfo>>> RemoteSandbox::processes() {
  auto running = run_helper(core_, {"/bin/sh", "-c", std::string(kProcesses), "sh"}, "root");
  std::string text = CO_TRY(co_await std::move(running));
  std::vector<std::string_view> lines;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  std::vector<ProcessInfo> all;
  for (std::size_t i = 0; i + 2 < lines.size(); i += 3)
    if (auto info = process_in(lines[i], lines[i + 1], lines[i + 2]))
      all.push_back(std::move(*info));
  co_return all;
}

asio::awaitable<Result<void>> RemoteSandbox::signal_process(std::int32_t pid, int number) {
  auto running = run_helper(
      core_,
      {"/bin/sh", "-c", "kill -s \"$1\" \"$2\"", "sh", std::to_string(number), std::to_string(pid)},
      "root");
  auto done = co_await std::move(running);
  if (!done && done.error().code == Errc::invalid)
    co_return fail(Errc::not_found, "there is no such process");
  CO_TRY(std::move(done));
  co_return Result<void>();
}

asio::awaitable<Result<void>> RemoteSandbox::kill_all() {
  auto asking = ask(core_, "process.Process/List", json::object(), "");
  json::value answer = CO_TRY(co_await std::move(asking));
  auto processes = CO_TRY(processes_in(answer));
  for (const RemoteProcess& process : processes) {
    auto killing = signal_tree(core_, process.pid, SIGKILL);
    CO_TRY(co_await std::move(killing));
  }
  co_return Result<void>();
}

asio::awaitable<Result<Changes>> RemoteSandbox::changes() {
  co_return fail(unsupported("tell what a session changed"));
}
asio::awaitable<Result<UniqueFd>> RemoteSandbox::open_before(std::string) {
  co_return fail(unsupported("tell what a file was before"));
}
asio::awaitable<Result<UniqueFd>> RemoteSandbox::save_files(std::vector<std::string>) {
  co_return fail(unsupported("save sessions"));
}
asio::awaitable<Result<Sandbox::ArchiveReport>> RemoteSandbox::restore_files(UniqueFd) {
  co_return fail(unsupported("restore sessions"));
}
asio::awaitable<Result<UniqueFd>> RemoteSandbox::accept_egress() {
  co_return fail(unsupported("let a session reach named hosts only"));
}
asio::awaitable<Result<std::unique_ptr<EffectsWatch>>> RemoteSandbox::watch_effects(std::int32_t) {
  co_return fail(unsupported("tell effects"));
}

asio::awaitable<Result<UniqueFd>> RemoteSandbox::connect(std::uint16_t port) {
  CO_TRY(core_->check_ready());
  auto connecting = core_->remote->connect(core_->place, port);
  co_return co_await std::move(connecting);
}

asio::awaitable<Result<void>> RemoteSandbox::ping() {
  CO_TRY(core_->check_ready());
  auto core = core_;
  auto getting = core->remote->get(core->place, "/health");
  auto answer = co_await std::move(getting);
  if (answer) co_return Result<void>();
  auto looking = Core::look(core, answer.error());
  co_return fail(co_await std::move(looking));
}

asio::awaitable<Result<void>> RemoteSandbox::pause() {
  CO_TRY(core_->check_ready());
  auto core = core_;
  auto looking = usage();  // That is told of it from now on.
  (void)co_await std::move(looking);
  CO_TRY(core->check_ready());
  // Streams end with it: those who follow programs must know why.
  core->set_state(SandboxState::paused);
  auto asking = core->remote->control("POST", "/sandboxes/" + core->place.id + "/pause",
                                      json::object(), Repeat::freely, kLifeTime);
  auto answer = co_await std::move(asking);
  if (answer && answer->status == 404) {
    core->set_state(SandboxState::gone);
    co_return fail(Errc::gone, "the sandbox has ended");
  }
  if (answer) co_return Result<void>();  // 409: it was paused already.
  core->set_state(SandboxState::ready);
  co_return fail(answer.error());
}

asio::awaitable<Result<void>> RemoteSandbox::resume() {
  if (core_->state != SandboxState::paused) co_return fail(Errc::conflict, "it is not paused");
  auto core = core_;
  auto connecting = connect_remote(core, kResumeLease);
  CO_TRY(co_await std::move(connecting));
  core->set_state(SandboxState::ready);
  co_return Result<void>();
}

asio::awaitable<Result<Usage>> RemoteSandbox::usage() {
  auto core = core_;
  if (core->state == SandboxState::paused && core->last_usage) co_return *core->last_usage;
  CO_TRY(core->check_ready());
  auto getting = core->remote->get(core->place, "/metrics");
  auto answer = co_await std::move(getting);
  if (!answer) {
    auto looking = Core::look(core, answer.error());
    co_return fail(co_await std::move(looking));
  }
  core->last_usage = CO_TRY(usage_in(*answer));
  co_return *core->last_usage;
}

asio::awaitable<Result<void>> RemoteSandbox::keep(std::string label) {
  label_ = std::move(label);
  co_return core_->check_ready();
}

void RemoteSandbox::on_end(std::function<void()> told) {
  if (core_->state == SandboxState::gone)
    asio::post(core_->remote->executor(), std::move(told));
  else
    core_->told.push_back(std::move(told));
}

asio::awaitable<Result<void>> RemoteSandbox::destroy() {
  auto core = core_;
  if (core->state == SandboxState::gone) co_return Result<void>();
  auto destroying = destroy_remote(core);
  co_return co_await std::move(destroying);
}

asio::awaitable<Result<void>> destroy_remote(CorePtr core) {
  auto asking = core->remote->control("DELETE", "/sandboxes/" + core->place.id, std::nullopt,
                                      Repeat::freely, kLifeTime);
  auto answer = co_await std::move(asking);
  // Whatever came of it: nobody uses it any more, and its lease runs out.
  core->set_state(SandboxState::gone);
  if (!answer) co_return fail(answer.error());
  if (answer->status == 409)
    co_return fail(Errc::conflict, "the provider cannot end the sandbox now");
  co_return Result<void>();
}

asio::awaitable<Result<void>> connect_remote(CorePtr core, std::chrono::seconds lease) {
  json::object body{{"timeout", lease.count()}};
  auto asking = core->remote->control("POST", "/sandboxes/" + core->place.id + "/connect",
                                      std::move(body), Repeat::freely, kLifeTime);
  auto answer = CO_TRY(co_await std::move(asking));
  if (answer.status == 404) {
    core->set_state(SandboxState::gone);
    co_return fail(Errc::gone, "the sandbox has ended");
  }
  if (answer.status == 409) co_return fail(Errc::conflict, "the sandbox is about to change");
  Place place = CO_TRY(place_in(answer.body));
  if (place.id != core->place.id)
    co_return fail(Errc::provider, "the provider answers with another sandbox");
  core->place = std::move(place);
  co_return Result<void>();
}

}  // namespace asr::e2b
