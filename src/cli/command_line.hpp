// Reading the command line: where a command to run begins, what was meant by a word nobody knows,
// how help looks.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace asr {

struct Words {
  std::vector<std::string> options;
  std::vector<std::string> command;
};

// The command begins after "--", or at the first word that is neither an option of `app` nor the
// value of one. From there on every word belongs to it, whatever it looks like.
Words split_command(const CLI::App& app, const std::vector<std::string>& words);

// What is wrong with a call that the parser refused, and what to write instead.
Error explain(const CLI::App& app, const CLI::ParseError& problem);

// The words an option's value may be, as its type name lists them: "none|loopback". Those that go
// on
// ("folder:PATH") end in a colon. Empty where any text is allowed.
std::vector<std::string> choices(const CLI::Option& option);
bool takes_value(const CLI::Option& option);

// Help without the parser's jargon.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_positionals(const CLI::App* app) const override;
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace asr
