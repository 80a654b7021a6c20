// What everything that belongs to one remote sandbox shares: where it is, and whether it still is.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/sandbox.hpp"
#include "engine/usage.hpp"
#include "net/bell.hpp"
#include "provider/e2b/remote.hpp"

namespace asr::e2b {

// Which programs of a sandbox were kept, written down where the next server looks for it.
class KeptPrograms {
 public:
  explicit KeptPrograms(std::string file) : file_(std::move(file)) {}
  void load();  // what an earlier server wrote; a file that makes no sense is none
  Result<void> add(const std::string& tag, const std::string& label);
  void remove(const std::string& tag);
  void forget();                                                                      // all of it
  const std::map<std::string, std::string>& all() const noexcept { return labels_; }  // by tag

 private:
  Result<void> write() const;

  std::string file_;
  std::map<std::string, std::string> labels_;
};

// On one thread.
struct Core : std::enable_shared_from_this<Core> {
  Core(std::shared_ptr<Remote> with, Place where, std::string kept_file)
      : remote(std::move(with)),
        place(std::move(where)),
        changed(remote->executor()),
        kept(std::move(kept_file)) {}

  std::shared_ptr<Remote> remote;
  Place place;
  SandboxState state = SandboxState::ready;
  Bell changed;  // the state, or the place
  std::vector<std::function<void()>> told;
  KeptPrograms kept;
  std::optional<Usage> last_usage;  // Nothing can be asked of one that is paused.

  void set_state(SandboxState now);
  // Errc::gone and Errc::conflict for one that has ended or is paused.
  Result<void> check_ready() const;
  // After an error that may mean that it has ended: asks, and remembers. Gives back a better error
  // if there is one.
  static asio::awaitable<Error> look(std::shared_ptr<Core> core, Error error);
};
using CorePtr = std::shared_ptr<Core>;

// Unary calls to the sandbox's daemon.
asio::awaitable<Result<json::value>> ask(CorePtr core, std::string method, json::value body,
                                         std::string user, Repeat repeat = Repeat::freely,
                                         std::chrono::seconds within = std::chrono::seconds(30));

// Runs a small program of ours in the sandbox and returns what it wrote. An exit code other than
// zero is an error, worded by what it wrote to stderr.
asio::awaitable<Result<std::string>> run_helper(CorePtr core, std::vector<std::string> argv,
                                                std::string user);

}  // namespace asr::e2b
