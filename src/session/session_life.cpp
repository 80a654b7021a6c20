// How sessions end by themselves, and how it is remembered that they were used.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "base/clock.hpp"
#include "session/sessions.hpp"

namespace asr {

namespace {

constexpr auto kKeepActivityAfter = std::chrono::seconds(5);
constexpr auto kSweepEvery = std::chrono::hours(1);

Caller the_server() { return Caller{"server", Role::admin, 0, "", 0}; }

}  // namespace

void Sessions::watch_life() { asio::co_spawn(executor_, end_those_over(), asio::detached); }

// Sleeps until the first session may be over; one that ends earlier rings.
asio::awaitable<void> Sessions::end_those_over() {
  auto stopped = stopped_;
  auto swept = Session::Clock::now() - kSweepEvery;
  while (!*stopped) {
    auto now = Session::Clock::now();
    next_look_ = now + kSweepEvery;
    std::vector<std::shared_ptr<Session>> over;
    for (const auto& [id, session] : live_) {
      if (session->deadline() <= now)
        over.push_back(session);
      else
        next_look_ = std::min(next_look_, session->deadline());
    }
    for (auto& session : over) {
      (void)co_await end(session, "expired", the_server());
      if (*stopped) co_return;
    }
    if (now - swept >= kSweepEvery) {
      swept = now;
      auto before = now_ms() - std::chrono::milliseconds(settings_.keep_ended).count();
      auto sweep = [before](Database& database) -> Result<std::int64_t> {
        TRY(trim_events(database, 100'000));
        return remove_sessions_ended_before(database, before);
      };
      (void)co_await store_.write(std::move(sweep));
      if (*stopped) co_return;
    }
    co_await life_changed_.wait(next_look_);
  }
}

void Sessions::note_activity(const std::shared_ptr<Session>& session) {
  session->touch();
  used_.insert(session->id());
  if (keeping_activity_) return;
  keeping_activity_ = true;
  asio::co_spawn(executor_, keep_activity(), asio::detached);
}

// Some seconds of activity in one write: losing them with the process makes a session end a little
// early at most.
asio::awaitable<void> Sessions::keep_activity() {
  auto stopped = stopped_;
  asio::steady_timer timer(executor_, kKeepActivityAfter);
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  if (*stopped) co_return;
  keeping_activity_ = false;
  std::vector<std::pair<std::string, std::int64_t>> times;
  for (const std::string& id : used_)
    if (auto found = live_.find(id); found != live_.end())
      times.emplace_back(id, found->second->record().active_ms);
  used_.clear();
  auto work = [times](Database& database) { return touch_sessions(database, times); };
  (void)co_await store_.write(std::move(work));
}

Sessions::Hold::Hold(Sessions* sessions, std::shared_ptr<Session> session)
    : sessions_(sessions), stopped_(sessions->stopped_), session_(std::move(session)) {
  session_->hold();
}

Sessions::Hold::~Hold() {
  session_->let_go();
  if (!*stopped_ && session_->deadline() < sessions_->next_look_) sessions_->life_changed_.ring();
}

asio::awaitable<void> Sessions::end_all(std::string reason) {
  auto all = live_;
  for (auto& [id, session] : all) (void)co_await end(session, reason, the_server());
}

}  // namespace asr
