#include "engine/native_engine.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/strand.hpp>
#include <cstring>
#include <thread>

#include "base/scope_exit.hpp"
#include "engine/environment.hpp"
#include "engine/guest_answers.hpp"
#include "engine/isolation_report.hpp"
#include "engine/on_strand.hpp"
#include "launch/plan.hpp"
#include "os/file.hpp"
#include "os/landlock.hpp"

namespace asr {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr auto kHelloWithin = 30s;
// More ended sandboxes than this wait to be cleaned: new ones wait for the janitor.
constexpr std::size_t kMostBacklog = 512;

std::string bytes_of(const FilterProgram& program) {
  std::string bytes(program.size() * sizeof(sock_filter), '\0');
  std::memcpy(bytes.data(), program.data(), bytes.size());
  return bytes;
}

CgroupTotals totals_for(const EngineOptions& options) {
  CgroupTotals totals;
  auto memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  totals.memory_bytes =
      options.total_memory_bytes != 0 ? options.total_memory_bytes : memory / 10 * 9;
  auto most = read_number(AT_FDCWD, "/proc/sys/kernel/pid_max");
  auto pid_max =
      most ? static_cast<std::uint32_t>(std::min<std::uint64_t>(*most, 4U << 20)) : 32768U;
  totals.pids = options.total_pids != 0 ? options.total_pids : pid_max / 10 * 8;
  return totals;
}

bool has_ended(const std::shared_ptr<ZygoteProcess>& zygote) { return !zygote->is_alive(); }

// A group whose limits are written while something else goes on, and how that went.
struct Limited {
  Group group;
  Result<void> result;
};

std::function<void()> limit_later(std::shared_ptr<Limited> limited,
                                  std::shared_ptr<Cgroups> cgroups, Limits limits) {
  return [limited = std::move(limited), cgroups = std::move(cgroups), limits] {
    limited->result = cgroups->limit(limited->group, limits);
  };
}

std::function<void(Remains)> burial_by(std::shared_ptr<Janitor> janitor) {
  return [janitor = std::move(janitor)](Remains remains) { janitor->bury(std::move(remains)); };
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::start(asio::any_io_executor executor,
                                              EngineOptions options) {
  if (options.runtime_dir.empty()) options.runtime_dir = default_runtime_dir();
  if (options.cache_dir.empty()) options.cache_dir = default_cache_dir();
  RecoveryReport recovery = recover(options.runtime_dir, options.cache_dir);
  Instance instance = TRY(Instance::open(options.runtime_dir));
  UniqueFd image = TRY(zygote_image());
  auto cgroups = options.cgroups == EngineOptions::Cgroups::off
                     ? Cgroups::none()
                     : Cgroups::open(instance.id(), totals_for(options));
  auto engine =
      std::make_unique<NativeEngine>(std::move(executor), std::move(options), std::move(instance),
                                     std::move(recovery), std::move(image), std::move(cgroups));
  TRY(engine->prepare());
  return engine;
}

NativeEngine::NativeEngine(asio::any_io_executor executor, EngineOptions options, Instance instance,
                           RecoveryReport recovery, UniqueFd image,
                           std::shared_ptr<Cgroups> cgroups)
    : executor_(std::move(executor)),
      strand_(asio::make_strand(executor_)),
      options_(std::move(options)),
      rootless_(::geteuid() != 0),
      instance_(std::move(instance)),
      recovery_(std::move(recovery)),
      image_(std::move(image)),
      cgroups_(std::move(cgroups)),
      ids_(std::make_shared<IdRanges>()),
      janitor_(std::make_shared<Janitor>(cgroups_, ids_)) {
  if (options_.zygotes == 0)
    options_.zygotes = std::clamp(std::thread::hardware_concurrency(), 1U, 4U);
}

NativeEngine::~NativeEngine() {
  for (const auto& [key, pool] : pools_) pool->close();
  for (const auto& sandbox : living()) sandbox->kill_now();
  pools_.clear();
  homes_.clear();
  // Sandboxes that others still hold bury themselves later; their groups are empty of processes by
  // then.
  for (const auto& sandbox : living()) janitor_->bury({sandbox->group(), UniqueFd(), 0});
  janitor_->finish();
  cgroups_->close();
}

Result<void> NativeEngine::prepare() {
  ::signal(
      SIGPIPE,
      SIG_IGN);  // Or a program that closes its stdin would end us; pipes know no MSG_NOSIGNAL.
  if (::getrandom(&gate_secret_, sizeof gate_secret_, 0) != sizeof gate_secret_)
    return fail_errno("getrandom");
  fence_ = TRY(compile_fence());
  strict_gate_ = TRY(compile_gate(SyscallTier::strict, gate_secret_));
  browser_gate_ = TRY(compile_gate(SyscallTier::browser, gate_secret_));
  auto abi = landlock_abi();
  landlock_abi_ = abi ? *abi : 0;
  auto pattern = read_small_file(AT_FDCWD, "/proc/sys/kernel/core_pattern");
  piped_cores_ = pattern && pattern->starts_with('|');
  if (recovery_.instances > 0)
    log("recovered: removed " + std::to_string(recovery_.instances) + " dead instance(s), " +
        std::to_string(recovery_.sandboxes) + " sandbox(es), " +
        std::to_string(recovery_.processes) + " process(es)");
  for (const std::string& problem : recovery_.problems) log("recovery: " + problem);
  return {};
}

void NativeEngine::log(std::string_view line) const {
  if (options_.log) options_.log(line);
}

// ---- environments
// --------------------------------------------------------------------------------

asio::awaitable<Result<std::vector<wire::Layer>>> NativeEngine::layers_of(Environment environment) {
  switch (environment.kind) {
    case Environment::Kind::host:
      co_return host_layers(options_.cache_dir, instance_.id());
    case Environment::Kind::folder:
      co_return folder_layers(environment.path, instance_.dir());
    case Environment::Kind::tarball:
      co_return co_await tarball_layers(std::move(environment));
  }
  co_return fail(Errc::invalid, "unknown environment");
}

// Unpacked once, by a sandbox whose root is the empty folder: the archive is parsed in there, by
// somebody with no rights here.
asio::awaitable<Result<std::vector<wire::Layer>>> NativeEngine::tarball_layers(
    Environment environment) {
  UnpackedTar unpacked = CO_TRY(find_unpacked(environment.path, options_.cache_dir));
  if (!unpacked.ready) {
    log("unpacking " + environment.path);
    fs::path making = options_.cache_dir / half_made(instance_.id());
    std::error_code ec;
    fs::create_directories(making, ec);
    if (ec) co_return fail(Errc::os, "create " + making.native() + ": " + ec.message());
    ::chmod(making.c_str(), 0755);
    ScopeExit discard([&] { (void)remove_tree(AT_FDCWD, making.native()); });
    UniqueFd tar(::open(environment.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!tar) co_return fail_errno("open " + environment.path);
    std::vector<wire::Layer> target{{making.native(), ""}};
    auto starting = start_zygote(std::move(target), true);
    auto zygote = CO_TRY(co_await std::move(starting));
    SandboxSpec spec = spec_of(Preset::standard);
    spec.limits.memory_bytes = 1ULL << 30;
    spec.limits.milli_cpus = 0;
    auto launching = launch(zygote, std::move(spec));
    auto sandbox = CO_TRY(co_await std::move(launching));
    auto unpacking = sandbox->archive_in("/", std::move(tar), rootless_ ? "user" : "root");
    auto report = co_await std::move(unpacking);
    (void)co_await sandbox->destroy();
    if (!report) co_return fail(std::move(report).error());
    log("unpacked " + std::to_string(report->entries) + " entries, skipped " +
        std::to_string(report->skipped));
    if (::rename(making.c_str(), unpacked.root.c_str()) != 0 && errno != EEXIST &&
        errno != ENOTEMPTY)
      co_return fail_errno("rename " + unpacked.root.native());
  }
  co_return folder_layers(unpacked.root, instance_.dir());
}

asio::awaitable<Result<std::shared_ptr<ZygoteProcess>>> NativeEngine::start_zygote(
    std::vector<wire::Layer> layers, bool import) {
  wire::Configure configure;
  configure.rootless = rootless_;
  configure.import = import;
  configure.layers = std::move(layers);
  configure.stage = (instance_.dir() / ("stage-" + random_name(8))).native();
  configure.fence = bytes_of(fence_);
  configure.strict_gate = bytes_of(strict_gate_);
  configure.browser_gate = bytes_of(browser_gate_);
  configure.gate_secret = gate_secret_;
  configure.landlock_abi = landlock_abi_;
  configure.piped_cores = piped_cores_;
  if (::mkdir(configure.stage.c_str(), 0700) != 0) co_return fail_errno("mkdir " + configure.stage);
  auto starting = ZygoteProcess::start(executor_, image_.get(), std::move(configure));
  co_return co_await std::move(starting);
}

asio::awaitable<Result<void>> NativeEngine::start_zygotes(std::shared_ptr<Home> home,
                                                          Environment environment) {
  if (home->layers.empty()) {
    auto finding = layers_of(std::move(environment));
    home->layers = CO_TRY(co_await std::move(finding));
  }
  std::erase_if(home->zygotes, has_ended);
  while (home->zygotes.size() < options_.zygotes) {
    auto starting = start_zygote(home->layers, false);
    home->zygotes.push_back(CO_TRY(co_await std::move(starting)));
  }
  co_return Result<void>();
}

asio::awaitable<Result<std::shared_ptr<ZygoteProcess>>> NativeEngine::pick_zygote(
    Environment environment) {
  auto& slot = homes_[environment];
  if (!slot) slot = std::make_shared<Home>(strand_);
  auto home = slot;
  for (int tries = 0; tries < 3; ++tries) {
    while (home->starting) {
      home->changed.expires_at(std::chrono::steady_clock::time_point::max());
      boost::system::error_code ec;
      auto token = asio::redirect_error(asio::use_awaitable, ec);
      co_await home->changed.async_wait(token);
    }
    for (std::size_t i = 0; i < home->zygotes.size(); ++i) {
      auto zygote = home->zygotes[home->next++ % home->zygotes.size()];
      if (zygote->is_alive() && home->zygotes.size() == options_.zygotes) co_return zygote;
    }
    if (!home->zygotes.empty()) log("a zygote has ended; starting another");
    home->starting = true;
    auto starting = start_zygotes(home, environment);
    auto started = co_await std::move(starting);
    home->starting = false;
    home->changed.cancel();
    if (!started) co_return fail(std::move(started).error());
  }
  co_return fail(Errc::os, "zygotes end as soon as they start", "see agent-sandbox doctor");
}

// ---- sandboxes
// -----------------------------------------------------------------------------------

namespace {

// The guest's first words, on the sandbox's strand.
asio::awaitable<Result<wire::Hello>> await_hello(std::shared_ptr<Channel> channel,
                                                 std::shared_ptr<Channel::Box> box) {
  auto letter = co_await box->next(Channel::Clock::now() + kHelloWithin);
  if (!letter) {
    if (letter.error().code == Errc::gone)
      co_return fail(Errc::os, "the new sandbox ended before it was ready",
                     "perhaps its memory limit is too small; see agent-sandbox doctor");
    co_return fail(std::move(letter).error());
  }
  if (auto hello = letter->as<wire::Hello>()) co_return *hello;
  if (auto failed = letter->as<wire::LaunchFailed>()) {
    auto step =
        to_string(static_cast<LaunchStep>(std::min<std::uint32_t>(failed->step, kLaunchSteps)));
    Error error = errno_error(failed->err, "new sandbox: " + std::string(step));
    co_return fail(Errc::os, error.what, "agent-sandbox doctor tells what this machine lacks");
  }
  co_return fail(Errc::internal, "the new sandbox sent a wrong greeting");
}

asio::awaitable<Result<wire::Hello>> greet(std::shared_ptr<NativeSandbox> born,
                                           std::shared_ptr<Channel> channel,
                                           std::shared_ptr<Channel::Box> box) {
  born->begin();
  auto awaiting = await_hello(std::move(channel), std::move(box));
  co_return co_await std::move(awaiting);
}

}  // namespace

void NativeEngine::remember(const std::shared_ptr<NativeSandbox>& sandbox) {
  std::lock_guard lock(mutex_);
  // Not at each birth: looking at all of them costs the more the more there are.
  if (living_.size() >= forget_at_) {
    std::erase_if(living_, [](const auto& entry) { return entry.second.expired(); });
    forget_at_ = std::max<std::size_t>(64, 2 * living_.size());
  }
  living_.emplace(sandbox->id(), sandbox);
}

asio::awaitable<Result<std::shared_ptr<NativeSandbox>>> NativeEngine::launch(
    std::shared_ptr<ZygoteProcess> zygote, SandboxSpec spec) {
  while (janitor_->backlog() > kMostBacklog) {
    asio::steady_timer pause(executor_, 1ms);
    co_await pause.async_wait(asio::use_awaitable);
  }
  Birth birth;
  birth.id = SandboxId(random_name(26));
  birth.cgroups = cgroups_;
  birth.group = CO_TRY(cgroups_->take());
  auto janitor = janitor_;
  // Until the sandbox is made: whatever fails, its groups and ids go back.
  ScopeExit give_back([&] {
    UniqueFd pidfd =
        birth.pidfd ? UniqueFd(::fcntl(birth.pidfd.get(), F_DUPFD_CLOEXEC, 3)) : UniqueFd();
    janitor->bury({birth.group, std::move(pidfd), birth.first_id});
  });
  if (!rootless_) birth.first_id = CO_TRY(ids_->take());
  JoinFds joins = CO_TRY(cgroups_->join_fds(birth.group));
  SocketPair sockets = CO_TRY(seqpacket_pair());

  wire::Create create;
  create.first_id = birth.first_id;
  create.into_cgroup = static_cast<bool>(joins.v2);
  create.join_count = static_cast<std::uint32_t>(joins.v1_tasks.size());
  create.cpu_join_last = joins.cpu_is_last;
  create.read_only = spec.root == RootMode::read_only;
  create.loopback = spec.network == Network::loopback;
  create.browser = spec.tier == SyscallTier::browser;
  create.sample_memory = !cgroups_->limits_memory();
  create.memory_bytes = spec.limits.memory_bytes;
  create.disk_bytes = spec.limits.disk_bytes;
  create.inodes = spec.limits.inodes;
  create.pids = spec.limits.pids;
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(sockets.second));
  if (joins.v2) fds.push_back(std::move(joins.v2));
  for (UniqueFd& tasks : joins.v1_tasks) fds.push_back(std::move(tasks));

  birth.channel = std::make_shared<Channel>(asio::make_strand(executor_), std::move(sockets.first));
  std::shared_ptr<Channel::Box> greeting = birth.channel->box_for_unasked();
  // Asked first and limited meanwhile: the zygote works on another core.
  auto limited = std::make_shared<Limited>(Limited{birth.group, {}});
  birth.group.limits.reset();  // Unknown, until it was told that they were written.
  auto limit = limit_later(limited, cgroups_, spec.limits);
  auto launching = zygote->launch(create, std::move(fds), std::move(limit));
  LaunchedProcess process = CO_TRY(co_await std::move(launching));
  birth.host_pid = process.pid;
  birth.pidfd = std::move(process.pidfd);
  birth.spec = std::move(spec);
  birth.group = std::move(limited->group);
  CO_TRY(std::move(limited->result));

  // The sandbox object first: its end must be seen even while it is being greeted.
  auto channel = birth.channel;
  give_back.dismiss();
  auto sandbox = std::make_shared<NativeSandbox>(std::move(birth), burial_by(janitor));
  remember(sandbox);
  auto greeted = greet(sandbox, channel, std::move(greeting));
  wire::Hello hello = CO_TRY(co_await on_strand(channel->executor(), std::move(greeted)));
  sandbox->learn(isolation_of(sandbox->spec(), hello, *cgroups_, rootless_),
                 std::move(hello.step_micros));
  co_return sandbox;
}

asio::awaitable<Result<std::shared_ptr<Sandbox>>> NativeEngine::create_cold(SandboxSpec spec) {
  CO_TRY(check(spec));
  // A zygote that dies while it is asked is our misfortune, not the caller's: another one is.
  for (int tries = 0;; ++tries) {
    auto picking = pick_zygote(spec.environment);
    auto zygote = CO_TRY(co_await on_strand(strand_, std::move(picking)));
    auto launching = launch(zygote, spec);
    auto launched = co_await std::move(launching);
    if (launched || zygote->is_alive() || tries == 3) co_return CO_TRY(std::move(launched));
  }
}

asio::awaitable<Result<std::shared_ptr<Sandbox>>> NativeEngine::create(SandboxSpec spec) {
  if (auto pool = pool_of(spec)) {
    auto taking = pool->take();
    if (auto sandbox = co_await std::move(taking)) {
      std::static_pointer_cast<NativeSandbox>(sandbox)->set_execution_limits(spec.limits);
      co_return sandbox;
    }
    pool->count_cold();
  }
  auto creating = create_cold(std::move(spec));
  co_return co_await std::move(creating);
}

// ---- pools
// ---------------------------------------------------------------------------------------

std::shared_ptr<Pool> NativeEngine::pool_of(const SandboxSpec& spec) const {
  std::lock_guard lock(mutex_);
  if (pools_.empty()) return nullptr;
  auto found = pools_.find(pool_key(spec));
  return found == pools_.end() ? nullptr : found->second;
}

asio::awaitable<Result<void>> NativeEngine::warm(SandboxSpec spec, PoolOptions options) {
  CO_TRY(check(spec));
  if (options.size == 0 || options.refill_at_once == 0)
    co_return fail(Errc::invalid, "a pool needs a size and a refill rate of at least 1");
  auto pool = std::make_shared<Pool>(executor_, spec, options,
                                     [this](SandboxSpec s) { return create_cold(std::move(s)); });
  std::shared_ptr<Pool> previous;
  {
    std::lock_guard lock(mutex_);
    auto& slot = pools_[pool_key(spec)];
    previous = std::exchange(slot, pool);
  }
  if (previous) previous->close();
  auto filling = pool->fill();
  co_return co_await std::move(filling);
}

asio::awaitable<Result<void>> NativeEngine::drain(SandboxSpec spec) {
  std::shared_ptr<Pool> pool;
  {
    std::lock_guard lock(mutex_);
    auto found = pools_.find(pool_key(spec));
    if (found == pools_.end()) co_return fail(Errc::not_found, "there is no such pool");
    pool = std::move(found->second);
    pools_.erase(found);
  }
  pool->close();
  co_return Result<void>();
}

std::vector<PoolState> NativeEngine::pools() const {
  std::lock_guard lock(mutex_);
  std::vector<PoolState> states;
  for (const auto& [key, pool] : pools_) states.push_back(pool->state());
  return states;
}

std::vector<std::shared_ptr<NativeSandbox>> NativeEngine::living() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<NativeSandbox>> sandboxes;
  for (const auto& [id, weak] : living_)
    if (auto sandbox = weak.lock()) sandboxes.push_back(std::move(sandbox));
  return sandboxes;
}

asio::awaitable<Result<void>> NativeEngine::stop() {
  std::map<std::string, std::shared_ptr<Pool>> pools;
  {
    std::lock_guard lock(mutex_);
    pools.swap(pools_);
  }
  for (const auto& [key, pool] : pools) {
    pool->close();
    // What is being made for it refers to this engine: it must be done first.
    auto settling = pool->settle();
    co_await std::move(settling);
  }
  for (const auto& sandbox : living()) sandbox->kill_now();
  Result<void> ended;
  for (const auto& sandbox : living()) {
    auto ending = sandbox->destroy();
    if (auto one = co_await std::move(ending); !one) ended = std::move(one);
  }
  while (janitor_->backlog() > 0) {
    asio::steady_timer pause(executor_, 1ms);
    co_await pause.async_wait(asio::use_awaitable);
  }
  if (janitor_->leaked() > 0)
    co_return fail(Errc::os, std::to_string(janitor_->leaked()) +
                                 " sandbox(es) could not be removed completely");
  co_return ended;
}

}  // namespace asr
