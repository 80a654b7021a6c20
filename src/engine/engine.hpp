// Native sandboxes on this machine: makes them, keeps some warm, and leaves nothing behind.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/sandbox.hpp"
#include "policy/spec.hpp"

namespace asr {

// What an earlier instance left behind and this start removed.
struct RecoveryReport {
  std::uint32_t instances = 0;        // dead ones found
  std::uint32_t sandboxes = 0;        // of theirs that were still there, alive or as cgroups
  std::uint32_t processes = 0;        // killed
  std::vector<std::string> problems;  // what could not be removed, and why

  // What this instance's last life had kept.
  struct KeptSandbox {
    std::string id;
    std::string label;
    std::string why;  // it is lost
  };
  std::vector<KeptSandbox> adopted;  // living; see Engine::adopted()
  std::vector<KeptSandbox> lost;     // ended meanwhile, or not to be taken up; cleaned
};

// For sandboxes with Network::full. Needs root, and a machine that forwards packets: the engine
// never changes that by itself.
struct FullNetworkOptions {
  // Where their addresses come from, of which the host takes the first. Private, and nobody else's.
  std::string range = "10.233.0.0/16";
  // Networks that may be reached although they are not public: "10.1.2.0/24".
  std::vector<std::string> allow;
  // Name servers. Absent: those in the host's /etc/resolv.conf that are not on loopback.
  std::optional<std::vector<std::string>> resolvers;
  std::uint32_t connections = 4096;  // of one sandbox at a time; the machine's table is finite
};

struct EngineOptions {
  // Runtime state: a folder per instance below it. Empty: /run/agent-sandbox for root,
  // $XDG_RUNTIME_DIR/agent-sandbox or ~/.cache/agent-sandbox/run for others.
  std::filesystem::path runtime_dir;
  // Unpacked environments. Empty: /var/cache/agent-sandbox or ~/.cache/agent-sandbox.
  std::filesystem::path cache_dir;
  // A fixed name makes this engine the next life of the last one that had it: what that one kept
  // is adopted. Lowercase letters, digits and _, at most 32. Without one the engine is a new
  // instance, nothing can be kept, and all of it ends with the process.
  std::optional<std::string> instance;
  // How long kept sandboxes wait for the next life of their engine before they end.
  std::chrono::seconds keep_for{600};
  unsigned zygotes = 0;  // 0: one per core, at most 4
  enum class Cgroups { automatic, off } cgroups = Cgroups::automatic;
  // Disks and volumes, below a folder of the engine's own. Empty: there are none.
  std::filesystem::path storage_dir;
  // Absent: no sandbox may have a network.
  std::optional<FullNetworkOptions> full_network;
  // Of all sandboxes of this instance together; 0: most of the machine.
  std::uint64_t total_memory_bytes = 0;
  std::uint32_t total_pids = 0;
  std::function<void(std::string_view)> log;  // One line per thing worth telling; may be empty.
};

struct PoolOptions {
  std::uint32_t size = 8;
  std::uint32_t refill_at_once = 2;  // sandboxes being made at the same time
  // Done to each before it may be handed out; may be empty.
  std::function<asio::awaitable<void>(std::shared_ptr<Sandbox>)> prepare = nullptr;
};

// A volume with a size is a file system of its own, and the size holds. One without is a folder.
struct VolumeOptions {
  std::uint64_t bytes = 0;  // 0: a folder, without a limit
  std::uint64_t inodes = 65536;
};

struct PoolState {
  std::string key;
  std::uint32_t ready = 0;
  std::uint32_t wanted = 0;
  std::uint64_t served_warm = 0;
  std::uint64_t served_cold = 0;
};

class Engine {
 public:
  // Starts the zygotes: call it before the process has a second thread.
  static Result<std::unique_ptr<Engine>> start(boost::asio::any_io_executor executor,
                                               EngineOptions options = {});
  virtual ~Engine() = default;  // Kills what still lives.

  // From the pool of the same spec if there is one ready, new otherwise.
  virtual asio::awaitable<Result<std::shared_ptr<Sandbox>>> create(SandboxSpec spec) = 0;
  virtual asio::awaitable<Result<std::shared_ptr<Sandbox>>> create_cold(SandboxSpec spec) = 0;

  virtual asio::awaitable<Result<void>> warm(SandboxSpec spec,
                                             PoolOptions options) = 0;  // fills it
  virtual asio::awaitable<Result<void>> drain(SandboxSpec spec) = 0;
  virtual std::vector<PoolState> pools() const = 0;

  // A volume for SandboxSpec::volumes; conflict if there is something of that name.
  virtual asio::awaitable<Result<void>> make_volume(std::string source, VolumeOptions options) = 0;
  // A volume or a disk, with all that is in it; conflict while somebody uses it.
  virtual asio::awaitable<Result<void>> remove_storage(std::string path) = 0;

  // Whether Sandbox::keep() works: the engine has a fixed name.
  virtual bool can_keep() const noexcept = 0;
  // Sandboxes of this instance's last life; handed over, so that a second call has none and what
  // the caller drops is destroyed.
  virtual std::vector<std::shared_ptr<Sandbox>> adopted() = 0;

  virtual const RecoveryReport& recovery() const noexcept = 0;
  virtual const std::filesystem::path& instance_dir() const noexcept = 0;

  // Ends every sandbox and waits until nothing of this instance is left. What is asked for from
  // then on answers Errc::gone.
  virtual asio::awaitable<Result<void>> stop() = 0;

  // Ends what is not kept and lets go of what is, for the next engine of this name: a restart
  // without a loss. Objects of sandboxes and programs answer Errc::gone from then on.
  virtual asio::awaitable<Result<void>> leave() = 0;
};

}  // namespace asr
