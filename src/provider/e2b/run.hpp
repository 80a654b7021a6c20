// What is known of a program in a remote sandbox, and the coroutine that follows it to its end.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>

#include "engine/label.hpp"
#include "provider/e2b/both_ways.hpp"
#include "provider/e2b/core.hpp"

namespace asr::e2b {

// A program, as those who use it and the one that follows it see it. On one thread.
struct Run : std::enable_shared_from_this<Run> {
  explicit Run(CorePtr in) : core(std::move(in)), changed(core->remote->executor()) {}

  CorePtr core;
  Bell changed;
  std::shared_ptr<MessageStream> stream;
  std::string tag;
  std::int32_t pid = 0;
  std::string user = "user";
  bool terminal = false;
  bool has_stdin = false;
  bool both_ways = false;
  std::string nonce;                // said instead of a start
  std::optional<OutputChunk> held;  // what may be the beginning of that
  BothWays lines;
  std::uint64_t most_output = 0;  // zero: any
  OutputOverflow overflow = OutputOverflow::kill;
  bool cpu_limited = false;

  std::deque<OutputChunk> ahead;
  std::size_t ahead_bytes = 0;
  std::uint64_t output_bytes = 0;
  bool nobody_reads = false;
  bool dropped = false;
  bool writing = false;
  std::set<OutputChunk::Stream> closed;
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::optional<ExitStatus> status;
  std::optional<EndReason> killed_for;  // by us
  Label label;

  json::object selector() const { return {{"process", json::object{{"tag", tag}}}}; }
};
using RunPtr = std::shared_ptr<Run>;

// Once; what it used and how it ended is told from then on.
void finish(Run& run, ExitStatus status);
// Kills it, and says why.
asio::awaitable<void> end_program(RunPtr run, EndReason why);
// After a stream that broke: another one, if the program still runs.
asio::awaitable<bool> reconnect(RunPtr run);
// Reads what it writes, to its end.
asio::awaitable<void> follow(RunPtr run);
// Ends it when its time is over. Time in which the sandbox is paused does not count.
asio::awaitable<void> watch_time(std::weak_ptr<Run> weak, std::chrono::milliseconds time);

}  // namespace asr::e2b
