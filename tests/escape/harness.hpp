// A test of the catalogue: an engine, sandboxes with the probe in them, and a record of what the
// probe could do. A case is proven by running it outside first (prove), then holds if every attack
// of it fails inside (attack).
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "report.hpp"
#include "support/host_files.hpp"

namespace asr::escape {

using namespace std::chrono_literals;
using test::read_host_file;
using Args = std::vector<std::string>;
using SandboxPtr = std::shared_ptr<Sandbox>;

inline constexpr const char* kNoAnswer = "the engine did not answer in time";
inline constexpr const char* kProbe = "/workspace/escape_probes";

// Counters of this process, which is the daemon here, and of the machine as far as this instance
// touches it.
struct Snapshot {
  std::size_t descriptors = 0;
  std::size_t children = 0;
  std::size_t mounts = 0;
  std::size_t groups = 0;  // cgroup directories of this instance
  std::size_t shared_memory = 0;
};

// Bytes this process has allocated: what a sanitizer keeps aside after free() is not counted.
std::size_t daemon_memory();
std::size_t daemon_descriptors();
long host_number(const std::string& path, long otherwise);
// Processes of the machine that have `token` in their arguments.
std::size_t host_processes_named(const std::string& token);

// Runs `true` in a sandbox ten times a second for as long as others misbehave.
struct Neighbour {
  SandboxPtr sandbox;
  std::size_t runs = 0;
  std::size_t errors = 0;
  std::string first_error;
  std::chrono::milliseconds worst{0};
  bool stop = false;
  bool stopped = false;
};

class Escape : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  virtual EngineOptions options() { return {}; }

  // Says which case this is. Without it a test leaves no record.
  void begin(std::string name, std::string title);
  void not_applicable(std::string reason);
  // Runs the case outside, as root of the machine. Attacks that work there are proof; those that
  // fail for another reason than that the kernel lacks the thing make the test fail: it would prove
  // nothing.
  void prove(const std::string& probe_case, const Args& args = {});
  // Runs the case inside, as root and as the ordinary user: every attack must fail, everything
  // needed must work.
  void attack(const SandboxPtr& sandbox, const std::string& probe_case, const Args& args = {});
  void attack_as(const std::string& user, const SandboxPtr& sandbox, const std::string& probe_case,
                 const Args& args = {}, Command command = {});
  // Checks attempts that were made in another way.
  void judge(const std::vector<Attempt>& attempts);
  // Something outside the probe that must be so; if not, the case is breached.
  void must(bool holds, const std::string& what);

  static SandboxSpec standard() { return spec_of(Preset::standard); }
  SandboxPtr make(SandboxSpec spec = standard());  // with the probe in it
  RunResult run(const SandboxPtr& sandbox, const std::string& user, Args argv,
                Command command = {});
  std::vector<Attempt> probe(const SandboxPtr& sandbox, const std::string& user,
                             const std::string& probe_case, const Args& args = {},
                             Command command = {});
  // Starts it and waits for its first line of output.
  std::unique_ptr<Execution> start(const SandboxPtr& sandbox, const std::string& user,
                                   const std::string& probe_case, const Args& args = {});
  std::string read_until(Execution& execution, const std::string& text,
                         std::chrono::milliseconds patience = 10s);
  void expect_alive(const SandboxPtr& sandbox, const std::string& after);
  std::chrono::milliseconds destroy(SandboxPtr& sandbox);
  std::shared_ptr<Neighbour> neighbour();  // a sandbox of its own, kept busy
  void expect_undisturbed(const std::shared_ptr<Neighbour>& neighbour);
  void let_pass(std::chrono::milliseconds time);
  // Each environment keeps zygotes for as long as the engine lives: what the daemon holds is not
  // compared at the end.
  void expect_new_environments() { before_.reset(); }

  // Where the sandbox's cgroup file of a v1 controller or the v2 tree is; empty if there is none.
  std::string group_file(const SandboxPtr& sandbox, const std::string& controller,
                         const std::string& file) const;
  Snapshot snapshot() const;

  // The result of one call, with everything else that is going on going on.
  template <class T>
  Result<T> sync(asio::awaitable<Result<T>> work, std::chrono::milliseconds patience = 30s) {
    auto result = std::make_shared<std::optional<Result<T>>>();
    asio::co_spawn(context_, std::move(work),
                   [result](const std::exception_ptr& failure, Result<T> value) {
                     if (failure) std::rethrow_exception(failure);
                     result->emplace(std::move(value));
                   });
    auto deadline = std::chrono::steady_clock::now() + patience;
    context_.restart();
    while (!*result && std::chrono::steady_clock::now() < deadline) {
      if (context_.run_one_until(deadline) == 0) context_.restart();
    }
    if (!*result) return fail(Errc::timeout, kNoAnswer);
    return std::move(**result);
  }

  asio::io_context context_{1};
  std::unique_ptr<Engine> engine_;
  std::string secret_;       // In this process's environment, in a file and in a key.
  std::string secret_file_;  // Only root can read it.

 private:
  void plant_canaries();
  Result<std::string> probe_binary();

  Record record_;
  bool excused_ = false;
  std::chrono::steady_clock::time_point began_;
  std::vector<SandboxPtr> sandboxes_;
  std::vector<std::shared_ptr<Neighbour>> neighbours_;
  std::optional<Snapshot> before_;
};

}  // namespace asr::escape
