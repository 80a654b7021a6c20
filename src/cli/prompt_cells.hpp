// The cells of a prompt: sent to the session's interpreter, shown as they run, interrupted and
// answered from the terminal, and what they made fetched to files.
#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "cli/line_editor.hpp"
#include "cli/remote_cell.hpp"
#include "cli/signal_inbox.hpp"

namespace asr {

class PromptCells {
 public:
  struct Plan {
    std::string session;
    std::string language;        // as the server calls it; also its own context
    std::filesystem::path keep;  // where what cells made goes
    double timeout = 0;          // seconds a cell may take; 0: as the session says
  };

  PromptCells(Remote remote, Plan plan, SignalInbox& signals)
      : remote_(std::move(remote)), plan_(std::move(plan)), signals_(signals) {}
  PromptCells(const PromptCells&) = delete;
  PromptCells& operator=(const PromptCells&) = delete;

  // Runs it to its end; its answer, with everything in it shown. `editor` null: nobody is there to
  // answer questions.
  Result<json::value> run(const std::string& code, LineEditor* editor);
  // After an error: whether there still is a session to go on with.
  bool may_go_on();
  bool is_unread() const noexcept { return is_unread_; }  // Nobody reads what cells give.
  // The signal that wants the program to end; 0: none has come.
  int wanted_end() const noexcept { return wanted_end_; }

  // Texts that `text` could become. Starts the interpreter if it does not run yet.
  Result<std::vector<std::string>> complete(const std::string& text);
  // The interpreter's version, if it runs.
  std::string version();

 private:
  bool show(std::string_view kind, const json::object& what);
  bool print(FILE* to, const std::string& text);
  void begin_line();
  std::string take_line();
  Result<json::value> attend(RemoteCell& cell, LineEditor* editor);
  void answer(RemoteCell& cell, const RemoteCell::Question& question, LineEditor* editor);
  void interrupt();
  void show_end(const json::value& answer, bool is_interactive);
  void fetch_all(const json::array& artifacts);
  std::string context_path(std::string_view rest) const;

  Remote remote_;
  Plan plan_;
  SignalInbox& signals_;
  int wanted_end_ = 0;
  int interrupts_ = 0;           // of the cell that runs
  bool owes_interrupt_ = false;  // It was asked for, and the server has not taken it yet.
  std::mutex mutex_;
  std::string line_;  // what was written since the last end of a line
  bool is_unread_ = false;
};

}  // namespace asr
