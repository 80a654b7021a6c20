// A sandbox made by this machine's own kernel.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "engine/cgroups.hpp"
#include "engine/channel.hpp"
#include "engine/egress_queue.hpp"
#include "engine/guest_answers.hpp"
#include "engine/id_ranges.hpp"
#include "engine/keeper_link.hpp"
#include "engine/label.hpp"
#include "engine/memory_peaks.hpp"
#include "engine/on_strand.hpp"
#include "engine/paused_time.hpp"
#include "engine/records.hpp"
#include "engine/sandbox.hpp"
#include "engine/storage_lease.hpp"

namespace asr {

// What a sandbox is born with.
struct Birth {
  SandboxId id;
  SandboxSpec spec;
  Isolation isolation;
  std::int32_t host_pid = -1;
  UniqueFd pidfd;
  std::shared_ptr<Channel> channel;
  std::shared_ptr<Cgroups> cgroups;
  Group group;
  std::uint32_t first_id = 0;  // 0: no uid range of its own.
  std::vector<std::uint32_t> step_micros;
  std::shared_ptr<KeeperLink> keeper;  // Only in an engine with a fixed name.
  std::shared_ptr<IdRanges> ids;
  std::shared_ptr<StorageLease> storage;  // Absent where nothing of the host's disk is used.
};

// What must still be cleaned once a sandbox has ended.
struct Remains {
  Group group;
  UniqueFd pidfd;
  std::uint32_t first_id = 0;
  std::shared_ptr<StorageLease> storage;
  Network network = Network::none;
};

class NativeExecution;

class NativeSandbox final : public Sandbox, public std::enable_shared_from_this<NativeSandbox> {
 public:
  NativeSandbox(Birth birth, std::function<void(Remains)> bury);
  ~NativeSandbox() override;

  // Watches for its end. Once, after construction.
  void begin();
  // What the guest's greeting told; before anybody else knows this sandbox.
  void learn(Isolation isolation, std::vector<std::uint32_t> step_micros);
  // Those that hold for programs, not for the sandbox: a pool serves whoever asks for other ones.
  void set_execution_limits(const Limits& limits);
  // From any thread, without waiting for anything.
  void kill_now() noexcept;
  const Group& group() const noexcept { return birth_.group; }

  // ---- for those that outlive the daemon (kept_sandbox.cpp)

  struct KeptExecution {
    ExecutionRecord record;
    std::vector<UniqueFd> fds;
  };
  // Goes on where the record says an earlier daemon was. Instead of begin(), after construction.
  void resume_life(const SandboxRecord& record, std::vector<KeptExecution> executions);
  bool is_kept() const noexcept { return kept_; }
  void give_again();  // To a new keeper.
  // Lets it live without us.
  asio::awaitable<void> leave();

  const SandboxId& id() const noexcept override { return birth_.id; }
  const SandboxSpec& spec() const noexcept override { return birth_.spec; }
  const Isolation& isolation() const noexcept override { return birth_.isolation; }
  SandboxState state() const noexcept override { return state_.load(); }
  std::int32_t host_pid() const noexcept override { return birth_.host_pid; }
  const std::vector<std::uint32_t>& step_micros() const noexcept override {
    return birth_.step_micros;
  }

  asio::awaitable<Result<std::unique_ptr<Execution>>> start(Command command) override;
  asio::awaitable<Result<RunResult>> run(Command command, std::string input) override;
  asio::awaitable<Result<std::vector<ProcessInfo>>> processes() override;
  asio::awaitable<Result<void>> signal_process(std::int32_t pid, int number) override;
  asio::awaitable<Result<void>> kill_all() override;

  asio::awaitable<Result<UniqueFd>> open_read(std::string path, std::string user) override;
  asio::awaitable<Result<std::unique_ptr<FileWrite>>> open_write_with(
      std::string path, WriteMode mode, std::uint32_t permissions, std::string user,
      FileAttributes attributes) override;
  asio::awaitable<Result<std::unique_ptr<FileWrite>>> open_write(std::string path, WriteMode mode,
                                                                 std::uint32_t permissions,
                                                                 std::string user) override;
  asio::awaitable<Result<std::string>> read_file(std::string path, std::uint64_t most) override;
  asio::awaitable<Result<void>> write_file(std::string path, std::string data,
                                           std::uint32_t permissions, std::string user) override;
  asio::awaitable<Result<FileInfo>> stat(std::string path, std::string user) override;
  asio::awaitable<Result<DirectoryPage>> list(std::string path, std::uint64_t cursor,
                                              std::uint32_t most, std::string user) override;
  asio::awaitable<Result<void>> make_directory(std::string path, std::uint32_t mode,
                                               std::string user) override;
  asio::awaitable<Result<void>> move(std::string from, std::string to, std::string user) override;
  asio::awaitable<Result<void>> copy(std::string from, std::string to, std::string user) override;
  asio::awaitable<Result<void>> remove(std::string path, std::string user) override;
  asio::awaitable<Result<void>> change_mode(std::string path, std::uint32_t mode,
                                            std::string user) override;
  asio::awaitable<Result<void>> change_owner(std::string path, std::string owner,
                                             std::string user) override;
  asio::awaitable<Result<void>> symlink(std::string target, std::string path,
                                        std::string user) override;
  asio::awaitable<Result<std::unique_ptr<Watch>>> watch(std::string path,
                                                        std::string user) override;
  asio::awaitable<Result<UniqueFd>> archive_out(std::string path, std::string user) override;
  asio::awaitable<Result<ArchiveReport>> archive_in(std::string path, UniqueFd tar,
                                                    std::string user) override;
  asio::awaitable<Result<Changes>> changes() override;
  asio::awaitable<Result<UniqueFd>> open_before(std::string path) override;
  asio::awaitable<Result<UniqueFd>> save_files(std::vector<std::string> only) override;
  asio::awaitable<Result<ArchiveReport>> restore_files(UniqueFd tar) override;
  asio::awaitable<Result<UniqueFd>> connect(std::uint16_t port) override;

  asio::awaitable<Result<UniqueFd>> accept_egress() override;
  bool is_alive() const noexcept override;
  asio::awaitable<Result<void>> ping() override;
  asio::awaitable<Result<void>> pause() override;
  asio::awaitable<Result<void>> resume() override;
  asio::awaitable<Result<Usage>> usage() override;
  asio::awaitable<Result<std::unique_ptr<EffectsWatch>>> watch_effects(
      std::int32_t process) override;
  void on_end(std::function<void()> told) override;
  asio::awaitable<Result<void>> destroy() override;

  asio::awaitable<Result<void>> keep(std::string label) override;
  std::string label() const override { return label_.get(); }
  std::vector<std::unique_ptr<Execution>> adopted_executions() override;

 private:
  const asio::any_io_executor& strand() const noexcept { return birth_.channel->executor(); }
  Result<void> check_ready() const;
  asio::awaitable<Result<void>> await_end(UniqueFd pidfd);
  asio::awaitable<Result<void>> skip_paused_time();
  void bury_once();
  struct ExecutionContext execution_context();
  Result<Keepsake> keepsake() const;
  asio::awaitable<Result<void>> keep_on_strand(std::string label);
  asio::awaitable<void> leave_on_strand();
  void save_soon();
  void drop_adopted();
  std::shared_ptr<StorageLease> storage() const;
  static asio::awaitable<void> take_stock(std::shared_ptr<Channel> channel,
                                          std::vector<std::weak_ptr<NativeExecution>> executions);

  // On the strand, with the sandbox ready to answer.
  template <class Message>
  asio::awaitable<Result<Letter>> request(
      Message message, std::vector<UniqueFd> fds = {},
      std::chrono::milliseconds within = std::chrono::minutes(30));
  template <class Message>
  asio::awaitable<Result<void>> request_done(
      Message message, std::chrono::milliseconds within = std::chrono::minutes(30));
  Birth birth_;
  mutable std::mutex storage_mutex_;  // for birth_.storage, which goes when the sandbox is buried
  std::function<void(Remains)> bury_;
  std::atomic<SandboxState> state_{SandboxState::ready};
  std::atomic<bool> buried_{false};
  std::shared_ptr<MemoryPeaks> peaks_;
  PausedTime paused_time_;
  std::function<void()> told_of_end_;    // on the strand
  std::shared_ptr<EgressQueue> egress_;  // Only with Network::proxied.

  Label label_;
  std::atomic<bool> kept_{false};
  std::atomic<bool> left_{false};
  std::vector<std::weak_ptr<NativeExecution>> kept_executions_;  // on the strand
  std::mutex adopted_mutex_;
  std::vector<std::shared_ptr<NativeExecution>> adopted_;
};

template <class Message>
asio::awaitable<Result<Letter>> NativeSandbox::request(Message message, std::vector<UniqueFd> fds,
                                                       std::chrono::milliseconds within) {
  CO_TRY(check_ready());
  auto self = shared_from_this();
  auto asking = ask(birth_.channel, std::move(message), std::move(fds), within);
  co_return co_await on_strand(strand(), std::move(asking));
}

template <class Message>
asio::awaitable<Result<void>> NativeSandbox::request_done(Message message,
                                                          std::chrono::milliseconds within) {
  auto asking = request(std::move(message), {}, within);
  Letter answer = CO_TRY(co_await std::move(asking));
  if (!answer.as<wire::Done>()) co_return fail(failure_in(answer));
  co_return Result<void>();
}

}  // namespace asr
