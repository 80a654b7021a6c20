#include <boost/json/object.hpp>

#include "base/clock.hpp"
#include "base/id.hpp"
#include "net/egress_state.hpp"
#include "net/json.hpp"

namespace asr {

namespace {

constexpr std::size_t kLongestPath = 512;
constexpr std::size_t kLongestMethod = 32;

unsigned status_for(const Error& error) {
  switch (error.code) {
    case Errc::invalid:
      return 400;
    case Errc::denied:
      return 403;
    case Errc::exhausted:
      return 429;
    case Errc::timeout:
      return 504;
    default:
      return 502;
  }
}

// 32 hexadecimal digits.
std::string new_trace() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id = random_name(32);
  for (char& c : id) c = kDigits[static_cast<unsigned char>(c) & 15];
  return id;
}

}  // namespace

OpenAttempt::OpenAttempt(std::shared_ptr<EgressState> state, std::string method)
    : state_(std::move(state)) {
  attempt_.at_ms = now_ms();
  attempt_.method = std::move(method);
  if (attempt_.method.size() > kLongestMethod) attempt_.method.resize(kLongestMethod);
  state_->attempts.insert(this);
}

OpenAttempt::~OpenAttempt() {
  finish();
  state_->attempts.erase(this);
}

void OpenAttempt::set_target(const HostAndPort& target) {
  target_ = target;
  attempt_.host = target.host.text;
  attempt_.port = target.port;
}

void OpenAttempt::set_path(std::string_view target) {
  attempt_.path = std::string(target.substr(0, std::min(target.find('?'), kLongestPath)));
}

// What fails because it was cut off failed for that reason.
void OpenAttempt::give_reason(std::string reason) {
  if (!attempt_.reason.empty()) return;
  attempt_.reason = cutoff_->is_cut() ? cutoff_->reason() : std::move(reason);
}

void OpenAttempt::deny(std::string reason) {
  give_reason(std::move(reason));
  attempt_.allowed = false;
}

void OpenAttempt::ended_by(std::string reason) { give_reason(std::move(reason)); }

void OpenAttempt::fail_with(const Error& error) {
  give_reason(error.what);
  bool by_policy =
      error.code == Errc::denied || error.code == Errc::invalid || error.code == Errc::exhausted;
  if (!by_policy) attempt_.allowed = true;
}

bool OpenAttempt::count(Direction direction, std::size_t bytes) {
  (direction == Direction::up ? attempt_.bytes_up : attempt_.bytes_down) += bytes;
  (direction == Direction::up ? state_->counts.bytes_up : state_->counts.bytes_down) += bytes;
  state_->used += bytes;
  if (!state_->is_used_up()) return !cutoff_->is_cut();
  cutoff_->cut("the session has used up its bytes");
  return false;
}

void OpenAttempt::finish() {
  if (std::exchange(over_, true)) return;
  if (cutoff_->is_cut()) give_reason(cutoff_->reason());
  if (silent_ && attempt_.allowed) return;
  ++state_->counts.attempts;
  if (!attempt_.allowed) ++state_->counts.denied;
  attempt_.duration =
      std::chrono::duration_cast<std::chrono::milliseconds>(EgressState::Clock::now() - begun_);
  // Whoever is told may stop the proxy, which forgets whom it tells.
  auto report = state_->report;
  if (report) report(attempt_);
}

Response error_answer(unsigned status, const Error& error) {
  json::object inner{{"code", to_string(error.code)},
                     {"fault", to_string(error.fault())},
                     {"message", repair_utf8(error.what)},
                     {"hint", repair_utf8(error.hint)},
                     {"trace_id", new_trace()}};
  Response response;
  response.status = status;
  response.headers.add("Content-Type", "application/json");
  response.body = to_text(json::object{{"error", std::move(inner)}}) + "\n";
  return response;
}

Response error_answer(const Error& error) { return error_answer(status_for(error), error); }

}  // namespace asr
