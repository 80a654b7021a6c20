#include "session/session.hpp"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json/parse.hpp>
#include <charconv>

#include "base/clock.hpp"
#include "session/effects_json.hpp"
#include "session/history_steps.hpp"

namespace asr {

namespace {

// Bounds what a session may hold in the server's memory.
constexpr std::size_t kMostSessionOutput = 8 << 20;  // of all that have ended
constexpr std::size_t kMostCommands = 200;           // that have ended
constexpr std::size_t kMostRunning = 1000;
constexpr std::uint32_t kMostAttempts = 50;  // told in a second

json::value parsed(const std::string& text) {
  boost::system::error_code ec;
  json::value value = json::parse(text, ec);
  return ec ? json::value(nullptr) : value;
}

}  // namespace

std::string_view to_string(SessionState state) noexcept {
  switch (state) {
    case SessionState::creating:
      return "creating";
    case SessionState::ready:
      return "ready";
    case SessionState::paused:
      return "paused";
    case SessionState::stopped:
      return "stopped";
    case SessionState::gone:
      break;
  }
  return "gone";
}

json::array json_of(const Isolation& isolation) {
  json::array facts;
  for (const IsolationFact& fact : isolation.facts) {
    json::object entry{{"name", fact.name},
                       {"guarantee", to_string(fact.guarantee)},
                       {"mechanism", fact.mechanism}};
    if (!fact.note.empty()) entry["note"] = fact.note;
    facts.push_back(std::move(entry));
  }
  return facts;
}

Session::Session(Context::Home home, SessionRecord record, SessionRequest request,
                 std::shared_ptr<Sandbox> sandbox, std::shared_ptr<CommandJournal> journal,
                 Artifacts artifacts)
    : executor_(home.executor),
      record_(std::move(record)),
      request_(std::move(request)),
      sandbox_(std::move(sandbox)),
      journal_(std::move(journal)),
      artifacts_(std::move(artifacts)),
      contexts_(std::move(home)),
      branching_(executor_, 1),
      last_used_(Clock::now() - std::chrono::milliseconds(
                                    std::max<std::int64_t>(0, now_ms() - record_.active_ms))) {
  set_life(record_.expires_ms, record_.idle_ms);
  journal_->when_large([this] { tidy_journal(); });
}

Session::~Session() { journal_->when_large(nullptr); }

Result<std::shared_ptr<Sandbox>> Session::sandbox(Want want) const {
  if (state_ == SessionState::creating)
    return fail(Errc::conflict, "the session is being started or stopped", "try again in a moment");
  if (state_ == SessionState::stopped)
    return fail(Errc::conflict, "the session is stopped", "resume it first");
  if (state_ == SessionState::gone || !sandbox_ || sandbox_->state() == SandboxState::gone)
    return fail(Errc::gone, "the session has ended");
  if (state_ == SessionState::paused && want == Want::running)
    return fail(Errc::conflict, "the session is paused", "resume it first");
  return sandbox_;
}

void Session::set_sandbox(std::shared_ptr<Sandbox> sandbox) noexcept {
  egress_.reset();
  sandbox_ = std::move(sandbox);
}

void Session::set_egress(std::unique_ptr<SessionEgress> egress) {
  egress_ = std::move(egress);
  trust_.clear();  // Another authority.
}

void Session::set_network(NetworkRequest network, EgressPolicy filled) {
  request_.network = std::move(network);
  refill_network(std::move(filled));
}

void Session::refill_network(EgressPolicy filled) {
  if (egress_) egress_->replace(std::move(filled));
}

std::optional<std::uint64_t> Session::may_tell_attempt() noexcept {
  auto now = Clock::now();
  if (now - telling_since_ >= std::chrono::seconds(1)) {
    telling_since_ = now;
    told_attempts_ = 0;
  }
  if (told_attempts_++ < kMostAttempts) return std::exchange(unsaid_attempts_, 0);
  ++unsaid_attempts_;
  return std::nullopt;
}

void Session::move_out() {
  journal_->move_out();
  if (history_) history_->move_out();
}

void Session::leave() {
  move_out();
  journal_->seal();
  if (history_) history_->seal();
  egress_.reset();
}

void Session::forget() noexcept {
  journal_->drop();
  if (history_) history_->drop();
  egress_.reset();
}

void Session::note(json::object step) {
  if (!history_) return;
  asio::post(executor_,
             [self = shared_from_this(), step = std::move(step)] { self->history_->add(step); });
}

void Session::touch() noexcept {
  last_used_ = Clock::now();
  record_.active_ms = now_ms();
}

void Session::set_life(std::int64_t expires_ms, std::int64_t idle_ms) noexcept {
  record_.expires_ms = expires_ms;
  record_.idle_ms = idle_ms;
  // The wall clock may jump; from here on a steady one counts.
  expires_ = expires_ms == 0
                 ? Clock::time_point::max()
                 : Clock::now() +
                       std::chrono::milliseconds(std::max<std::int64_t>(0, expires_ms - now_ms()));
}

Session::Clock::time_point Session::deadline() const noexcept {
  if (state_ == SessionState::stopped || state_ == SessionState::creating)
    return Clock::time_point::max();
  // Nobody uses one that stands still.
  if (record_.idle_ms == 0 || holds_ > 0 || state_ == SessionState::paused) return expires_;
  return std::min(expires_, last_used_ + std::chrono::milliseconds(record_.idle_ms));
}

std::function<void()> Session::after(const std::shared_ptr<SessionCommand>& command,
                                     CommandEnd ended) {
  return
      [weak = weak_from_this(), command_weak = std::weak_ptr(command), ended = std::move(ended)] {
        auto over = command_weak.lock();
        if (auto session = weak.lock()) {
          session->touch();
          if (over) session->count_end(*over);
          session->forget_old_commands();
        }
        if (over) ended(over);
      };
}

std::map<std::string, std::string> Session::environment() const {
  std::map<std::string, std::string> all = request_.env;
  all.insert(trust_.begin(), trust_.end());
  return all;
}

asio::awaitable<Result<std::shared_ptr<SessionCommand>>> Session::start_command(
    CommandRequest request, CommandEnd ended) {
  auto self = shared_from_this();
  auto box = CO_TRY(sandbox());
  touch();
  if (commands_.size() > kMostRunning + kMostCommands)
    co_return fail(Errc::exhausted, "too many commands in this session",
                   "end some of those that run in the background");
  request.command.env.merge(environment());
  if (request.command.cwd.empty()) request.command.cwd = request_.cwd;
  bool counts = request.command.effects && egress_;
  std::uint64_t number = ++command_count_;
  auto command = std::make_shared<SessionCommand>(executor_, number, std::move(request),
                                                  kMostCommandOutput, journal_);
  if (counts)
    command->count_connections([weak = weak_from_this()] {
      auto session = weak.lock();
      return session ? connections_of(*session) : Effects::Connections();
    });
  auto starting = command->start(box, after(command, std::move(ended)));
  CO_TRY(co_await std::move(starting));
  commands_.emplace(number, command);
  if (command->is_running() && !command->is_kept()) keep_if_it_lasts(command);
  co_return command;
}

// One that waits for all of them, because commands are many and most are short.
void Session::keep_if_it_lasts(const std::shared_ptr<SessionCommand>& command) {
  young_.push_back(command);
  if (std::exchange(watching_young_, true)) return;
  asio::co_spawn(executor_, keep_those_that_last(weak_from_this()), asio::detached);
}

asio::awaitable<void> Session::keep_those_that_last(std::weak_ptr<Session> session) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (;;) {
    std::optional<Clock::time_point> next;
    if (auto self = session.lock()) next = self->look_at_young();
    if (!next) co_return;
    timer.expires_at(*next);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

// When to look again.
std::optional<Session::Clock::time_point> Session::look_at_young() {
  auto now = Clock::now();
  for (; !young_.empty(); young_.pop_front()) {
    auto command = young_.front().lock();
    if (!command || !command->is_running()) continue;
    if (command->lasts_from() > now) return command->lasts_from();
    asio::co_spawn(executor_, command->keep_because_it_lasts(), asio::detached);
  }
  watching_young_ = false;
  return std::nullopt;
}

void Session::take_up(std::vector<JournaledCommand> journaled, const CommandEnd& ended) {
  std::map<std::string, std::shared_ptr<Execution>> executions;
  if (sandbox_)
    for (auto& execution : sandbox_->adopted_executions()) {
      std::string label = execution->label();
      if (Contexts::is_label(label)) {
        contexts_.take_up(std::move(execution), label);
        continue;
      }
      executions.emplace(std::move(label), std::move(execution));
    }
  for (JournaledCommand& known : journaled) {
    auto command =
        std::make_shared<SessionCommand>(executor_, std::move(known), kMostCommandOutput, journal_);
    command_count_ = std::max(command_count_, command->number());
    commands_.emplace(command->number(), command);
    if (!command->is_running()) {
      count_end(*command);
      continue;
    }
    auto found = executions.find(command->id());
    if (found != executions.end()) {
      command->go_on(std::move(found->second), after(command, ended));
      continue;
    }
    command->lose();
    count_end(*command);
    note(command_step(*command, command->describe(SessionCommand::Detail::summary)));
  }
  forget_old_commands();
}

void Session::tidy_journal() {
  std::size_t kept = 0;
  for (const auto& [number, command] : commands_) kept += command->output().kept();
  journal_->save_room(kept, [this](CommandJournal& fresh) {
    for (const auto& [number, command] : commands_) command->write_to(fresh);
  });
}

// Descriptors are few, sessions are many: the next command opens it again. One that has lasted
// until now is worth files of its own.
void Session::rest() {
  move_out();
  bool running = std::any_of(commands_.begin(), commands_.end(),
                             [](const auto& entry) { return entry.second->is_running(); });
  if (!running) journal_->close();
  if (history_) history_->close();
}

void Session::count_end(const SessionCommand& command) {
  ended_.push_back(command.number());
  ended_bytes_ += command.output().kept();
}

void Session::forget_old_commands() {
  while (ended_.size() > kMostCommands || ended_bytes_ > kMostSessionOutput) {
    auto oldest = commands_.find(ended_.front());
    ended_.pop_front();
    ended_bytes_ -= oldest->second->output().kept();
    commands_.erase(oldest);
  }
}

Result<std::shared_ptr<SessionCommand>> Session::command(std::string_view id) const {
  std::uint64_t number = 0;
  if (id.starts_with('c')) {
    auto [end, ec] = std::from_chars(id.data() + 1, id.data() + id.size(), number);
    if (ec != std::errc() || end != id.data() + id.size()) number = 0;
  }
  auto found = commands_.find(number);
  if (found == commands_.end() || found->second->id() != id)
    return fail(Errc::not_found, "there is no such command in this session",
                "GET /api/sessions/{id}/commands lists those that are kept");
  return found->second;
}

std::vector<std::shared_ptr<SessionCommand>> Session::commands() const {
  std::vector<std::shared_ptr<SessionCommand>> all;
  for (const auto& [number, command] : commands_) all.push_back(command);
  return all;
}

json::object Session::describe() const { return asr::describe(record_); }

json::object describe(const SessionRecord& record) {
  json::object out;
  out["session_id"] = record.id;
  out["sandbox_id"] = record.id;
  out["state"] = record.state;
  out["provider"] = record.provider;
  out["environment"] = record.environment;
  out["owner"] = record.owner;
  out["url"] = record.url;
  out["labels"] = parsed(record.labels);
  json::value spec = parsed(record.spec);
  if (const json::object* parts = spec.if_object())
    for (const char* name : {"provider_reason", "limits", "network", "tier", "volumes", "at_expiry",
                             "wake_on_traffic", "preview"})
      if (const json::value* part = parts->if_contains(name)) out[name] = *part;
  out["persistent"] = record.persistent;
  out["keep_artifacts"] = record.keep_artifacts;
  out["created_at"] = iso_time(record.created_ms);
  out["expires_at"] =
      record.expires_ms == 0 ? json::value(nullptr) : json::value(iso_time(record.expires_ms));
  if (record.left_ms != 0) out["time_left_s"] = (record.left_ms + 999) / 1000;
  out["idle_s"] = record.idle_ms == 0 ? json::value(nullptr) : json::value(record.idle_ms / 1000);
  out["active_at"] = iso_time(record.active_ms);
  out["isolation"] = parsed(record.isolation);
  if (record.ended_ms) {
    out["ended_at"] = iso_time(*record.ended_ms);
    out["end_reason"] = record.end_reason;
  }
  return out;
}

}  // namespace asr
