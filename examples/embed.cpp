// The engine in a program of your own: one sandbox, some code, its files, its end.
//
//   cmake --build --preset release --target embed && sudo build/release/bin/embed

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <exception>

#include "engine/engine.hpp"

namespace {

asr::asio::awaitable<asr::Result<void>> session(asr::Engine* engine) {
  asr::SandboxSpec spec = asr::spec_of(asr::Preset::strict);
  auto creating = engine->create(spec);
  auto sandbox = CO_TRY(co_await std::move(creating));

  auto writing = sandbox->write_file("/workspace/answer.py", "print(6 * 7)\n");
  CO_TRY(co_await std::move(writing));

  asr::Command command;
  command.argv = {"python3", "answer.py"};
  auto running = sandbox->run(command);
  asr::RunResult result = CO_TRY(co_await std::move(running));
  std::printf("%s: %s", std::string(to_string(result.status.reason)).c_str(), result.out.c_str());

  auto ending = sandbox->destroy();
  co_return co_await std::move(ending);
}

}  // namespace

int main() {
  boost::asio::io_context context;
  auto engine = asr::Engine::start(context.get_executor());
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().what.c_str());
    return 1;
  }
  int status = 1;
  boost::asio::co_spawn(context, session(engine->get()),
                        [&](std::exception_ptr error, asr::Result<void> done) {
                          if (error) std::rethrow_exception(error);
                          if (!done) std::fprintf(stderr, "%s\n", done.error().what.c_str());
                          status = done ? 0 : 1;
                          context.stop();
                        });
  context.run();
  return status;
}
