// One live sandbox, as the daemon sees it. Every call is a message to its guest, or a word to its
// cgroup.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/id.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "engine/changes.hpp"
#include "engine/command.hpp"
#include "engine/effects.hpp"
#include "engine/files.hpp"
#include "engine/usage.hpp"
#include "policy/isolation.hpp"
#include "policy/spec.hpp"

namespace asr {

namespace asio = boost::asio;

// A chunk of output, in the order it was read. Before a reply comes what the program wrote to its
// other streams until then.
struct OutputChunk {
  enum class Stream { out, err, reply };
  Stream stream;
  std::string data;
};

// A running program. Dropping it does not end the program: it becomes a background process, and is
// kept no longer.
class Execution {
 public:
  virtual ~Execution() = default;
  virtual std::int32_t pid() const noexcept = 0;  // as seen inside

  // The next output, or nothing when the program has ended and all it wrote was read.
  // Not calling it is back-pressure: the program blocks once its pipe is full.
  virtual asio::awaitable<Result<std::optional<OutputChunk>>> read() = 0;
  virtual asio::awaitable<Result<void>> write_stdin(std::string data) = 0;
  // To a program whose stdin goes both ways, which waits for it and nothing else. It is the
  // program's from then on, with all that can be done with it.
  virtual asio::awaitable<Result<void>> send_descriptor(UniqueFd descriptor) = 0;
  virtual asio::awaitable<Result<void>> close_stdin() = 0;
  // Nobody will read this stream any more. The program learns it as it would from any pipe: by
  // SIGPIPE or a failed write. A terminal hangs up.
  virtual asio::awaitable<Result<void>> close_output(OutputChunk::Stream stream) = 0;
  virtual asio::awaitable<Result<void>> signal(int number) = 0;  // to it and its descendants
  virtual asio::awaitable<Result<void>> resize(TerminalSize size) = 0;
  virtual asio::awaitable<Result<ExitStatus>> wait() = 0;

  // In a sandbox that is kept: from now on the program's output, input and end wait for the next
  // engine if this one dies; Sandbox::adopted_executions() gives it back with this label. Output is
  // read from the program only when it is asked for, so that none lies in memory that may be lost.
  // Without this a program goes on, too, but whoever writes to a pipe without a reader is ended.
  virtual asio::awaitable<Result<void>> keep(std::string label) = 0;
  virtual std::string label() const = 0;
};

// Reports changes below a directory until it is dropped.
class Watch {
 public:
  virtual ~Watch() = default;
  virtual asio::awaitable<Result<std::vector<WatchEvent>>> next() = 0;
  // Ends it: whoever waits in next() gets an error.
  virtual void close() = 0;
};

// A file that is being written. Not through a descriptor of the file itself: whoever writes to a
// file system in memory pays for it, and that has to be the sandbox.
class FileWrite {
 public:
  virtual ~FileWrite() = default;  // What has come is written.
  // Where to write to; it does not block. Whoever takes it must close it before finish().
  virtual UniqueFd take_pipe() = 0;
  // When all is written and the file is closed.
  virtual asio::awaitable<Result<void>> finish() = 0;
};

// Measures what happens in a sandbox until it is asked.
class EffectsWatch {
 public:
  virtual ~EffectsWatch() = default;
  virtual asio::awaitable<Result<Effects>> finish() = 0;
};

enum class SandboxState { ready, paused, gone };

class Sandbox {
 public:
  virtual ~Sandbox() = default;  // Destroys it if destroy() was not called.

  virtual const SandboxId& id() const noexcept = 0;
  virtual const SandboxSpec& spec() const noexcept = 0;
  virtual const Isolation& isolation() const noexcept = 0;
  virtual SandboxState state() const noexcept = 0;
  virtual std::int32_t host_pid() const noexcept = 0;  // of its pid 1
  // How long each step of its launch took, in the order of LaunchStep.
  virtual const std::vector<std::uint32_t>& step_micros() const noexcept = 0;

  // Programs.
  virtual asio::awaitable<Result<std::unique_ptr<Execution>>> start(Command command) = 0;
  virtual asio::awaitable<Result<RunResult>> run(Command command, std::string input = {}) = 0;
  virtual asio::awaitable<Result<std::vector<ProcessInfo>>> processes() = 0;
  virtual asio::awaitable<Result<void>> signal_process(std::int32_t pid, int number) = 0;
  virtual asio::awaitable<Result<void>> kill_all() = 0;  // every program; the sandbox lives on

  // Files. Paths are resolved inside the sandbox with the rights of `user`.
  virtual asio::awaitable<Result<UniqueFd>> open_read(std::string path,
                                                      std::string user = "user") = 0;
  virtual asio::awaitable<Result<std::unique_ptr<FileWrite>>> open_write(
      std::string path, WriteMode mode, std::uint32_t permissions = 0644,
      std::string user = "user") = 0;
  // The same with attributes; where there are none, without.
  virtual asio::awaitable<Result<std::unique_ptr<FileWrite>>> open_write_with(
      std::string path, WriteMode mode, std::uint32_t permissions, std::string user,
      FileAttributes /*attributes*/) {
    return open_write(std::move(path), mode, permissions, std::move(user));
  }
  virtual asio::awaitable<Result<std::string>> read_file(std::string path,
                                                         std::uint64_t most = 64ULL << 20) = 0;
  virtual asio::awaitable<Result<void>> write_file(std::string path, std::string data,
                                                   std::uint32_t permissions = 0644,
                                                   std::string user = "user") = 0;
  virtual asio::awaitable<Result<FileInfo>> stat(std::string path, std::string user = "user") = 0;
  virtual asio::awaitable<Result<DirectoryPage>> list(std::string path, std::uint64_t cursor = 0,
                                                      std::uint32_t most = 1000,
                                                      std::string user = "user") = 0;
  virtual asio::awaitable<Result<void>> make_directory(
      std::string path, std::uint32_t mode = 0755, std::string user = "user") = 0;  // with parents
  virtual asio::awaitable<Result<void>> move(std::string from, std::string to,
                                             std::string user = "user") = 0;
  virtual asio::awaitable<Result<void>> copy(std::string from, std::string to,
                                             std::string user = "user") = 0;  // recursive
  virtual asio::awaitable<Result<void>> remove(std::string path,
                                               std::string user = "user") = 0;  // recursive
  virtual asio::awaitable<Result<void>> change_mode(std::string path, std::uint32_t mode,
                                                    std::string user = "user") = 0;
  // To another user, by name or number, and its group. A link itself, not what it leads to.
  virtual asio::awaitable<Result<void>> change_owner(std::string /*path*/, std::string /*owner*/,
                                                     std::string /*user*/ = "root") {
    co_return fail(Errc::unsupported, "files of this sandbox cannot change their owners");
  }
  virtual asio::awaitable<Result<void>> symlink(std::string target, std::string path,
                                                std::string user = "user") = 0;
  virtual asio::awaitable<Result<std::unique_ptr<Watch>>> watch(std::string path,
                                                                std::string user = "user") = 0;

  // A tar stream of `path`, as a pipe to read from.
  virtual asio::awaitable<Result<UniqueFd>> archive_out(std::string path,
                                                        std::string user = "user") = 0;
  struct ArchiveReport {
    std::uint64_t entries = 0;
    std::uint64_t skipped = 0;         // devices, sockets, names that lead outside
    std::vector<std::string> reasons;  // of the first few that were skipped
  };
  // Unpacks a tar stream (plain, or compressed with gzip, bzip2, xz or zstd) read from `tar`: a
  // file, or a pipe the caller fills meanwhile.
  virtual asio::awaitable<Result<ArchiveReport>> archive_in(std::string path, UniqueFd tar,
                                                            std::string user = "user") = 0;

  // All that differs from what a sandbox of its environment begins with. Volumes and /dev/shm are
  // not looked at. A folder that was removed is one entry.
  virtual asio::awaitable<Result<Changes>> changes() = 0;
  // A regular file as it was when the sandbox began; Errc::not_found if it was not there,
  // Errc::conflict if it was something else.
  virtual asio::awaitable<Result<UniqueFd>> open_before(std::string path) = 0;
  // A tar stream of all that was written, with what says that something was removed, as a pipe to
  // read from. For restore_files() of a new sandbox of the same environment.
  // Of `only` some, if there are any: each by its path, as changes() tells it.
  virtual asio::awaitable<Result<UniqueFd>> save_files(std::vector<std::string> only = {}) = 0;
  // Makes a fresh sandbox's files those that were saved. `tar` is a file, or a pipe the caller
  // fills meanwhile. After an error the sandbox has a part of them: it is of no use any more.
  virtual asio::awaitable<Result<ArchiveReport>> restore_files(UniqueFd tar) = 0;

  // A connection to a TCP port inside.
  virtual asio::awaitable<Result<UniqueFd>> connect(std::uint16_t port) = 0;

  // With Network::proxied: the next connection that a program has made to the proxy's port, for the
  // caller to serve and to close. Its bytes are the program's own. While nobody asks, connections
  // wait inside. The descriptor does not block.
  virtual asio::awaitable<Result<UniqueFd>> accept_egress() = 0;

  // Whether its first process lives. Asks the kernel, not the sandbox: ping() does that.
  virtual bool is_alive() const noexcept = 0;
  virtual asio::awaitable<Result<void>> ping() = 0;
  virtual asio::awaitable<Result<void>> pause() = 0;
  virtual asio::awaitable<Result<void>> resume() = 0;
  virtual asio::awaitable<Result<Usage>> usage() = 0;
  // From now on. `process`, as seen inside, is the one whose use of time and bytes is told. A
  // program that is started with Command::effects needs none of this.
  virtual asio::awaitable<Result<std::unique_ptr<EffectsWatch>>> watch_effects(
      std::int32_t process) = 0;

  // From now on it outlives the engine, whose next life gives it back with this label. Needs an
  // engine with a fixed name (EngineOptions::instance).
  virtual asio::awaitable<Result<void>> keep(std::string label) = 0;
  virtual std::string label() const = 0;
  // Programs that an earlier engine kept; handed over, so that a second call has none.
  virtual std::vector<std::unique_ptr<Execution>> adopted_executions() = 0;

  // `told` is called once when it has ended, by itself or by destroy(); not when it is left to the
  // next engine. From the engine's executor, and soon if it has ended already.
  virtual void on_end(std::function<void()> told) = 0;

  // Returns when no process of it lives. What remains (cgroups) is removed in the background.
  virtual asio::awaitable<Result<void>> destroy() = 0;
};

}  // namespace asr
