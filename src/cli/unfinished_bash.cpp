// Bash: quotes, substitutions, here-documents, and the words that open and close its compounds.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/unfinished.hpp"

namespace asr {

namespace {

class BashReader {
 public:
  explicit BashReader(std::string_view code) : code_(code) {}

  bool is_unfinished() {
    while (at_ < code_.size() && verdict_ == Verdict::unknown) step();
    if (verdict_ == Verdict::unknown) end_word();
    if (verdict_ != Verdict::unknown) return verdict_ == Verdict::unfinished;
    return !open_.empty() || !awaited_.empty() || joins_;
  }

 private:
  enum class Verdict { unknown, unfinished, wrong };
  struct HereDocument {
    std::string end;
    bool indented;
  };

  bool in(std::string_view what) const { return !open_.empty() && open_.back() == what; }
  bool next_is(std::string_view text) const { return code_.substr(at_).starts_with(text); }
  void settle(Verdict verdict) { verdict_ = verdict; }

  void close(std::string_view what) {
    if (!in(what)) return settle(Verdict::wrong);
    open_.pop_back();
  }

  // Past the next `c` that no backslash hides.
  void skip_to(char c) {
    for (; at_ < code_.size() && code_[at_] != c; ++at_)
      if (code_[at_] == '\\') ++at_;
    if (at_ >= code_.size()) settle(Verdict::unfinished);
    ++at_;
  }

  // $((1 << 2)): nothing in it means what it means elsewhere.
  void skip_arithmetic() {
    int depth = 0;
    do {
      if (code_[at_] == '(') ++depth;
      if (code_[at_] == ')') --depth;
      ++at_;
    } while (depth > 0 && at_ < code_.size());
    if (depth > 0) settle(Verdict::unfinished);
  }

  // What begins with a dollar, in quotes and outside.
  bool take_substitution() {
    if (next_is("$((")) {
      ++at_;
      skip_arithmetic();
    } else if (next_is("$(")) {
      begin("$(", ")");
    } else if (next_is("${")) {
      begin("${", "${}");
    } else {
      return false;
    }
    return true;
  }

  void begin(std::string_view text, std::string_view closer) {
    at_ += text.size();
    open_.emplace_back(closer);
    at_command_ = true;
    joins_ = false;
  }

  void step() {
    char c = code_[at_];
    if (c == '\\') {
      if (at_ + 1 >= code_.size()) return settle(Verdict::unfinished);
      // A line that goes on is no word; anything else is part of one.
      if (code_[at_ + 1] != '\n') add_quoted();
      at_ += 2;
    } else if (in("\"") || in("${}")) {
      step_inside(c);
    } else {
      step_outside(c);
    }
  }

  void step_inside(char c) {
    if (take_substitution()) return;
    ++at_;
    if (c == '`') return skip_to('`');
    if (c == '"' && in("\"")) return open_.pop_back();
    if (c == '"') open_.emplace_back("\"");
    if (c == '}' && in("${}")) open_.pop_back();
  }

  void step_outside(char c) {
    if (next_is("$'")) {
      at_ += 2;
      add_quoted();
      return skip_to('\'');
    }
    if (c == '$' && take_substitution()) return add_quoted();
    if (c == '\'') {
      at_ = code_.find('\'', at_ + 1);
      if (at_ == std::string_view::npos) return settle(Verdict::unfinished);
      ++at_;
      return add_quoted();
    }
    if (c == '"') {
      add_quoted();
      open_.emplace_back("\"");
      ++at_;
      return;
    }
    if (c == '`') {
      ++at_;
      add_quoted();
      return skip_to('`');
    }
    if (c == '#' && word_.empty() && !is_quoted_) {
      at_ = std::min(code_.find('\n', at_), code_.size());
      return;
    }
    if (std::string_view(" \t\r\n;&|()<>").find(c) == std::string_view::npos) {
      word_ += c;
      joins_ = false;
      ++at_;
      return;
    }
    step_between(c);
  }

  // Between words.
  void step_between(char c) {
    bool was_word = !word_.empty() || is_quoted_;
    end_word();
    if (verdict_ != Verdict::unknown) return;
    if (next_is("<<<")) {
      at_ += 3;
    } else if (next_is("<<")) {
      take_here_document();
    } else if (next_is("<(") || next_is(">(")) {
      begin("<(", ")");
    } else if (c == '<' || c == '>') {
      ++at_;
      if (at_ < code_.size() && code_[at_] == '&') ++at_;  // 2>&1 joins nothing.
    } else if (c == '(' && at_command_ && !was_word && next_is("((")) {
      skip_arithmetic();
    } else if (c == '(') {
      begin("(", ")");
    } else if (c == ')') {
      ++at_;
      at_command_ = true;  // A function's body, or what belongs to a pattern of a case.
      if (!in("esac")) close(")");
    } else if (c == ';' || c == '&' || c == '|') {
      take_operator(c);
    } else {
      ++at_;
      if (c != '\n') return;
      at_command_ = true;
      skip_here_documents();
    }
  }

  // Only |, || and && want something behind them.
  void take_operator(char c) {
    bool is_double = next_is(std::string(2, c));
    joins_ = c == '|' || (c == '&' && is_double);
    at_ += is_double ? 2 : 1;
    if (c == '|' && at_ < code_.size() && code_[at_] == '&') ++at_;
    at_command_ = true;
  }

  void take_here_document() {
    at_ += 2;
    HereDocument document{"", at_ < code_.size() && code_[at_] == '-'};
    if (document.indented) ++at_;
    while (at_ < code_.size() && (code_[at_] == ' ' || code_[at_] == '\t')) ++at_;
    for (; at_ < code_.size(); ++at_) {
      char c = code_[at_];
      if (std::string_view(" \t\r\n;&|()<>").find(c) != std::string_view::npos) break;
      if (c != '\'' && c != '"' && c != '\\') document.end += c;
    }
    awaited_.push_back(std::move(document));
  }

  void skip_here_documents() {
    while (!awaited_.empty() && at_ < code_.size()) {
      std::string_view line = code_.substr(at_, code_.find('\n', at_) - at_);
      at_ = std::min(at_ + line.size() + 1, code_.size());
      if (awaited_.front().indented)
        line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
      if (line == awaited_.front().end) awaited_.erase(awaited_.begin());
    }
  }

  void add_quoted() {
    is_quoted_ = true;
    joins_ = false;
  }

  void end_word() {
    std::string word = std::exchange(word_, {});
    bool is_quoted = std::exchange(is_quoted_, false);
    if (word.empty() && !is_quoted) return;
    bool is_command = std::exchange(at_command_, false);
    if (std::exchange(names_function_, false))
      at_command_ = true;
    else if (is_command && !is_quoted)
      take_command_word(word);
  }

  void take_command_word(const std::string& word) {
    if (word == "if" || word == "while" || word == "until" || word == "{") {
      open_.emplace_back(word == "if" ? "fi" : word == "{" ? "}" : "done");
      at_command_ = true;
    } else if (word == "for" || word == "select" || word == "case") {
      open_.emplace_back(word == "case" ? "esac" : "done");
    } else if (word == "then" || word == "else" || word == "elif" || word == "do" || word == "!" ||
               word == "time") {
      at_command_ = true;
    } else if (word == "function") {
      names_function_ = true;
    } else if (word == "fi" || word == "done" || word == "esac" || word == "}") {
      close(word);
      at_command_ = true;  // "done }" needs nothing between.
    }
  }

  std::string_view code_;
  std::size_t at_ = 0;
  Verdict verdict_ = Verdict::unknown;
  std::vector<std::string> open_;  // what must still come, the innermost last
  std::vector<HereDocument> awaited_;
  std::string word_;
  bool is_quoted_ = false;  // Some of the word was: it is no keyword.
  bool at_command_ = true;  // The next word is a command, or one of the shell's own.
  bool names_function_ = false;
  bool joins_ = false;  // The last thing was | or &&.
};

}  // namespace

bool is_unfinished_bash(std::string_view code) { return BashReader(code).is_unfinished(); }

}  // namespace asr
