// An engine at work, to be killed at any moment: create, run, write, pause, resume, destroy, again.
//
//   crash_driver <runtime dir> <cache dir> [rounds=2] [nofile=N] [hold=N] [wait]
//
// Says each failure of the engine as "error <step> <code> <what>" and goes on; wait: before the
// rounds, says its children's pids and waits for a line. Exits with 0 when all went well, with 1
// after typed errors.
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>

#include "engine/engine.hpp"

namespace asr {
namespace {

struct Work {
  int rounds = 2;
  int hold = 0;
  bool wait = false;
};

int errors = 0;

void say(const std::string& line) {
  std::string text = line + "\n";
  (void)!::write(STDOUT_FILENO, text.data(), text.size());
}

void note(const char* step, const Error& error) {
  ++errors;
  say(std::string("error ") + step + " " + std::string(to_string(error.code)) + " " + error.what);
}

template <class T>
bool good(const char* step, const Result<T>& result) {
  if (!result) note(step, result.error());
  return result.has_value();
}

Command shell(const char* script) {
  Command command;
  command.argv = {"/bin/sh", "-c", script};
  return command;
}

asio::awaitable<void> use(std::shared_ptr<Sandbox> sandbox) {
  auto ran = co_await sandbox->run(shell("echo hello; (sleep 100 &)"));
  if (good("run", ran) && ran->status.ok() && ran->out != "hello\n")
    say("wrong output: " + ran->out);
  auto wrote = co_await sandbox->write_file("/workspace/file", "content");
  good("write", wrote);
  if (good("pause", co_await sandbox->pause())) good("resume", co_await sandbox->resume());
  auto read = co_await sandbox->read_file("/workspace/file");
  if (good("read", read) && wrote && *read != "content") say("wrong content: " + *read);
}

asio::awaitable<void> one_round(Engine* engine, int number) {
  auto made = co_await engine->create(spec_of(number % 2 == 0 ? Preset::standard : Preset::strict));
  if (!good("create", made)) co_return;
  auto using_it = use(*made);
  co_await std::move(using_it);
  good("destroy", co_await (*made)->destroy());
}

// As many at once as there is room for; then none, and one again.
asio::awaitable<void> fill(Engine* engine, int most) {
  std::vector<std::shared_ptr<Sandbox>> held;
  for (int i = 0; i < most; ++i) {
    auto made = co_await engine->create(spec_of(Preset::standard));
    if (!good("create", made)) break;
    held.push_back(*made);
    auto ran = co_await (*made)->run(shell("true"));
    if (!good("run", ran)) break;
  }
  say("held " + std::to_string(held.size()));
  for (auto& sandbox : held) good("destroy", co_await sandbox->destroy());
}

void wait_for_go() {
  std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  std::string pids;
  std::getline(children, pids);
  say("children " + pids);
  std::string line;
  std::getline(std::cin, line);
}

asio::awaitable<void> drive(Engine* engine, Work work) {
  if (work.wait) {
    auto first = one_round(engine, 0);
    co_await std::move(first);
    wait_for_go();
  }
  if (work.hold > 0) {
    auto filling = fill(engine, work.hold);
    co_await std::move(filling);
  }
  for (int i = 0; i < work.rounds; ++i) {
    auto round = one_round(engine, i);
    co_await std::move(round);
    say("round " + std::to_string(i));
  }
  good("stop", co_await engine->stop());
}

int run(int argc, char** argv) {
  EngineOptions options;
  options.runtime_dir = argv[1];
  options.cache_dir = argv[2];
  options.zygotes = 1;
  Work work;
  for (int i = 3; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "wait")
      work.wait = true;
    else if (word.starts_with("rounds="))
      work.rounds = std::stoi(word.substr(7));
    else if (word.starts_with("hold="))
      work.hold = std::stoi(word.substr(5));
    else if (word.starts_with("nofile=")) {
      rlimit limit{std::stoul(word.substr(7)), std::stoul(word.substr(7))};
      ::setrlimit(RLIMIT_NOFILE, &limit);
    } else
      return 2;
  }
  asio::io_context context(1);
  auto engine = Engine::start(context.get_executor(), options);
  if (!good("start", engine)) return 1;
  say("instance " + (*engine)->instance_dir().filename().native());
  asio::co_spawn(context, drive(engine->get(), work), [&](const std::exception_ptr& failure) {
    if (failure) std::rethrow_exception(failure);
    context.stop();  // The zygotes' channels would be read for ever.
  });
  context.run();
  engine->reset();
  say("ended");
  return errors == 0 ? 0 : 1;
}

}  // namespace
}  // namespace asr

int main(int argc, char** argv) { return argc < 3 ? 2 : asr::run(argc, argv); }
