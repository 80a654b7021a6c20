#include "session/builder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "session/initial_files.hpp"
#include "session/verdict.hpp"

namespace asr {

namespace {

constexpr std::size_t kCacheBytes = 256 << 20;
constexpr std::size_t kMostExecutable = 32 << 20;
constexpr std::size_t kMostComplaint = 64 << 10;

// A regular file in memory, so that reading it waits for nobody; how long it is the sandbox says.
Result<std::string> read_executable(const UniqueFd& file) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return fail_errno("fstat");
  std::string data(std::min(static_cast<std::size_t>(info.st_size), kMostExecutable + 1), '\0');
  std::size_t have = 0;
  while (have < data.size()) {
    ssize_t n = ::read(file.get(), data.data() + have, data.size() - have);
    if (n < 0) return fail_errno("read");
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  data.resize(have);
  return data;
}

BuiltPtr without_executable(std::string_view complaint, std::string reason) {
  Built built;
  built.complaint = std::string(beginning_of(complaint, kMostComplaint));
  built.reason = std::move(reason);
  return std::make_shared<const Built>(std::move(built));
}

}  // namespace

struct Builder::Building {
  explicit Building(asio::any_io_executor executor) : changed(std::move(executor)) {}
  Bell changed;
  std::optional<Result<BuiltPtr>> result;
  bool to_be_kept = false;  // It would come out the same again.
  std::size_t waiting = 0;  // when nobody does any more, it ends
  std::shared_ptr<Sandbox> sandbox;
};

Builder::Builder(asio::any_io_executor executor, Provider& provider)
    : executor_(std::move(executor)), provider_(provider), cache_(kCacheBytes) {}

asio::awaitable<Result<BuiltPtr>> Builder::build(std::string owner,
                                                 std::shared_ptr<const Program> program,
                                                 std::shared_ptr<CallOff> call_off) {
  std::string name = build_name(*program);
  if (BuiltPtr known = cache_.find(owner, name)) {
    ++reused_;
    co_return known;
  }
  auto key = std::pair(owner, name);
  auto found = under_way_.find(key);
  BuildingPtr building;
  if (found != under_way_.end()) {
    building = found->second;
    ++building->waiting;
    ++reused_;
  } else {
    building = std::make_shared<Building>(executor_);
    under_way_.emplace(key, building);
    ++building->waiting;
    ++built_;
    asio::co_spawn(executor_, carry_out(building, program), asio::detached);
  }
  {
    CallOff::During during(call_off.get(), [building] { building->changed.ring(); });
    while (!building->result && !call_off->is_called()) co_await building->changed.wait();
  }
  bool last = --building->waiting == 0;
  if (last && !building->result && building->sandbox) ends(executor_, building->sandbox)();
  if (last || building->result)
    if (auto own = under_way_.find(key); own != under_way_.end() && own->second == building)
      under_way_.erase(own);
  if (!building->result) co_return fail(Errc::gone, "the build was called off");
  Result<BuiltPtr> result = *building->result;
  if (result && building->to_be_kept) cache_.put(owner, name, *result);
  co_return result;
}

// Whatever happens, those who wait hear of it.
asio::awaitable<void> Builder::carry_out(BuildingPtr building,
                                         std::shared_ptr<const Program> program) {
  try {
    auto compiling = compile(building, std::move(program));
    building->result = co_await std::move(compiling);
  } catch (const std::exception&) {
    building->result = Result<BuiltPtr>(fail(Errc::internal, "something went wrong here"));
  }
  building->sandbox.reset();
  building->changed.ring();
}

asio::awaitable<Result<BuiltPtr>> Builder::compile(BuildingPtr building,
                                                   std::shared_ptr<const Program> program) {
  auto creating = provider_.create(judging_spec(build_limits()));
  auto sandbox = CO_TRY(co_await std::move(creating));
  building->sandbox = sandbox;
  if (building->waiting == 0) co_return fail(Errc::gone, "the build was called off");
  std::vector<InitialFile> files = program->files;
  files.push_back({place_of_code(*program->language), program->code, 0644});
  auto putting = put_files(sandbox, std::move(files));
  if (auto put = co_await std::move(putting); !put) {
    if (!is_callers(put.error())) co_return fail(put.error());
    co_return without_executable("", put.error().what);
  }
  auto running = sandbox->run(build_command(*program->language));
  RunResult ran = CO_TRY(co_await std::move(running));
  Verdict verdict = verdict_of(ran.status);
  if (verdict == Verdict::platform) co_return fail(Errc::os, reason_of(ran.status));
  if (ran.status.reason == EndReason::not_started) {
    Built built;
    built.missing = true;
    built.reason = "this machine has no " + std::string(program->language->needs);
    co_return std::make_shared<const Built>(std::move(built));
  }
  building->to_be_kept = ran.status.reason == EndReason::exited;
  if (verdict != Verdict::accepted)
    co_return without_executable(ran.err, ran.status.reason == EndReason::exited
                                              ? ""
                                              : "the compiler: " + reason_of(ran.status));
  auto opening = sandbox->open_read(place_of_executable());
  auto file = co_await std::move(opening);
  if (!file && !is_callers(file.error())) co_return fail(file.error());
  if (!file) co_return without_executable(ran.err, "the compiler made no program");
  std::string executable = CO_TRY(read_executable(*file));
  if (executable.size() > kMostExecutable)
    co_return without_executable(ran.err, "the program is larger than 32 MiB");
  Built built;
  built.ok = true;
  built.executable = std::move(executable);
  built.complaint = std::string(beginning_of(ran.err, kMostComplaint));
  co_return std::make_shared<const Built>(std::move(built));
}

bool is_callers(const Error& error) noexcept {
  switch (error.code) {
    case Errc::invalid:
    case Errc::not_found:
    case Errc::conflict:
    case Errc::denied:
      return true;
    default:
      return false;
  }
}

std::function<void()> ends(asio::any_io_executor executor, std::shared_ptr<Sandbox> sandbox) {
  return [executor = std::move(executor), sandbox = std::move(sandbox)] {
    auto end = [](std::shared_ptr<Sandbox> what) -> asio::awaitable<void> {
      auto destroying = what->destroy();
      (void)co_await std::move(destroying);
    };
    asio::co_spawn(executor, end(sandbox), asio::detached);
  };
}

}  // namespace asr
