// The part of the engine that makes sandboxes: environments, their zygotes, and one launch.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/strand.hpp>
#include <map>

#include "base/scope_exit.hpp"
#include "engine/environment.hpp"
#include "engine/guest_answers.hpp"
#include "engine/isolation_report.hpp"
#include "engine/native_engine.hpp"
#include "engine/on_strand.hpp"
#include "launch/plan.hpp"
#include "os/file.hpp"

namespace asr {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr auto kHelloWithin = 30s;
// More ended sandboxes than this wait to be cleaned: new ones wait for the janitor.
constexpr std::size_t kMostBacklog = 512;

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

}  // namespace

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
  configure.fence = fence_;
  configure.strict_gate = strict_gate_;
  configure.browser_gate = browser_gate_;
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
    std::string workspace = environment.workspace;
    auto finding = layers_of(std::move(environment));
    auto layers = CO_TRY(co_await std::move(finding));
    if (!workspace.empty())
      layers.push_back(CO_TRY(workspace_layer(workspace, rootless_ ? Ids::own : Ids::mapped)));
    home->layers = std::move(layers);
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

asio::awaitable<Result<StorageMounts>> NativeEngine::mount_storage(SandboxSpec spec) {
  if (can_be_pooled(spec)) co_return StorageMounts{};
  if (rootless_)
    co_return fail(Errc::unsupported, "disks and volumes need root: an ordinary user cannot mount",
                   "run agent-sandbox as root");
  auto mounting = storage_->mount(std::move(spec));
  co_return co_await std::move(mounting);
}

namespace {

// The largest file a program may make: what it lies on has its own limit, or none. A file of
// memory, such as the one an interpreter is saved to, lies on nothing.
std::uint64_t file_limit(const SandboxSpec& spec, const StorageMounts& mounts) {
  std::uint64_t most = std::max(spec.limits.disk_bytes, spec.limits.memory_bytes);
  for (const StorageMounts::Mount& volume : mounts.volumes) {
    if (volume.bytes == 0) return 0;
    most = std::max(most, volume.bytes);
  }
  return most;
}

VolumeSizes sizes_of(const SandboxSpec& spec, const StorageMounts& mounts) {
  for (std::size_t i = 0; i < mounts.volumes.size(); ++i)
    if (mounts.volumes[i].bytes == 0 && !spec.volumes[i].read_only) return VolumeSizes::unlimited;
  return VolumeSizes::limited;
}

// Adds the mounts to what the zygote gets, folders before what lies in them.
void add_storage(const SandboxSpec& spec, StorageMounts& mounts, wire::Create& create,
                 std::vector<UniqueFd>& fds) {
  create.disk = static_cast<bool>(mounts.disk);
  if (mounts.disk) fds.push_back(std::move(mounts.disk));
  std::map<std::string, std::size_t> in_order;
  for (std::size_t i = 0; i < mounts.volumes.size(); ++i) in_order[spec.volumes[i].target] = i;
  for (const auto& [target, i] : in_order) {
    create.volumes.push_back({target, spec.volumes[i].read_only, mounts.volumes[i].shifted});
    fds.push_back(std::move(mounts.volumes[i].fd));
  }
}

}  // namespace

asio::awaitable<Result<std::shared_ptr<NativeSandbox>>> NativeEngine::launch(
    std::shared_ptr<ZygoteProcess> zygote, SandboxSpec spec) {
  while (janitor_->backlog() > kMostBacklog) {
    asio::steady_timer pause(executor_, 1ms);
    co_await pause.async_wait(asio::use_awaitable);
  }
  Network network = spec.network;
  if (network == Network::full) CO_TRY(network_->check());
  auto mounting = mount_storage(spec);
  StorageMounts mounts = CO_TRY(co_await std::move(mounting));
  Birth birth;
  birth.id = SandboxId(random_name(26));
  birth.storage = mounts.lease;
  birth.cgroups = cgroups_;
  mounts.lease.reset();
  birth.group = CO_TRY(cgroups_->take());
  auto janitor = janitor_;
  // Until the sandbox is made: whatever fails, its groups and ids go back.
  ScopeExit give_back([&] {
    UniqueFd pidfd =
        birth.pidfd ? UniqueFd(::fcntl(birth.pidfd.get(), F_DUPFD_CLOEXEC, 3)) : UniqueFd();
    if (birth.storage) birth.storage->end();
    janitor->bury(
        {birth.group, std::move(pidfd), birth.first_id, std::move(birth.storage), network});
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
  create.loopback = spec.network != Network::none;
  if (spec.network == Network::proxied) create.proxy_port = spec.proxy_port;
  if (spec.network == Network::full) create.resolv_conf = network_->resolv_conf();
  create.browser = spec.tier == SyscallTier::browser;
  create.sample_memory = !cgroups_->limits_memory();
  create.memory_bytes = spec.limits.memory_bytes;
  // With a disk only /tmp and /dev/shm lie in memory.
  create.scratch_bytes = std::min(spec.limits.disk_bytes, spec.limits.memory_bytes / 2);
  create.file_bytes = file_limit(spec, mounts);
  create.inodes = spec.limits.inodes;
  create.pids = spec.limits.pids;
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(sockets.second));
  if (joins.v2) fds.push_back(std::move(joins.v2));
  for (UniqueFd& tasks : joins.v1_tasks) fds.push_back(std::move(tasks));
  VolumeSizes sizes = sizes_of(spec, mounts);
  add_storage(spec, mounts, create, fds);

  birth.channel =
      std::make_shared<Channel>(asio::make_strand(executor_), std::move(sockets.first), epoch_);
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
  if (network == Network::full) {
    // While the child builds its file system. No program runs before this function has returned.
    UniqueFd copy(::fcntl(birth.pidfd.get(), F_DUPFD_CLOEXEC, 3));
    auto attaching = network_->attach(std::move(copy), birth.first_id);
    CO_TRY(co_await std::move(attaching));
  }

  // The sandbox object first: its end must be seen even while it is being greeted.
  auto channel = birth.channel;
  give_back.dismiss();
  auto sandbox = bring_to_life(std::move(birth));
  auto greeted = greet(sandbox, channel, std::move(greeting));
  wire::Hello hello = CO_TRY(co_await on_strand(channel->executor(), std::move(greeted)));
  Isolation isolation = isolation_of(sandbox->spec(), hello, *cgroups_, rootless_, sizes);
  if (network == Network::full)
    for (IsolationFact& fact : network_->facts()) isolation.facts.push_back(std::move(fact));
  sandbox->learn(std::move(isolation), std::move(hello.step_micros));
  co_return sandbox;
}

}  // namespace asr
