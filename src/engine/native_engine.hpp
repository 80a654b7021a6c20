// The engine behind engine.hpp: environments with their zygotes, pools, and every sandbox that
// lives.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "engine/cgroups.hpp"
#include "engine/engine.hpp"
#include "engine/full_network.hpp"
#include "engine/id_ranges.hpp"
#include "engine/instance.hpp"
#include "engine/janitor.hpp"
#include "engine/native_sandbox.hpp"
#include "engine/pool.hpp"
#include "engine/storage.hpp"
#include "engine/succession.hpp"
#include "engine/zygote_process.hpp"
#include "wire/guest_messages.hpp"
#include "wire/zygote_messages.hpp"

namespace asr {

class NativeEngine final : public Engine {
 public:
  NativeEngine(asio::any_io_executor executor, EngineOptions options, Instance instance,
               RecoveryReport recovery, UniqueFd image, std::shared_ptr<Cgroups> cgroups);
  ~NativeEngine() override;

  Result<void> prepare();
  // Goes on where the last engine of this name was.
  Result<void> take_over(Succession succession);
  void open_network();

  asio::awaitable<Result<std::shared_ptr<Sandbox>>> create(SandboxSpec spec) override;
  asio::awaitable<Result<std::shared_ptr<Sandbox>>> create_cold(SandboxSpec spec) override;
  asio::awaitable<Result<void>> warm(SandboxSpec spec, PoolOptions options) override;
  asio::awaitable<Result<void>> drain(SandboxSpec spec) override;
  std::vector<PoolState> pools() const override;
  asio::awaitable<Result<void>> make_volume(std::string source, VolumeOptions options) override;
  asio::awaitable<Result<void>> remove_storage(std::string path) override;
  bool can_keep() const noexcept override { return keeper_ != nullptr; }
  std::vector<std::shared_ptr<Sandbox>> adopted() override;
  const RecoveryReport& recovery() const noexcept override { return recovery_; }
  const std::filesystem::path& instance_dir() const noexcept override { return instance_.dir(); }
  asio::awaitable<Result<void>> stop() override;
  asio::awaitable<Result<void>> leave() override;

 private:
  // The zygotes of one environment. Started by the first who needs them; others wait for that.
  struct Home {
    explicit Home(const asio::any_io_executor& strand) : changed(strand) {}
    std::vector<wire::Layer> layers;
    std::vector<std::shared_ptr<ZygoteProcess>> zygotes;
    std::size_t next = 0;
    bool starting = false;
    asio::steady_timer changed;
  };
  // On strand_.
  asio::awaitable<Result<std::shared_ptr<ZygoteProcess>>> pick_zygote(Environment environment);
  asio::awaitable<Result<void>> start_zygotes(std::shared_ptr<Home> home, Environment environment);
  asio::awaitable<Result<std::vector<wire::Layer>>> layers_of(Environment environment);
  asio::awaitable<Result<std::vector<wire::Layer>>> tarball_layers(Environment environment);

  asio::awaitable<Result<std::shared_ptr<ZygoteProcess>>> start_zygote(
      std::vector<wire::Layer> layers, bool import);
  asio::awaitable<Result<std::shared_ptr<NativeSandbox>>> launch(
      std::shared_ptr<ZygoteProcess> zygote, SandboxSpec spec);
  asio::awaitable<Result<StorageMounts>> mount_storage(SandboxSpec spec);
  std::shared_ptr<NativeSandbox> bring_to_life(Birth birth);
  Result<void> adopt(Legacy legacy);
  void give_up(const std::string& name, const std::string& why);
  asio::awaitable<void> close_pools();
  asio::awaitable<Result<void>> end_all(std::vector<std::shared_ptr<NativeSandbox>> sandboxes);
  std::shared_ptr<Pool> pool_of(const SandboxSpec& spec) const;
  std::vector<std::shared_ptr<NativeSandbox>> living() const;
  void log(std::string_view line) const;

  asio::any_io_executor executor_;
  asio::any_io_executor strand_;
  EngineOptions options_;
  bool rootless_;
  Instance instance_;
  RecoveryReport recovery_;
  UniqueFd image_;
  std::shared_ptr<Cgroups> cgroups_;
  std::shared_ptr<IdRanges> ids_;
  std::shared_ptr<Storage> storage_;
  std::shared_ptr<FullNetwork> network_;
  std::shared_ptr<KeeperLink> keeper_;  // only with a fixed name
  std::uint32_t epoch_ = 0;
  bool owns_remains_ = false;  // Nobody else is, or will be, this instance.
  std::string fence_;
  wire::Gate strict_gate_;
  wire::Gate browser_gate_;
  std::uint64_t gate_secret_ = 0;
  int landlock_abi_ = 0;
  bool piped_cores_ = false;

  std::map<Environment, std::shared_ptr<Home>> homes_;  // on strand_
  std::atomic<bool> ending_ = false;
  mutable std::mutex mutex_;  // for the four below
  std::map<std::string, std::shared_ptr<Pool>> pools_;
  std::map<SandboxId, std::weak_ptr<NativeSandbox>> living_;
  std::vector<std::shared_ptr<NativeSandbox>> adopted_;  // and not handed over yet
  std::size_t forget_at_ = 64;  // so many in living_, of which some may be gone
  std::shared_ptr<Janitor> janitor_;
};

}  // namespace asr
