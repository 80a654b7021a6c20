// Interpreters that cost almost nothing to get: an image of a started Python per environment, and
// some that already run in sandboxes which wait for their session.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "interpreter/kernel_process.hpp"
#include "interpreter/warm_python.hpp"
#include "policy/spec.hpp"
#include "provider/provider.hpp"

namespace asr {

struct WarmSettings {
  bool off = false;                  // Every interpreter is started from its file.
  std::vector<std::string> imports;  // done before the image is made
  std::uint32_t most_ready = 4;      // that run and wait
};

struct WarmCounts {
  std::uint64_t ready = 0;    // interpreters that ran already when they were first asked
  std::uint64_t thawed = 0;   // made from an image
  std::uint64_t started = 0;  // started from their files
  std::size_t images = 0;
  std::uint64_t image_bytes = 0;
};

// On one thread. Outlived by the provider and the log.
class WarmInterpreters : public std::enable_shared_from_this<WarmInterpreters> {
 public:
  WarmInterpreters(asio::any_io_executor executor, Provider& provider, const Log& log,
                   WarmSettings settings);

  // Makes the image of an environment, unless it is there; returns when it was tried.
  asio::awaitable<void> prepare(Environment environment);
  // What programs of this environment's Python are made from; none: not now.
  std::shared_ptr<const FrozenProgram> image_for(const Environment& environment);

  // The quickest there is, by way of the slowest if need be.
  asio::awaitable<Result<KernelProcess>> start(std::shared_ptr<Sandbox> sandbox, KernelStart how);

  // Starts an interpreter in a sandbox that waits for its session, if it is likely to be wanted.
  asio::awaitable<void> make_ready(std::shared_ptr<Sandbox> sandbox);

  // The one that waits in it will not be wanted.
  void forget(const std::shared_ptr<Sandbox>& sandbox);

  WarmCounts counts() const;

 private:
  struct Image {
    enum class State { making, there, impossible } state = State::making;
    WarmPython python;
  };
  struct Waiting {
    std::weak_ptr<Sandbox> sandbox;
    KernelProcess kernel;
  };

  asio::awaitable<Result<WarmPython>> make_image(Environment environment);
  std::optional<KernelProcess> take(const std::shared_ptr<Sandbox>& sandbox,
                                    const KernelStart& how);
  void earn();
  bool spend();

  asio::any_io_executor executor_;
  Provider& provider_;
  const Log& log_;
  WarmSettings settings_;
  std::map<Environment, Image> images_;
  std::map<std::string, Waiting> waiting_;  // by sandbox
  // How many may be made ready before one of them must have been used: whoever makes sessions and
  // never runs Python in them does not pay for interpreters.
  std::uint32_t credit_;
  std::chrono::steady_clock::time_point last_gift_;
  WarmCounts counts_;
};

}  // namespace asr
