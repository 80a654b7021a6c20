// A daemon in a process of its own whose sandboxes are to outlive it, and its end by force.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "engine/engine.hpp"
#include "support/host_files.hpp"

namespace asr::test {

class KeptVictim {
 public:
  KeptVictim() = default;
  KeptVictim(const KeptVictim&) = delete;
  KeptVictim& operator=(const KeptVictim&) = delete;
  ~KeptVictim() {
    if (pid_ > 0) kill();
  }

  // Pids of its sandboxes; see kept_victim.cpp for `what`.
  std::vector<int> start(const EngineOptions& options, const std::string& what, int count = 1) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    UniqueFd reader(ends[0]);
    UniqueFd writer(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, writer.get(), 1);
    std::vector<std::string> words{ASR_KEPT_VICTIM,
                                   options.runtime_dir,
                                   options.cache_dir,
                                   options.instance.value_or("victim"),
                                   what,
                                   std::to_string(count),
                                   options.storage_dir};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    EXPECT_EQ(::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    writer.reset();
    std::string line;
    char c = 0;
    while (::read(reader.get(), &c, 1) == 1 && c != '\n') line += c;
    std::istringstream text(line);
    std::string ready;
    text >> ready;
    EXPECT_EQ(ready, "ready") << "the daemon did not start";
    std::vector<int> pids;
    for (int pid = 0; text >> pid;) pids.push_back(pid);
    return pids;
  }

  void kill() {
    signal_one(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  int pid() const noexcept { return pid_; }

 private:
  int pid_ = -1;
};

}  // namespace asr::test
