// A daemon for tests to kill: starts an engine with sandboxes, tells their pids, and waits for its
// end.
//   kernel_victim RUNTIME_DIR CACHE_DIR COUNT [paused]
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "kernel_test.hpp"

int main(int argc, char** argv) {
  using namespace asr;
  if (argc < 4) return 64;
  EngineOptions options;
  options.runtime_dir = argv[1];
  options.cache_dir = argv[2];
  options.zygotes = 1;
  test::TestEngine engine(options);
  std::vector<std::shared_ptr<Sandbox>> boxes;
  std::vector<std::unique_ptr<Execution>> executions;
  for (int i = 0; i < std::stoi(argv[3]); ++i) {
    auto box = engine.sandbox();
    executions.push_back(engine.must(box->start(test::shell("sleep 1000 & sleep 1000"))));
    boxes.push_back(box);
  }
  if (argc > 4 && std::strcmp(argv[4], "paused") == 0)
    for (const auto& box : boxes) engine.must(box->pause());
  std::printf("%s", engine->instance_dir().filename().c_str());
  for (const auto& box : boxes) std::printf(" %d", box->host_pid());
  std::printf("\n");
  std::fflush(stdout);
  for (;;) ::pause();
}
