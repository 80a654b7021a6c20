#include "cli/line_editor.hpp"

#include <histedit.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cwchar>

#include "base/scope_exit.hpp"
#include "cli/name_list.hpp"
#include "cli/terminal.hpp"

namespace asr {

namespace {

constexpr int kMostHistory = static_cast<int>(LineHistory::kMost);
constexpr const char* kIndent = "    ";
constexpr char kControlD = 4;

// Letters beyond ASCII are typed as UTF-8, whatever the environment forgot to say.
void choose_letters() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineEditor::Editor {
  enum class Woken { key, end };

  Editor(SignalInbox& inbox, LineHistory& lines, Complete completer)
      : signals(inbox), history(lines), complete(std::move(completer)) {
    choose_letters();
    screen = ::isatty(STDOUT_FILENO) != 0 ? stdout : stderr;
    edit = ::el_init("agent-sandbox", stdin, screen, stderr);
    kept = ::history_init();
    none = ::history_init();
    HistEvent event{};
    ::history(kept, &event, H_SETSIZE, kMostHistory);
    ::history(none, &event, H_SETSIZE, 1);
    for (const std::string& earlier : history.lines())
      ::history(kept, &event, H_ENTER, earlier.c_str());
    ::el_set(edit, EL_CLIENTDATA, this);
    ::el_set(edit, EL_PROMPT, &Editor::show_prompt);
    ::el_set(edit, EL_EDITOR, "emacs");
    ::el_set(edit, EL_GETCFN, &Editor::next_key);
    // Wide texts, because it keeps these and would never free copies.
    ::el_wset(edit, EL_ADDFN, L"complete-name", L"Complete the name before the cursor",
              &Editor::on_tab);
    ::el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    ::el_source(edit, nullptr);  // What the user prefers.
    ::el_set(edit, EL_BIND, "^I", "complete-name", nullptr);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;
  ~Editor() {
    ::el_end(edit);
    ::history_end(kept);
    ::history_end(none);
  }

  static Editor& of(EditLine* edit) {
    void* self = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<Editor*>(self);
  }

  static char* show_prompt(EditLine* edit) { return of(edit).prompt.data(); }

  // ---- waiting

  // Until a key can be read, or something else ended the line.
  Woken wait_for_key() {
    for (;;) {
      pollfd all[]{{STDIN_FILENO, POLLIN, 0}, {signals.descriptor(), POLLIN, 0}, {wake, POLLIN, 0}};
      if (::poll(all, 3, -1) < 0 && errno != EINTR) return end_with(TypedLine::End::closed);
      while (auto signal = signals.take())
        if (take_signal(*signal) == Woken::end) return Woken::end;
      if (all[2].revents != 0 && goes_on && !goes_on()) return end_with(TypedLine::End::overtaken);
      if (all[0].revents != 0) return Woken::key;
    }
  }

  Woken end_with(TypedLine::End how) {
    line.end = how;
    return Woken::end;
  }

  Woken take_signal(int signal) {
    if (signal == SIGINT) return end_with(TypedLine::End::interrupted);
    if (wants_the_end(signal)) {
      line.signal = signal;
      return end_with(TypedLine::End::asked);
    }
    if (signal == SIGWINCH) ::el_resize(edit);
    if (signal == SIGTSTP) suspend();
    return Woken::key;
  }

  // The shell gets its terminal as it was.
  void suspend() {
    if (is_editing) ::el_set(edit, EL_PREP_TERM, 0);
    ::kill(::getpid(), SIGSTOP);
    if (!is_editing) return;
    ::el_set(edit, EL_PREP_TERM, 1);
    ::el_set(edit, EL_REFRESH);
  }

  // One letter, of as many bytes as it has. What is none is left out.
  static int next_key(EditLine* edit, wchar_t* key) {
    Editor& self = of(edit);
    std::mbstate_t state{};
    for (;;) {
      if (self.wait_for_key() == Woken::end) {
        errno = EINTR;
        return -1;
      }
      char byte = 0;
      ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0) return 0;
      // Ctrl-D that was typed before the terminal passed every key on is kept as a zero byte.
      const LineInfo* now = ::el_line(edit);
      if (byte == '\0' && now->buffer == now->lastchar) byte = kControlD;
      std::size_t taken = std::mbrtowc(key, &byte, 1, &state);
      if (taken == 0 || taken == 1) return 1;
      if (taken == static_cast<std::size_t>(-1)) state = {};
    }
  }

  // ---- completion

  static unsigned char on_tab(EditLine* edit, int) { return of(edit).complete_name(); }

  unsigned char complete_name() {
    const LineInfo* now = ::el_line(edit);
    std::string text(now->buffer, now->cursor);
    // Where nothing stands yet, the key means what it says.
    if (text.find_first_not_of(" \t") == std::string::npos) {
      ::el_insertstr(edit, kIndent);
      return CC_REFRESH;
    }
    if (!completes) return CC_ERROR;
    std::vector<std::string> matches = usable_matches(complete(text), text);
    if (matches.empty()) return CC_ERROR;
    std::string common = common_start(matches);
    if (common.size() > text.size()) {
      ::el_insertstr(edit, common.c_str() + text.size());
      return CC_REFRESH;
    }
    if (matches.size() == 1) return CC_ERROR;
    std::string list = name_list(matches, text, terminal_size().columns);
    std::fprintf(screen, "\n%s", list.c_str());
    return CC_REDISPLAY;
  }

  // ---- lines

  TypedLine edit_line(const std::string& shown) {
    prompt = shown;
    line = {};
    is_editing = true;
    ScopeExit done([this] { is_editing = false; });
    ::el_resize(edit);
    int count = 0;
    const char* text = ::el_gets(edit, &count);
    if (text && count > 0) {
      line.text.assign(text, static_cast<std::size_t>(count));
      while (line.text.ends_with('\n') || line.text.ends_with('\r')) line.text.pop_back();
      return std::move(line);
    }
    if (line.end == TypedLine::End::entered) line.end = TypedLine::End::closed;
    if (line.end == TypedLine::End::interrupted) std::fputs("^C", screen);
    std::fputs("\n", screen);
    std::fflush(screen);
    return std::move(line);
  }

  TypedLine hidden_line(const std::string& shown) {
    termios before{};
    bool changed = ::tcgetattr(STDIN_FILENO, &before) == 0;
    termios quiet = before;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    if (changed) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet);
    ScopeExit restore([&] {
      if (changed) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
      std::fputs("\n", screen);
      std::fflush(screen);
    });
    std::fputs(shown.c_str(), screen);
    std::fflush(screen);
    line = {};
    while (wait_for_key() == Woken::key) {
      char byte = 0;
      ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0) end_with(TypedLine::End::closed);
      if (n <= 0 || byte == '\n') break;
      line.text += byte;
    }
    return std::move(line);
  }

  SignalInbox& signals;
  LineHistory& history;
  Complete complete;
  FILE* screen = nullptr;
  EditLine* edit = nullptr;
  History* kept = nullptr;
  History* none = nullptr;  // for lines that are not kept
  std::string prompt;
  TypedLine line;
  bool completes = false;
  bool is_editing = false;  // The terminal passes every key on.
  int wake = -1;
  std::function<bool()> goes_on;
};

LineEditor::LineEditor(SignalInbox& signals, LineHistory& history, Complete complete)
    : editor_(std::make_unique<Editor>(signals, history, std::move(complete))) {}

LineEditor::~LineEditor() = default;

TypedLine LineEditor::read(const std::string& prompt) {
  Editor& editor = *editor_;
  editor.completes = true;
  ::el_set(editor.edit, EL_HIST, ::history, editor.kept);
  TypedLine line = editor.edit_line(prompt);
  HistEvent event{};
  if (line.end == TypedLine::End::entered && editor.history.add(line.text))
    ::history(editor.kept, &event, H_ENTER, line.text.c_str());
  return line;
}

TypedLine LineEditor::ask(const std::string& prompt, Echo echo, int wake,
                          const std::function<bool()>& goes_on) {
  Editor& editor = *editor_;
  editor.completes = false;
  editor.wake = wake;
  editor.goes_on = goes_on;
  ScopeExit forget([&] {
    editor.wake = -1;
    editor.goes_on = nullptr;
  });
  ::el_set(editor.edit, EL_HIST, ::history, editor.none);
  return echo == Echo::shown ? editor.edit_line(prompt) : editor.hidden_line(prompt);
}

}  // namespace asr
