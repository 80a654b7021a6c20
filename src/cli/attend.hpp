// One program used like any other command: its streams, its signals and its terminal are the
// caller's. Where it runs is no matter here.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/signal_set.hpp>
#include <memory>
#include <optional>
#include <string>

#include "cli/streams.hpp"
#include "engine/sandbox.hpp"

namespace asr {

struct Streams {
  enum class Output { passed, collected, ignored };
  Output output = Output::passed;
  bool tty = false;
  bool no_stdin = false;
};

// One run: what its coroutines share, on one thread.
struct Run {
  Run(const asio::any_io_executor& executor, Streams given);

  Streams streams;
  CallerStream in, out, err;
  asio::signal_set signals;
  std::shared_ptr<Execution> execution;  // While the program runs.
  int interrupted_by = 0;
  std::optional<Error> unsent;  // why a signal did not reach the program
  RunResult collected;
};

// Passes input and output until the program has ended.
asio::awaitable<Result<ExitStatus>> attend(std::shared_ptr<Run> run,
                                           std::shared_ptr<Execution> execution);

// Ctrl-C and friends go to the program, as they would without a sandbox; a new window size, too.
// Returns when there is no program that could take them: then they are for us.
asio::awaitable<void> pass_signals(std::shared_ptr<Run> run);

// What the exit code alone does not tell; empty where it tells everything.
std::string why(const ExitStatus& status);

}  // namespace asr
