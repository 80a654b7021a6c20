// An engine with an event loop on a thread of its own, driven by tests as if everything were
// ordinary calls.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "engine/engine.hpp"

namespace asr::test {

class TestEngine {
 public:
  explicit TestEngine(EngineOptions options = {});
  ~TestEngine();
  TestEngine(const TestEngine&) = delete;
  TestEngine& operator=(const TestEngine&) = delete;

  Engine& operator*() noexcept { return *engine_; }
  Engine* operator->() noexcept { return engine_.get(); }

  // Runs a coroutine on the engine's thread and waits for it.
  template <class T>
  T wait(boost::asio::awaitable<T> work) {
    return boost::asio::co_spawn(context_, std::move(work), boost::asio::use_future).get();
  }

  // The same for what must succeed; a failure ends the test with its message.
  template <class T>
  T must(boost::asio::awaitable<Result<T>> work) {
    auto result = wait(std::move(work));
    if (!result) throw std::runtime_error(result.error().what + " | " + result.error().hint);
    return unwrap(std::move(result));
  }

  std::shared_ptr<Sandbox> sandbox(SandboxSpec spec = spec_of(Preset::standard));
  RunResult sh(Sandbox& sandbox, std::string script, std::string user = "user");

  // Ends the engine now rather than with the object.
  void stop();
  // The same, but without ending what it keeps; after Engine::leave().
  void drop();

 private:
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  std::unique_ptr<Engine> engine_;
  std::thread thread_;
};

// A runtime folder of the test's own, removed with it. Tests never touch instances they did not
// start.
class ScratchDir {
 public:
  ScratchDir();
  ~ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

// "sh -c script" as a command.
Command shell(std::string script, std::string user = "user");

}  // namespace asr::test
