// A line from the terminal: with keys for editing, earlier lines and completion, by libedit.
// Signals and other events are waited for beside the keys, so none is lost and none comes at a bad
// moment.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/line_history.hpp"
#include "cli/signal_inbox.hpp"

namespace asr {

struct TypedLine {
  enum class End {
    entered,
    interrupted,  // Ctrl-C: what was typed is not wanted
    closed,       // Ctrl-D, or the terminal has gone
    asked,        // a signal wants the program to end; see `signal`
    overtaken,    // `goes_on` said so
  };
  End end = End::entered;
  std::string text;
  int signal = 0;
};

class LineEditor {
 public:
  // Texts that `text` could become, each beginning with it.
  using Complete = std::function<std::vector<std::string>(const std::string& text)>;

  // stdin is a terminal.
  LineEditor(SignalInbox& signals, LineHistory& history, Complete complete);
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor();

  TypedLine read(const std::string& prompt);

  enum class Echo { shown, hidden };
  // For a program that asks: its line is neither completed nor kept. `wake` is a descriptor; when
  // it is readable, `goes_on` is asked whether the line is still wanted.
  TypedLine ask(const std::string& prompt, Echo echo, int wake,
                const std::function<bool()>& goes_on);

 private:
  struct Editor;  // libedit's own state

  std::unique_ptr<Editor> editor_;
};

}  // namespace asr
