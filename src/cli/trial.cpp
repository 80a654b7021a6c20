#include "cli/trial.hpp"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>
#include <filesystem>

#include "base/scope_exit.hpp"
#include "cli/report.hpp"
#include "cli/run.hpp"
#include "session/session.hpp"

namespace asr {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kNobody = 65534;

asio::awaitable<Result<Trial>> attempt(Engine* engine, Clock::time_point begin) {
  Trial trial;
  // The first one waits for its zygote; those after it are what people will see.
  auto creating_first = engine->create(spec_of(Preset::standard));
  auto first = CO_TRY(co_await std::move(creating_first));
  trial.start = Clock::now() - begin;

  auto at = Clock::now();
  auto creating = engine->create(spec_of(Preset::standard));
  auto sandbox = CO_TRY(co_await std::move(creating));
  trial.create = Clock::now() - at;
  trial.isolation = sandbox->isolation();

  Command command;
  command.argv = {"true"};
  at = Clock::now();
  auto running = sandbox->run(std::move(command));
  RunResult result = CO_TRY(co_await std::move(running));
  trial.run = Clock::now() - at;
  if (!result.status.ok())
    co_return fail(Errc::os, "the sandbox was made, but true failed in it: " +
                                 std::string(to_string(result.status.reason)));

  at = Clock::now();
  auto ending = sandbox->destroy();
  CO_TRY(co_await std::move(ending));
  trial.destroy = Clock::now() - at;
  first.reset();
  auto stopping = engine->stop();
  CO_TRY(co_await std::move(stopping));
  co_return trial;
}

std::string to_text(const Result<Trial>& result) {
  json::object object;
  if (!result) {
    object["error"] = result.error().what;
    object["hint"] = result.error().hint;
  } else {
    object["facts"] = json_of(result->isolation);
    object["create"] = result->create.count();
    object["run"] = result->run.count();
    object["destroy"] = result->destroy.count();
  }
  return json::serialize(object);
}

std::string text_of(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : std::string();
}

Result<Trial> from_text(const std::string& text) {
  json::error_code ec;
  json::value value = json::parse(text, ec);
  if (ec || !value.is_object())
    return fail(Errc::internal, "the attempt as an ordinary user did not answer");
  const json::object& object = value.as_object();
  if (object.contains("error"))
    return fail(Errc::os, text_of(object, "error"), text_of(object, "hint"));
  Trial trial;
  trial.create = std::chrono::nanoseconds(object.at("create").as_int64());
  trial.run = std::chrono::nanoseconds(object.at("run").as_int64());
  trial.destroy = std::chrono::nanoseconds(object.at("destroy").as_int64());
  for (const json::value& one : object.at("facts").as_array()) {
    const json::object& fact = one.as_object();
    std::string level = text_of(fact, "guarantee");
    Guarantee guarantee = level == "full"      ? Guarantee::full
                          : level == "partial" ? Guarantee::partial
                                               : Guarantee::none;
    trial.isolation.facts.push_back(
        {text_of(fact, "name"), guarantee, text_of(fact, "mechanism"), text_of(fact, "note")});
  }
  return trial;
}

Result<Trial> try_as_nobody(const std::filesystem::path& scratch) {
  // Dumpable again after the change of ids, or /proc/self would still be root's.
  if (::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
      ::setresuid(kNobody, kNobody, kNobody) != 0 || ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)
    return fail_errno("become an ordinary user");
  EngineOptions options;
  options.runtime_dir = scratch / "run";
  options.cache_dir = scratch / "cache";
  return try_sandbox(options);
}

std::string read_all(int fd, std::chrono::milliseconds most) {
  std::string text;
  std::string buffer(4096, '\0');
  const auto end = Clock::now() + most;
  for (;;) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    pollfd ready{fd, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return text;
    ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

}  // namespace

Result<Trial> try_sandbox(EngineOptions options) {
  auto begin = Clock::now();
  asio::io_context context;
  options.zygotes = 1;
  auto engine = TRY(Engine::start(context.get_executor(), std::move(options)));
  return run_to_end(context, attempt(engine.get(), begin));
}

Result<Trial> try_sandbox_rootless() {
  char name[] = "/tmp/agent-sandbox-XXXXXX";
  if (::mkdtemp(name) == nullptr) return fail_errno("mkdtemp");
  ScopeExit remove([&] {
    std::error_code ignored;
    std::filesystem::remove_all(name, ignored);
  });
  int ends[2];
  if (::chown(name, kNobody, kNobody) != 0 || ::pipe2(ends, O_CLOEXEC) != 0)
    return fail_errno("prepare");
  UniqueFd from(ends[0]), to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child == 0) {
    from.reset();
    std::string text = to_text(try_as_nobody(name));
    (void)!::write(to.get(), text.data(), text.size());
    ::_exit(0);
  }
  to.reset();
  std::string text = read_all(from.get(), std::chrono::seconds(60));
  ::kill(child, SIGKILL);  // Not reaped yet, so the number is still its own.
  ::waitpid(child, nullptr, 0);
  return from_text(text);
}

Isolation expected_as_root(const Isolation& rootless, const KernelFeatures& kernel) {
  Isolation expected = rootless;
  auto limited_by = [&](const char* controller) {
    const CgroupController* found = kernel.controller(controller);
    return found != nullptr && found->version != CgroupController::Version::none;
  };
  auto set = [&](const char* name, bool holds) {
    for (IsolationFact& fact : expected.facts)
      if (fact.name == name && holds) fact = {name, Guarantee::full, "", ""};
  };
  set("uid_range", true);
  set("kernel_quotas", true);
  set("file_owners", true);
  set("memory_limit", limited_by("memory"));
  set("cpu_limit", limited_by("cpu"));
  set("pids_limit", limited_by("pids"));
  set("pause", limited_by("freezer"));
  return expected;
}

bool is_missing(const IsolationFact& fact) {
  return fact.guarantee != Guarantee::full &&
         fact.name != "side_channels";  // Processes share a machine, always.
}

}  // namespace asr
