// What the tests of the engine share: an engine with folders of its own, work begun but not waited
// for, and the small static program that tests run inside.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "support/engine_fixture.hpp"
#include "support/host_files.hpp"

namespace asr::test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using SandboxPtr = std::shared_ptr<Sandbox>;
using ExecutionPtr = std::unique_ptr<Execution>;

// Where the tool lies once give_tool() has put it into a sandbox.
inline constexpr const char* kTool = "/workspace/tool";

// A file without a name that holds these, to be read from its beginning.
UniqueFd in_memory(std::string_view bytes);

// Lines the engine logged, from any thread.
class Log {
 public:
  void add(std::string_view line);
  bool contains(std::string_view part) const;
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::string lines_;
};

class KernelTest : public testing::Test {
 protected:
  // The engine is started by its first use, so that a test can choose options before.
  TestEngine& engine();
  EngineOptions& options() noexcept { return options_; }
  const Log& log() const noexcept { return *log_; }
  const std::filesystem::path& scratch() const noexcept { return scratch_.path(); }
  void stop_engine() { engine_.reset(); }
  // What it keeps lives on for the next use of engine(). Drop everything of it first.
  void leave_engine() {
    must(engine()->leave());
    drop_engine();
  }
  void drop_engine() {
    engine().drop();
    engine_.reset();
  }

  SandboxPtr sandbox(SandboxSpec spec = spec_of(Preset::standard)) {
    return engine().sandbox(std::move(spec));
  }
  // One with the tool in its workspace.
  SandboxPtr sandbox_with_tool(SandboxSpec spec = spec_of(Preset::standard));
  void give_tool(Sandbox& sandbox);

  template <class T>
  T must(asio::awaitable<Result<T>> work) {
    return engine().must(std::move(work));
  }
  template <class T>
  T wait(asio::awaitable<T> work) {
    return engine().wait(std::move(work));
  }
  // Begins work on the engine's thread without waiting for it.
  template <class T>
  std::future<T> begin(asio::awaitable<T> work) {
    return asio::co_spawn(executor(), std::move(work), asio::use_future);
  }

  RunResult run(Sandbox& sandbox, std::vector<std::string> argv, std::string user = "user");
  RunResult sh(Sandbox& sandbox, std::string script, std::string user = "user");
  ExecutionPtr start(Sandbox& sandbox, Command command) {
    return must(sandbox.start(std::move(command)));
  }
  // Reads stdout and stderr until `text` was in it, or the program has ended, or the time is over.
  std::string read_until(Execution& execution, std::string_view text,
                         std::chrono::milliseconds within = 10s);
  std::string read_to_end(Execution& execution) { return read_until(execution, {}, 60s); }

 private:
  asio::any_io_executor executor();

  ScratchDir scratch_;
  std::shared_ptr<Log> log_ = std::make_shared<Log>();
  EngineOptions options_ = own_options();
  std::unique_ptr<TestEngine> engine_;

  EngineOptions own_options();
};

// A command that runs the tool.
Command tool(std::vector<std::string> arguments);
// The tool's bytes, for environments made from nothing.
std::string_view tool_image();

std::chrono::milliseconds since(Clock::time_point start);
// Asks until it is true or the time is over.
bool eventually(const std::function<bool()>& holds, std::chrono::milliseconds within = 10s);

void write_host_file(const std::filesystem::path& path, std::string_view text,
                     unsigned mode = 0644);
std::uint64_t own_allocated_bytes();                     // by this process, on its heap
std::vector<int> children_named(std::string_view name);  // of this process
// Pid 1 of each sandbox whose zygote is a child of this process, in no order, zombies left out.
std::vector<int> sandbox_inits();

// Bytes that repeat nowhere, the same for the same seed.
std::string noise(std::size_t size, std::uint32_t seed = 1);

// EXPECTs that a result failed, and how.
template <class T>
testing::AssertionResult failed_with(const Result<T>& result, Errc code) {
  if (result) return testing::AssertionFailure() << "it succeeded";
  if (result.error().code == code) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "failed with " << to_string(result.error().code) << ": " << result.error().what;
}
template <class T>
testing::AssertionResult succeeded(const Result<T>& result) {
  if (result) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << to_string(result.error().code) << ": " << result.error().what;
}

}  // namespace asr::test
