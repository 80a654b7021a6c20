#include "support/engine_fixture.hpp"

#include <fcntl.h>

#include <stdexcept>

#include "base/id.hpp"
#include "os/file.hpp"

namespace asr::test {

namespace {

// Where the sandboxes' folders must be traversable for nobody but us, and mounts are harmless.
std::filesystem::path scratch_root() {
  return std::filesystem::temp_directory_path() / "agent-sandbox-tests";
}

}  // namespace

TestEngine::TestEngine(EngineOptions options) : guard_(boost::asio::make_work_guard(context_)) {
  auto engine = Engine::start(context_.get_executor(), std::move(options));
  if (!engine)
    throw std::runtime_error("engine: " + engine.error().what + " | " + engine.error().hint);
  engine_ = *std::move(engine);
  thread_ = std::thread([this] { context_.run(); });
}

TestEngine::~TestEngine() { stop(); }

void TestEngine::stop() {
  if (!engine_) return;
  auto stopped = wait(engine_->stop());
  EXPECT_TRUE(stopped) << stopped.error().what;
  drop();
}

void TestEngine::drop() {
  engine_.reset();
  guard_.reset();
  thread_.join();
}

std::shared_ptr<Sandbox> TestEngine::sandbox(SandboxSpec spec) {
  return must(engine_->create(std::move(spec)));
}

RunResult TestEngine::sh(Sandbox& sandbox, std::string script, std::string user) {
  return must(sandbox.run(shell(std::move(script), std::move(user))));
}

ScratchDir::ScratchDir() : path_(scratch_root() / random_name(12)) {
  std::filesystem::create_directories(path_);
}

ScratchDir::~ScratchDir() { (void)remove_tree(AT_FDCWD, path_.native()); }

Command shell(std::string script, std::string user) {
  Command command;
  command.argv = {"/bin/sh", "-c", std::move(script)};
  command.user = std::move(user);
  return command;
}

}  // namespace asr::test
