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

  explicit Contexts(asio::any_io_executor executor) : executor_(std::move(executor)) {}
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;

  // `env` is the session's own.
  Result<std::shared_ptr<Context>> make(std::string_view language, std::string cwd,
                                        std::map<std::string, std::string> env);
  // The one of this name; without a name the language's own, made when it is first asked for.
  Result<std::shared_ptr<Context>> find(std::string_view id, std::string_view language,
                                        const std::map<std::string, std::string>& env);
  Result<std::shared_ptr<Context>> find(std::string_view id) const;
  std::vector<std::shared_ptr<Context>> all() const;
  Result<void> remove(std::string_view id);

  // A process that was kept for a context has a label that says so.
  static bool is_label(std::string_view label) { return label.starts_with("i:"); }
  void take_up(std::shared_ptr<Execution> process, const std::string& label);

 private:
  Result<std::shared_ptr<Context>> add(std::shared_ptr<Context> context);

  asio::any_io_executor executor_;
  std::map<std::string, std::shared_ptr<Context>, std::less<>> contexts_;
  std::uint64_t last_ = 0;
};

}  // namespace asr
