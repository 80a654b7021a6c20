#include "cli/command_line.hpp"

#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cctype>
#include <numeric>

namespace asr {

namespace {

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// Whether the word after this one is its value.
bool wants_next(const CLI::App& app, const std::string& word) {
  if (word.starts_with("--")) {
    if (word.find('=') != std::string::npos) return false;
    const CLI::Option* option = app.get_option_no_throw(word);
    return option != nullptr && takes_value(*option);
  }
  for (std::size_t i = 1; i < word.size(); ++i) {
    const CLI::Option* option = app.get_option_no_throw(std::string("-") + word[i]);
    if (option == nullptr) return false;
    if (takes_value(*option)) return i + 1 == word.size();
  }
  return false;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0U);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      std::size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The known word that `word` was probably meant to be; empty if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = word.size() / 3 + 1;
  for (const std::string& one : known) {
    std::size_t distance = edit_distance(word, one);
    bool begins = word.size() > 3 && one.starts_with(word);
    if (distance > least && !begins) continue;
    best = one;
    least = begins ? 0 : distance;
  }
  return best;
}

Error unknown_option(const CLI::App& command, const std::string& name, const std::string& word) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& one : option->get_lnames()) known.push_back("--" + one);
  std::string meant = nearest(word.substr(0, word.find('=')), known);
  std::string hint =
      meant.empty() ? name + " --help lists the options" : "did you mean " + meant + "?";
  if (command.get_name() == "exec") hint += "; options of the command itself go after it";
  return Error(Errc::invalid, "unknown option " + word, hint);
}

}  // namespace

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

Words split_command(const CLI::App& app, const std::vector<std::string>& words) {
  auto at = words.begin();
  while (at != words.end() && *at != "--" && is_option(*at)) {
    bool skip = wants_next(app, *at) && at + 1 != words.end();
    at += skip ? 2 : 1;
  }
  Words split{{words.begin(), at}, {}};
  if (at != words.end() && *at == "--") ++at;
  split.command.assign(at, words.end());
  return split;
}

Error explain(const CLI::App& app, const CLI::ParseError& problem) {
  auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  std::string name = chosen.empty() ? app.get_name() : app.get_name() + " " + command.get_name();
  std::vector<std::string> unknown = app.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&problem) == nullptr || unknown.empty())
    return Error(Errc::invalid, problem.what(), name + " --help tells more");
  const std::string& word = unknown.front();
  if (is_option(word)) return unknown_option(command, name, word);
  if (!chosen.empty())
    return Error(Errc::invalid, "unexpected argument " + word,
                 name + " --help tells what it takes");
  std::vector<std::string> known;
  for (const CLI::App* one : app.get_subcommands({})) known.push_back(one->get_name());
  std::string meant = nearest(word, known);
  return Error(Errc::invalid, "unknown command " + word,
               meant.empty() ? "agent-sandbox exec " + word +
                                   " runs it in a sandbox; --help lists the commands"
                             : "did you mean " + meant + "?");
}

std::vector<std::string> choices(const CLI::Option& option) {
  std::vector<std::string> words;
  std::string text = option.get_type_name();
  auto is_capital = [](unsigned char c) { return std::isupper(c) != 0; };
  while (!text.empty()) {
    std::size_t end = text.find('|');
    std::string word = text.substr(0, end);
    text.erase(0, end == std::string::npos ? end : end + 1);
    if (std::size_t colon = word.find(':'); colon != std::string::npos) word.resize(colon + 1);
    if (!word.empty() && std::none_of(word.begin(), word.end(), is_capital)) words.push_back(word);
  }
  return words;
}

HelpFormatter::HelpFormatter() { column_width(36); }

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
  for (std::size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  return text;
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  std::string usage = "\nUsage: " + name;
  if (!app->get_subcommands({}).empty()) return usage + " COMMAND [OPTION...]\n";
  usage += " [OPTION...]";
  for (const CLI::Option* option :
       app->get_options([](const CLI::Option* one) { return one->get_positional(); }))
    usage += " " + option->get_option_text();
  return usage + "\n";
}

std::string HelpFormatter::make_positionals(const CLI::App*) const {
  return {};
}  // The usage line says it.

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool) const {
  std::string shorts, longs;
  for (const std::string& name : option->get_snames()) shorts += "-" + name;
  for (const std::string& name : option->get_lnames()) longs += "--" + name;
  if (shorts.empty()) return "    " + longs;
  return shorts + ", " + longs;
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  return takes_value(*option) ? " " + option->get_type_name() : "";
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  std::string text = option->get_description();
  if (!option->get_default_str().empty()) text += " [" + option->get_default_str() + "]";
  return text;
}

}  // namespace asr
