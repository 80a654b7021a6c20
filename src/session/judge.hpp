// Judges one program at a time, each run in a fresh sandbox: builds it, runs it, looks at what it
// wrote. What is our own fault is tried again before it is told.
#pragma once

#include <memory>
#include <string>

#include "session/batch_request.hpp"
#include "session/builder.hpp"
#include "session/call_off.hpp"
#include "session/verdict.hpp"
#include "session/warm_interpreters.hpp"

namespace asr {

struct Judgement {
  Verdict verdict = Verdict::platform;
  std::string reason;                // one sentence; empty for an accepted program
  std::string out;                   // all it wrote: whoever keeps it cuts it
  std::string err;                   // or what the compiler said
  std::optional<ExitStatus> status;  // none: it was not run
  std::optional<RunResult> checker;  // how that ended, where one ran
  unsigned attempts = 1;
};

// On one thread. Outlives those who wait in judge().
class Judge {
 public:
  Judge(asio::any_io_executor executor, Provider& provider,
        std::shared_ptr<WarmInterpreters> interpreters)
      : executor_(std::move(executor)),
        provider_(provider),
        interpreters_(std::move(interpreters)),
        builder_(executor_, provider) {}

  // Called off, it returns soon, with a verdict that means nothing.
  asio::awaitable<Judgement> judge(std::string owner, std::shared_ptr<const BatchItem> item,
                                   std::shared_ptr<CallOff> call_off);

  const Builder& builder() const noexcept { return builder_; }
  std::uint64_t retries() const noexcept { return retries_; }

 private:
  // One run of a program: of the one that is judged, or of a checker.
  struct Run {
    std::string owner;
    std::shared_ptr<const Program> program;
    std::vector<InitialFile> files;  // beside the program's own
    Limits limits;
    std::string input;
    std::shared_ptr<CallOff> call_off;
    bool from_file = false;  // not from an image of its interpreter
  };
  // How it ended; or a verdict of its own, where it did not come to that. An error is ours.
  struct Ran {
    RunResult result;
    std::optional<Judgement> instead;
  };
  asio::awaitable<Result<Ran>> run(Run run);
  asio::awaitable<Result<Judgement>> attempt(std::string owner,
                                             std::shared_ptr<const BatchItem> item,
                                             std::shared_ptr<CallOff> call_off);
  asio::awaitable<Result<Judgement>> ask_checker(std::string owner,
                                                 std::shared_ptr<const BatchItem> item,
                                                 Judgement judgement,
                                                 std::shared_ptr<CallOff> call_off);

  asio::any_io_executor executor_;
  Provider& provider_;
  std::shared_ptr<WarmInterpreters> interpreters_;
  Builder builder_;
  std::uint64_t retries_ = 0;
};

}  // namespace asr
