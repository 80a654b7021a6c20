// A sandbox that another server holds, by E2B's protocol, as a Sandbox of ours.
#pragma once

#include "provider/e2b/core.hpp"
#include "provider/e2b/execution.hpp"

namespace asr::e2b {

class RemoteSandbox final : public Sandbox {
 public:
  // What they have in common: whether their server leaves them to the next one.
  struct Home {
    std::string scratch;  // folder for copies of files
    bool leaving = false;
    std::function<void(CorePtr)> remove;  // one that nobody holds any more
  };

  RemoteSandbox(CorePtr core, std::shared_ptr<Home> home, SandboxSpec spec, Isolation isolation,
                std::string label);
  ~RemoteSandbox() override;
  RemoteSandbox(const RemoteSandbox&) = delete;
  RemoteSandbox& operator=(const RemoteSandbox&) = delete;

  const CorePtr& core() const noexcept { return core_; }
  void set_adopted(std::vector<RemoteProcess> processes);
  void set_isolation(Isolation isolation) { isolation_ = std::move(isolation); }

  const SandboxId& id() const noexcept override { return id_; }
  const SandboxSpec& spec() const noexcept override { return spec_; }
  const Isolation& isolation() const noexcept override { return isolation_; }
  SandboxState state() const noexcept override { return core_->state; }
  std::int32_t host_pid() const noexcept override { return 0; }
  const std::vector<std::uint32_t>& step_micros() const noexcept override { return no_steps_; }

  asio::awaitable<Result<std::unique_ptr<Execution>>> start(Command command) override;
  asio::awaitable<Result<RunResult>> run(Command command, std::string input) override;
  asio::awaitable<Result<std::vector<ProcessInfo>>> processes() override;
  asio::awaitable<Result<void>> signal_process(std::int32_t pid, int number) override;
  asio::awaitable<Result<void>> kill_all() override;

  // sandbox_files.cpp and, for bytes, sandbox_transfers.cpp
  asio::awaitable<Result<UniqueFd>> open_read(std::string path, std::string user) override;
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

  bool is_alive() const noexcept override { return core_->state != SandboxState::gone; }
  asio::awaitable<Result<void>> ping() override;
  asio::awaitable<Result<void>> pause() override;
  asio::awaitable<Result<void>> resume() override;
  asio::awaitable<Result<Usage>> usage() override;
  asio::awaitable<Result<std::unique_ptr<EffectsWatch>>> watch_effects(
      std::int32_t process) override;
  asio::awaitable<Result<void>> keep(std::string label) override;
  std::string label() const override { return label_; }
  std::vector<std::unique_ptr<Execution>> adopted_executions() override;
  void on_end(std::function<void()> told) override;
  asio::awaitable<Result<void>> destroy() override;

 private:
  CorePtr core_;
  std::shared_ptr<Home> home_;
  SandboxId id_;
  SandboxSpec spec_;
  Isolation isolation_;
  std::string label_;
  std::vector<RemoteProcess> adopted_;
  std::vector<std::uint32_t> no_steps_;
};

// Ends it at the provider's; one that is not there has ended.
asio::awaitable<Result<void>> destroy_remote(CorePtr core);
// Resumes one that is paused, and renews its lease: says how long it may live without us.
asio::awaitable<Result<void>> connect_remote(CorePtr core, std::chrono::seconds lease);

}  // namespace asr::e2b
