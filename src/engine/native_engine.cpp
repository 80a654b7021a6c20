#include "engine/native_engine.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/strand.hpp>
#include <cstring>
#include <thread>

#include "engine/filter.hpp"
#include "engine/on_strand.hpp"
#include "os/file.hpp"
#include "os/landlock.hpp"

namespace asr {

using namespace std::chrono_literals;
namespace {

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

std::function<void(Remains)> burial_by(std::shared_ptr<Janitor> janitor) {
  return [janitor = std::move(janitor)](Remains remains) { janitor->bury(std::move(remains)); };
}

std::string bytes_of(const FilterProgram& program) {
  std::string bytes(program.size() * sizeof(sock_filter), '\0');
  std::memcpy(bytes.data(), program.data(), bytes.size());
  return bytes;
}

Result<wire::Gate> gate_for(SyscallTier tier, std::uint64_t secret) {
  wire::Gate gate;
  gate.telling = bytes_of(TRY(compile_gate(tier, secret, Refusals::told)));
  gate.quiet = bytes_of(TRY(compile_gate(tier, secret, Refusals::quiet)));
  return gate;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::start(asio::any_io_executor executor,
                                              EngineOptions options) {
  if (options.runtime_dir.empty()) options.runtime_dir = default_runtime_dir();
  if (options.cache_dir.empty()) options.cache_dir = default_cache_dir();
  if (options.full_network) TRY(check(*options.full_network));
  RecoveryReport recovery = recover(options.runtime_dir, options.cache_dir);
  bool named = options.instance.has_value();
  Succession succession = named
                              ? TRY(succeed(options, recovery))
                              : Succession{TRY(Instance::open(options.runtime_dir)), {}, 0, {}, {}};
  UniqueFd image = TRY(zygote_image());
  auto cgroups = options.cgroups == EngineOptions::Cgroups::off
                     ? Cgroups::none()
                     : Cgroups::open(succession.instance.id(), totals_for(options));
  auto engine = std::make_unique<NativeEngine>(std::move(executor), std::move(options),
                                               std::move(succession.instance), std::move(recovery),
                                               std::move(image), std::move(cgroups));
  TRY(engine->prepare());
  if (named) TRY(engine->take_over(std::move(succession)));
  engine->open_network();
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
      storage_(std::make_shared<Storage>(executor_, options_.storage_dir)),
      network_(std::make_shared<FullNetwork>(instance_.id(), instance_.dir())),
      janitor_(std::make_shared<Janitor>(cgroups_, ids_, network_)) {
  if (options_.zygotes == 0)
    options_.zygotes = std::clamp(std::thread::hardware_concurrency(), 1U, 4U);
}

NativeEngine::~NativeEngine() {
  for (const auto& [key, pool] : pools_) pool->close();
  if (keeper_) keeper_->end_now();  // Before it could save what is killed here for a next engine.
  for (const auto& sandbox : living()) sandbox->kill_now();
  pools_.clear();
  homes_.clear();
  adopted_.clear();
  // Sandboxes that others still hold bury themselves later; their groups are empty of processes by
  // then.
  for (const auto& sandbox : living())
    janitor_->bury({sandbox->group(), UniqueFd(), 0, nullptr, Network::none});
  janitor_->finish();
  if (owns_remains_) network_->close();
  cgroups_->close();
}

Result<void> NativeEngine::prepare() {
  ::signal(
      SIGPIPE,
      SIG_IGN);  // Or a program that closes its stdin would end us; pipes know no MSG_NOSIGNAL.
  if (::getrandom(&gate_secret_, sizeof gate_secret_, 0) != sizeof gate_secret_)
    return fail_errno("getrandom");
  fence_ = bytes_of(TRY(compile_fence()));
  strict_gate_ = TRY(gate_for(SyscallTier::strict, gate_secret_));
  browser_gate_ = TRY(gate_for(SyscallTier::browser, gate_secret_));
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

void NativeEngine::open_network() {
  owns_remains_ = true;
  if (!options_.full_network) return;
  network_->open(*options_.full_network);
  if (auto ready = network_->check(); !ready)
    log("no sandbox can have a network: " + ready.error().what + "; " + ready.error().hint);
}

std::shared_ptr<NativeSandbox> NativeEngine::bring_to_life(Birth birth) {
  birth.keeper = keeper_;
  birth.ids = ids_;
  auto sandbox = std::make_shared<NativeSandbox>(std::move(birth), burial_by(janitor_));
  std::lock_guard lock(mutex_);
  // Not at each birth: looking at all of them costs the more the more there are.
  if (living_.size() >= forget_at_) {
    std::erase_if(living_, [](const auto& entry) { return entry.second.expired(); });
    forget_at_ = std::max<std::size_t>(64, 2 * living_.size());
  }
  living_.emplace(sandbox->id(), sandbox);
  return sandbox;
}

void NativeEngine::log(std::string_view line) const {
  if (options_.log) options_.log(line);
}

asio::awaitable<Result<std::shared_ptr<Sandbox>>> NativeEngine::create_cold(SandboxSpec spec) {
  CO_TRY(check(spec));
  auto over = [] { return fail(Errc::gone, "the engine is being stopped"); };
  if (ending_) co_return over();
  // A zygote that dies while it is asked is our misfortune, not the caller's: another one is.
  for (int tries = 0;; ++tries) {
    auto picking = pick_zygote(spec.environment);
    auto zygote = CO_TRY(co_await on_strand(strand_, std::move(picking)));
    auto launching = launch(zygote, spec);
    auto launched = co_await std::move(launching);
    if (launched && ending_) co_return over();  // It ends with its object.
    if (launched || zygote->is_alive() || tries == 3) co_return CO_TRY(std::move(launched));
  }
}

asio::awaitable<Result<std::shared_ptr<Sandbox>>> NativeEngine::create(SandboxSpec spec) {
  if (!can_be_pooled(spec)) {
    auto creating = create_cold(std::move(spec));
    co_return co_await std::move(creating);
  }
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

asio::awaitable<Result<void>> NativeEngine::make_volume(std::string source, VolumeOptions options) {
  return storage_->make_volume(std::move(source), options);
}

asio::awaitable<Result<void>> NativeEngine::remove_storage(std::string path) {
  return storage_->remove(std::move(path));
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
  if (!can_be_pooled(spec))
    co_return fail(Errc::invalid, "a sandbox with a disk or a volume cannot be made in advance");
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

// ---- the end
// -------------------------------------------------------------------------------------

// From now on nothing new is made.
asio::awaitable<void> NativeEngine::close_pools() {
  ending_ = true;
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
}

asio::awaitable<Result<void>> NativeEngine::end_all(
    std::vector<std::shared_ptr<NativeSandbox>> sandboxes) {
  for (const auto& sandbox : sandboxes) sandbox->kill_now();
  Result<void> ended;
  for (const auto& sandbox : sandboxes) {
    auto ending = sandbox->destroy();
    if (auto one = co_await std::move(ending); !one) ended = std::move(one);
  }
  while (janitor_->backlog() > 0 || storage_->releasing() > 0) {
    asio::steady_timer pause(executor_, 1ms);
    co_await pause.async_wait(asio::use_awaitable);
  }
  if (janitor_->leaked() > 0)
    co_return fail(Errc::os, std::to_string(janitor_->leaked()) +
                                 " sandbox(es) could not be removed completely");
  co_return ended;
}

asio::awaitable<Result<void>> NativeEngine::stop() {
  auto closing = close_pools();
  co_await std::move(closing);
  auto ending = end_all(living());
  auto ended = co_await std::move(ending);
  (void)adopted();  // Those nobody asked for.
  if (keeper_) {
    auto quitting = keeper_->quit();
    co_await std::move(quitting);
  }
  co_return ended;
}

}  // namespace asr
