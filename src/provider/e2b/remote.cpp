#include "provider/e2b/remote.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "net/dial.hpp"

namespace asr::e2b {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kMostAnswer = 16 << 20;
constexpr std::size_t kMostValues = 2'000'000;
constexpr int kTries = 4;
constexpr auto kFirstPause = 150ms;
constexpr auto kLongestWish = 30s;  // of Retry-After that is followed
constexpr auto kBeginTime = 60s;    // until a stream has begun
constexpr auto kSilence = 150s;     // of streams, whose other side is asked to speak every 50
constexpr auto kStalled = 300s;     // of bytes on their way there
constexpr std::uint16_t kDaemon = 49983;

// Where E2B's own cloud has one name for all sandboxes.
bool has_shared_host(const std::string& domain) {
  return domain == "e2b.app" || domain == "e2b.dev" || domain == "e2b.pro" ||
         domain == "e2b-staging.dev";
}

std::string without_slash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

std::string message_in(const std::string& body) {
  auto value = parse_json(body, 1000);
  if (!value || !value->is_object()) return "";
  const json::value* message = value->get_object().if_contains("message");
  return message && message->is_string() ? shown(message->get_string()) : "";
}

// Refused before anything was done, and asked to come back.
std::optional<std::chrono::seconds> wished_pause(unsigned status, const Headers& headers) {
  if (status != 429) return std::nullopt;
  std::string text(headers.get("retry-after"));
  if (text.empty() || text.size() > 6 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  return std::chrono::seconds(std::stol(text));
}

Error refused(unsigned status, const std::string& message) {
  std::string said = message.empty() ? "" : ": " + message;
  switch (status) {
    case 400:
      return Error(Errc::invalid, "the provider refuses the request" + said);
    case 401:
    case 403:
      return Error(Errc::provider, "the provider does not accept this server's key",
                   "whoever runs the server can set e2b.api_key");
    case 404:
      return Error(Errc::not_found, "the provider does not have this" + said);
    case 409:
      return Error(Errc::conflict, "the provider cannot do this now" + said);
    case 429:
      return Error(Errc::exhausted, "the provider has no more to give" + said,
                   "end some sessions, or try again later");
    case 507:
      return Error(Errc::exhausted, "the sandbox's disk is full" + said);
    default:
      return Error(Errc::provider, "the provider answers " + std::to_string(status) + said,
                   "try again in a moment");
  }
}

}  // namespace

Result<void> check(const RemoteSettings& settings) {
  if (settings.api_key.empty())
    return fail(Errc::invalid, "e2b.api_key is missing", "e2b.enabled needs one");
  for (char c : settings.api_key)
    if (c <= 0x20 || c >= 0x7f) return fail(Errc::invalid, "e2b.api_key is not a key");
  auto url_of = [](const std::string& url, const char* name) -> Result<void> {
    if (url.empty()) return {};
    if (auto server = server_of_url(url); !server)
      return fail(Errc::invalid, std::string(name) + ": " + server.error().what);
    return {};
  };
  TRY(url_of(settings.api_url, "e2b.api_url"));
  TRY(url_of(settings.sandbox_url, "e2b.sandbox_url"));
  TRY(url_of("https://" + settings.domain, "e2b.domain"));
  return {};
}

asio::awaitable<Result<std::optional<json::object>>> MessageStream::next() {
  for (;;) {
    auto message = CO_TRY(envelopes_.next());
    if (message && !message->last) co_return std::move(message->body);
    if (message) {
      const json::value* error = message->body.if_contains("error");
      if (error && error->is_object()) co_return fail(connect_error(error->get_object()));
      co_return std::nullopt;
    }
    auto reading = transfer_->read();
    auto part = co_await std::move(reading);
    broken_ = !part || part->empty();
    if (!part) co_return fail(Errc::provider, "the connection to the provider broke");
    if (part->empty()) co_return fail(Errc::provider, "the provider ended a stream in its middle");
    envelopes_.feed(*part);
  }
}

Remote::Remote(asio::any_io_executor executor, RemoteSettings settings, EgressDialer* dialer,
               const Log& log)
    : executor_(std::move(executor)),
      settings_(std::move(settings)),
      api_(without_slash(settings_.api_url.empty() ? "https://api." + settings_.domain
                                                   : settings_.api_url)),
      dialer_(dialer),
      log_(log),
      pool_(executor_) {
  settings_.sandbox_url = without_slash(settings_.sandbox_url);
}

std::string Remote::trouble() const {
  return breaker_.is_open(Clock::now()) ? "the provider does not answer" : "";
}

Result<void> Remote::admit() {
  auto now = Clock::now();
  if (breaker_.may_try(now)) return {};
  return fail(Errc::provider, "the provider does not answer",
              "it is asked again in " + std::to_string(breaker_.left(now).count()) + " s");
}

// Only silence counts: whoever refuses is there.
void Remote::note(const Result<PooledResponse>& response) {
  bool was_open = breaker_.is_open(Clock::now());
  if (response)
    breaker_.answered();
  else if (response.error().code == Errc::os || response.error().code == Errc::timeout)
    breaker_.failed(Clock::now());
  if (!was_open && breaker_.is_open(Clock::now()))
    log_.warning("the provider e2b does not answer", {{"why", response.error().what}});
}

std::string Remote::without_secrets(std::string text) const {
  for (std::size_t at = 0; (at = text.find(settings_.api_key, at)) != std::string::npos;)
    text.replace(at, settings_.api_key.size(), "***");
  return text;
}

// Silence of a server is the platform's fault, not a limit of the caller's.
Error Remote::explained(const Error& error) const {
  if (error.code == Errc::exhausted || error.code == Errc::gone) return error;
  return Error(Errc::provider, "the provider e2b cannot be reached: " + without_secrets(error.what),
               "try again in a moment");
}

asio::awaitable<Remote::Outcome> Remote::send_once(PooledRequest request) {
  auto transfer = pool_.open(std::move(request));
  auto reading = read_all(transfer, kMostAnswer);
  auto response = co_await std::move(reading);
  note(response);
  co_return Outcome{std::move(response), transfer->was_never_sent()};
}

asio::awaitable<Result<PooledResponse>> Remote::send(PooledRequest request, Repeat repeat,
                                                     std::chrono::seconds within) {
  auto until = Clock::now() + within;
  asio::steady_timer timer(executor_);
  Clock::duration pause = kFirstPause;
  request.may_repeat = repeat == Repeat::freely;
  for (int attempt = 1;; ++attempt) {
    CO_TRY(admit());
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    request.total_time = std::max(left, 1ms);
    request.connect_time = std::min<std::chrono::milliseconds>(10s, request.total_time);
    auto sending = send_once(request);
    Outcome outcome = co_await std::move(sending);
    bool again = false;
    Clock::duration wait = pause;
    if (outcome.response) {
      unsigned status = outcome.response->status;
      if (auto wish = wished_pause(status, outcome.response->headers)) {
        again = *wish <= kLongestWish;
        wait = *wish;
      }
      again = again || (repeat == Repeat::freely && (status == 503 || status == 504));
    } else {
      again = repeat == Repeat::freely || outcome.never_sent;
    }
    if (!again || attempt >= kTries || Clock::now() + wait >= until) {
      if (!outcome.response) co_return fail(explained(outcome.response.error()));
      co_return std::move(outcome.response);
    }
    timer.expires_after(wait);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    pause *= 3;
  }
}

asio::awaitable<Result<Remote::Answer>> Remote::control(std::string method, std::string path,
                                                        std::optional<json::value> body,
                                                        Repeat repeat,
                                                        std::chrono::seconds within) {
  PooledRequest request;
  request.method = std::move(method);
  request.url = api_ + path;
  request.headers.add("X-API-Key", settings_.api_key);
  request.headers.add("User-Agent", "agent-sandbox");
  if (body) {
    request.headers.add("Content-Type", "application/json");
    request.body = to_text(*body);
  }
  auto sending = send(std::move(request), repeat, within);
  PooledResponse response = CO_TRY(co_await std::move(sending));
  Answer answer{response.status, {}, std::string(response.headers.get("x-next-token"))};
  if (response.status == 404 || response.status == 409) {
    answer.body = json::string(without_secrets(message_in(response.body)));
    co_return answer;
  }
  if (response.status < 200 || response.status >= 300)
    co_return fail(refused(response.status, without_secrets(message_in(response.body))));
  if (!response.body.empty()) {
    auto value = parse_json(response.body, kMostValues);
    if (!value) co_return fail(Errc::provider, "the provider's answer is not JSON");
    answer.body = std::move(*value);
  }
  co_return answer;
}

std::string Remote::sandbox_base(const Place& place, std::uint16_t port) const {
  if (!settings_.sandbox_url.empty()) return settings_.sandbox_url;
  const std::string& domain = place.domain.empty() ? settings_.domain : place.domain;
  if (port == kDaemon && has_shared_host(domain)) return "https://sandbox." + domain;
  return "https://" + std::to_string(port) + "-" + place.id + "." + domain;
}

PooledRequest Remote::to_sandbox(const Place& place, std::uint16_t port,
                                 const std::string& user) const {
  PooledRequest request;
  request.url = sandbox_base(place, port);
  request.headers.add("User-Agent", "agent-sandbox");
  request.headers.add("E2b-Sandbox-Id", place.id);
  request.headers.add("E2b-Sandbox-Port", std::to_string(port));
  if (!place.token.empty()) request.headers.add("X-Access-Token", place.token);
  if (!user.empty()) request.headers.add("Authorization", "Basic " + base64(user + ":"));
  return request;
}

Result<void> Remote::judge(unsigned status, const std::string& body) {
  if (status >= 200 && status < 300) return {};
  if (status == 502) return fail(Errc::gone, "the sandbox does not run");
  auto value = parse_json(body, 1000);
  if (value && value->is_object()) {
    const json::value* code = value->get_object().if_contains("code");
    if (code && code->is_string()) {
      Error error = connect_error(value->get_object());
      error.what = without_secrets(std::move(error.what));
      return fail(std::move(error));
    }
  }
  std::string message = without_secrets(message_in(body));
  // By this server, for whomever: no limit of the session's is used up, no disk is full.
  if (status == 429)
    return fail(Errc::provider, "the provider is asked too often", "try again in a moment");
  // A sandbox's own word about one of its files, not about our key.
  if (status == 403)
    return fail(Errc::denied, message.empty() ? "the sandbox refuses it" : message);
  return fail(refused(status, message));
}

asio::awaitable<Result<json::value>> Remote::call(Place place, std::string method, json::value body,
                                                  std::string user, Repeat repeat,
                                                  std::chrono::seconds within) {
  PooledRequest request = to_sandbox(place, kDaemon, user);
  request.method = "POST";
  request.url += "/" + method;
  request.headers.add("Content-Type", "application/json");
  request.headers.add("Connect-Protocol-Version", "1");
  request.body = to_text(body);
  auto sending = send(std::move(request), repeat, within);
  PooledResponse response = CO_TRY(co_await std::move(sending));
  CO_TRY(judge(response.status, response.body));
  auto value = parse_json(response.body.empty() ? "{}" : response.body, kMostValues);
  if (!value) co_return fail(Errc::provider, "the provider's answer is not JSON");
  co_return std::move(*value);
}

asio::awaitable<Result<std::shared_ptr<HttpTransfer>>> Remote::open(PooledRequest request,
                                                                    Repeat repeat,
                                                                    Clock::time_point until) {
  asio::steady_timer timer(executor_);
  request.may_repeat = repeat == Repeat::freely;
  Clock::duration pause = kFirstPause;
  for (int attempt = 1;; ++attempt) {
    CO_TRY(admit());
    auto transfer = pool_.open(request);
    timer.expires_at(until);
    timer.async_wait([transfer](boost::system::error_code ec) {
      if (!ec) transfer->cancel();
    });
    auto asking = transfer->head();
    auto head = co_await std::move(asking);
    timer.cancel();
    Clock::duration wait = pause;
    bool again = false;
    if (head) {
      breaker_.answered();
      auto wish = wished_pause(head->status, head->headers);
      again = wish && *wish <= kLongestWish;
      if (again) wait = *wish;
      again = again || (repeat == Repeat::freely && (head->status == 503 || head->status == 504));
    } else {
      Error why = Clock::now() < until ? head.error()
                                       : Error(Errc::timeout, "the server did not answer in time");
      note(fail(why));
      again = repeat == Repeat::freely || transfer->was_never_sent();
      head = fail(std::move(why));
    }
    if (!again || attempt >= kTries || Clock::now() + wait >= until) {
      if (head) co_return transfer;
      Error error = explained(head.error());
      if (repeat == Repeat::if_unsent && !transfer->was_never_sent())
        error.hint = "whether it has begun is not known";
      co_return fail(std::move(error));
    }
    timer.expires_after(wait);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    pause *= 3;
  }
}

asio::awaitable<Result<std::shared_ptr<MessageStream>>> Remote::stream(Place place,
                                                                       std::string method,
                                                                       json::value body,
                                                                       std::string user) {
  PooledRequest request = to_sandbox(place, kDaemon, user);
  request.method = "POST";
  request.url += "/" + method;
  request.headers.add("Content-Type", "application/connect+json");
  request.headers.add("Connect-Protocol-Version", "1");
  request.headers.add("Keepalive-Ping-Interval", "50");
  request.body = envelope(body);
  request.silence = kSilence;
  auto opening = open(std::move(request), Repeat::if_unsent, Clock::now() + kBeginTime);
  std::shared_ptr<HttpTransfer> transfer = CO_TRY(co_await std::move(opening));
  auto asking = transfer->head();
  auto head = CO_TRY(co_await std::move(asking));
  if (head.status == 200) co_return std::make_shared<MessageStream>(std::move(transfer));
  auto reading = read_all(transfer, 64 << 10);
  auto response = co_await std::move(reading);
  auto judged = judge(head.status, response ? response->body : "");
  co_return fail(judged ? Error(Errc::provider, "the provider's answer makes no sense")
                        : judged.error());
}

asio::awaitable<Result<json::value>> Remote::get(Place place, std::string path) {
  PooledRequest request = to_sandbox(place, kDaemon, "");
  request.url += path;
  auto sending = send(std::move(request), Repeat::freely, 20s);
  PooledResponse response = CO_TRY(co_await std::move(sending));
  CO_TRY(judge(response.status, response.body));
  auto value = parse_json(response.body.empty() ? "null" : response.body, 10'000);
  if (!value) co_return fail(Errc::provider, "the provider's answer is not JSON");
  co_return std::move(*value);
}

namespace {

std::string files_query(const std::string& path, const std::string& user) {
  return "/files?path=" + percent_encode(path) + "&username=" + percent_encode(user);
}

}  // namespace

Result<std::shared_ptr<HttpTransfer>> Remote::upload(const Place& place, const std::string& path,
                                                     const std::string& user) {
  TRY(admit());
  PooledRequest request = to_sandbox(place, kDaemon, "");
  request.method = "POST";
  request.url += files_query(path, user);
  request.headers.add("Content-Type", "application/octet-stream");
  request.body_follows = true;
  request.silence = kStalled;
  return pool_.open(std::move(request));
}

asio::awaitable<Result<std::shared_ptr<HttpTransfer>>> Remote::download(Place place,
                                                                        std::string path,
                                                                        std::string user) {
  PooledRequest request = to_sandbox(place, kDaemon, "");
  request.url += files_query(path, user);
  request.silence = 60s;
  auto opening = open(std::move(request), Repeat::freely, Clock::now() + kBeginTime);
  co_return co_await std::move(opening);
}

}  // namespace asr::e2b
