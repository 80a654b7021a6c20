// A cell that runs in an interpreter of a session. A thread reads what it gives, because calls
// block; whoever started it waits for questions, its end, and signals.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/unique_fd.hpp"
#include "cli/remote.hpp"

namespace asr {

class RemoteCell {
 public:
  // What the program asks of somebody at a terminal.
  struct Question {
    std::string prompt;
    bool password = false;
  };
  // Hears "stdout", "stderr" and "result" while the cell runs, on the cell's thread. False: nobody
  // wants more of it.
  using Show = std::function<bool(std::string_view kind, const json::object& what)>;

  // `request`: as in POST …/execute.
  RemoteCell(const Remote& remote, const std::string& session, json::object request, Show show);
  RemoteCell(const RemoteCell&) = delete;
  RemoteCell& operator=(const RemoteCell&) = delete;
  ~RemoteCell() = default;  // Stops listening; the cell goes on.

  // Readable when something changed; settle() makes it wait for the next change.
  int descriptor() const noexcept { return changed_.get(); }
  void settle();

  // Each question once.
  std::optional<Question> question();
  // The whole answer, once there is one.
  std::optional<Result<json::value>> end();
  // It ended because nobody reads what it gives.
  bool is_unread();

 private:
  void run(Remote remote, const std::string& path, const json::object& request);
  Result<void> take(std::string_view type, json::value data);
  void change(const std::function<void()>& what);

  Show show_;
  UniqueFd changed_;
  std::mutex mutex_;
  std::optional<Question> question_;
  std::optional<Result<json::value>> end_;
  bool unread_ = false;
  std::jthread thread_;  // The last: it uses the others.
};

}  // namespace asr
