#include "api/e2b/envd.hpp"

#include <boost/asio/steady_timer.hpp>

#include "api/e2b/sandbox_request.hpp"
#include "base/clock.hpp"

namespace asr {

namespace {

constexpr std::chrono::seconds kNamesHold{3};
constexpr std::size_t kMostAccounts = 1 << 20;  // bytes

asio::awaitable<std::string> account_file(std::shared_ptr<Sandbox> sandbox, std::string path) {
  auto reading = sandbox->read_file(std::move(path), kMostAccounts);
  auto text = co_await std::move(reading);
  co_return text ? *std::move(text) : std::string();
}

}  // namespace

std::string basic_user(std::string_view authorization) {
  constexpr std::string_view kScheme = "Basic ";
  if (authorization.size() <= kScheme.size() ||
      !equal_ignoring_case(authorization.substr(0, kScheme.size()), kScheme))
    return {};
  auto plain = from_base64(authorization.substr(kScheme.size()));
  return plain ? plain->substr(0, plain->find(':')) : std::string();
}

asio::awaitable<AccountNames> names_in(EnvdCallPtr call) {
  auto memory = call->memory;
  auto now = Bell::Clock::now();
  if (now < memory->names_until) co_return memory->names;
  auto reading_users = account_file(call->sandbox, "/etc/passwd");
  std::string users = co_await std::move(reading_users);
  auto reading_groups = account_file(call->sandbox, "/etc/group");
  std::string groups = co_await std::move(reading_groups);
  memory->names = AccountNames::parse(users, groups);
  // Every sandbox has these, whatever its files say.
  memory->names.users.try_emplace("root", AccountNames::Account{0, "/root"});
  memory->names.users.try_emplace("user", AccountNames::Account{1000, "/home/user"});
  memory->names_until = now + kNamesHold;
  co_return memory->names;
}

asio::awaitable<Result<bool>> find_user(EnvdCallPtr call, std::string name) {
  if (name.empty() || name == call->user) co_return true;
  if (name == "root") {  // Every sandbox has it, and every second client asks for it.
    call->user = std::move(name);
    call->home = "/root";
    co_return true;
  }
  auto asking = names_in(call);
  AccountNames names = co_await std::move(asking);
  auto found = names.users.find(name);
  if (found == names.users.end()) co_return false;
  call->user = std::move(name);
  call->home = found->second.home;
  co_return true;
}

std::map<std::string, std::string> e2b_environment(const Session& session) {
  std::map<std::string, std::string> env{{"E2B_SANDBOX", "true"}, {"E2B_SANDBOX_ID", session.id()}};
  const auto& labels = session.request().labels;
  auto made_from = labels.find(std::string(kE2bTemplateLabel));
  env["E2B_TEMPLATE_ID"] =
      made_from == labels.end() ? session.request().environment : made_from->second;
  for (auto& [name, value] : session.environment()) env[name] = value;
  return env;
}

Answering serve_unary(EnvdCallPtr call, UnaryCall handle) {
  auto admitting = admit_media(call->exchange, "application/json");
  bool fits = CO_TRY(co_await std::move(admitting));
  if (!fits) co_return Result<void>();
  auto reading = call->exchange->read_body(kMostRpcMessage);
  auto body = co_await std::move(reading);
  Result<json::object> message =
      body ? message_from(*body) : Result<json::object>(fail(body.error()));
  Result<Unary> answer = Unary();
  if (message) {
    auto handling = handle(call, *std::move(message));
    answer = co_await std::move(handling);
  } else {
    answer = fail(message.error());
  }
  auto answering = answer_unary(call->exchange, std::move(answer));
  co_return co_await std::move(answering);
}

namespace {

Answering serve_stream(EnvdCallPtr call, StreamCall handle) {
  auto admitting = admit_media(call->exchange, "application/connect+json");
  bool fits = CO_TRY(co_await std::move(admitting));
  if (!fits) co_return Result<void>();
  auto serving = handle(call);
  co_return co_await std::move(serving);
}

}  // namespace

Answering serve_method(EnvdCallPtr call, std::string_view method, const StreamCalls& streams,
                       const UnaryCalls& calls) {
  if (auto found = streams.find(method); found != streams.end())
    return serve_stream(std::move(call), found->second);
  if (auto found = calls.find(method); found != calls.end())
    return serve_unary(std::move(call), found->second);
  return answer_unary(call->exchange,
                      Unary::failed(ConnectCode::unimplemented, "there is no such method"));
}

Answering answer_plain_error(Exchange* exchange, unsigned status, std::string message) {
  Response response;
  response.status = status;
  response.headers.add("Content-Type", "application/json");
  response.body = to_text(json::object{{"code", status}, {"message", repair_utf8(message)}});
  auto responding = exchange->respond(std::move(response));
  co_return co_await std::move(responding);
}

Answering answer_json(Exchange* exchange, json::value body) {
  Response response;
  response.headers.add("Content-Type", "application/json");
  response.body = to_text(body);
  auto responding = exchange->respond(std::move(response));
  co_return co_await std::move(responding);
}

// How busy it is, since somebody asked last; who asks for the first time waits a moment.
Answering serve_metrics(EnvdCallPtr call) {
  constexpr std::chrono::milliseconds kMoment{100};
  auto asking = call->sandbox->usage();
  Usage usage = CO_TRY(co_await std::move(asking));
  auto now = Bell::Clock::now();
  auto before = call->memory->cpu;
  if (!before || now - before->first < kMoment) {
    before = std::pair(now, usage.cpu);
    asio::steady_timer moment(call->parts.executor, kMoment);
    boost::system::error_code ignored;
    co_await moment.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    auto again = call->sandbox->usage();
    usage = CO_TRY(co_await std::move(again));
    now = Bell::Clock::now();
  }
  call->memory->cpu = std::pair(now, usage.cpu);
  const Limits& limits = call->sandbox->spec().limits;
  auto passed = std::chrono::duration<double, std::micro>(now - before->first).count();
  double cpus = std::max(1.0, (limits.milli_cpus + 999) / 1000 * 1.0);
  double used = static_cast<double>((usage.cpu - before->second).count()) / passed / cpus * 100;
  constexpr std::uint64_t kMiB = 1 << 20;
  json::object body{{"ts", now_ms() / 1000},
                    {"cpu_count", static_cast<int>(cpus)},
                    {"cpu_used_pct", used},
                    {"mem_total", limits.memory_bytes},
                    {"mem_used", usage.memory_bytes},
                    {"mem_cache", 0},
                    {"mem_total_mib", limits.memory_bytes / kMiB},
                    {"mem_used_mib", usage.memory_bytes / kMiB},
                    {"disk_used", usage.disk_bytes},
                    {"disk_total", usage.disk_limit_bytes}};
  auto answering = answer_json(call->exchange, std::move(body));
  co_return co_await std::move(answering);
}

}  // namespace asr
