// The interpreters of one session, by name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "session/context.hpp"

namespace asr {

class Contexts {
 public:
  static constexpr std::size_t kMost = 32;

  explicit Contexts(Context::Home home) : home_(std::move(home)) {}
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;

  // Where they run: the session's computer, if it runs itself, and the session's own variables.
  struct Place {
    Result<std::shared_ptr<Sandbox>> sandbox;
    std::map<std::string, std::string> env;
    std::string cwd = {};  // of a language's own context; empty: /workspace
  };
  asio::awaitable<Result<std::shared_ptr<Context>>> make(Place place, std::string language,
                                                         std::string cwd);
  // The one of this name; without a name the language's own, made when it is first asked for.
  asio::awaitable<Result<std::shared_ptr<Context>>> find(Place place, std::string id,
                                                         std::string language);
  Result<std::shared_ptr<Context>> find(std::string_view id) const;
  std::vector<std::shared_ptr<Context>> all() const;
  Result<void> remove(std::string_view id);

  // What others were, in a sandbox: all of them or none. See Context::revive().
  using Revived = std::vector<std::shared_ptr<Context>>;
  asio::awaitable<Result<Revived>> revive(std::shared_ptr<Sandbox> sandbox,
                                          std::vector<SavedContext> saved);
  // In the place of those that are there, whose sandbox is no longer the session's.
  void replace(Revived contexts);

  // A process that was kept for a context has a label that says so.
  static bool is_label(std::string_view label) { return label.starts_with("i:"); }
  void take_up(std::shared_ptr<Execution> process, const std::string& label);

 private:
  Result<std::shared_ptr<Context>> add(std::shared_ptr<Context> context);

  Context::Home home_;
  void count_in(const std::string& id);
  std::map<std::string, std::shared_ptr<Context>, std::less<>> contexts_;
  std::uint64_t last_ = 0;
};

}  // namespace asr
