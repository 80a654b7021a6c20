// agent-sandbox completion: scripts for shells, made from the option parser's own description, so
// that they cannot know less than it does.

#include <cctype>
#include <cstdio>

#include "cli/command_line.hpp"
#include "cli/commands.hpp"

namespace asr {

namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) { return app.get_subcommands({}); }

// Has commands of its own: session create.
bool is_group(const CLI::App& app) { return !commands_of(app).empty(); }

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* one) { return one->nonpositional(); });
}

const CLI::Option* positional_of(const CLI::App& app) {
  auto found = app.get_options([](const CLI::Option* one) { return one->get_positional(); });
  return found.empty() ? nullptr : found.front();
}

// "-p" and "--preset".
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string replaced(const std::string& text, char what, const char* with) {
  std::string result;
  for (char c : text) result += c == what ? std::string(with) : std::string(1, c);
  return result;
}

std::string quoted(const std::string& text) { return "'" + replaced(text, '\'', R"('\'')") + "'"; }

// Runs a program given as its arguments: what follows is completed by its own rules, or as files.
bool runs_command(const CLI::App& app) {
  const CLI::Option* positional = positional_of(app);
  return positional != nullptr && positional->get_type_name() == "COMMAND";
}

// ---- bash
// ----------------------------------------------------------------------------------------

// One arm per option with a value: what the value may be.
std::string bash_values(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : options_of(app)) {
    if (!takes_value(*option)) continue;
    text += "        " + joined(names_of(*option), "|") +
            ") values=" + quoted(joined(choices(*option), " ")) + " ;;\n";
  }
  return text;
}

std::string bash_command(const CLI::App& app, const std::string& name) {
  std::vector<std::string> words;
  std::vector<std::string> with_value;
  for (const CLI::Option* option : options_of(app)) {
    for (const std::string& one : names_of(*option)) {
      words.push_back(one);
      if (takes_value(*option)) with_value.push_back(one);
    }
  }
  const CLI::Option* positional = positional_of(app);
  std::string text = "    " + quoted(name) + ")\n";
  text += "      options=" + quoted(joined(words, " ")) + "\n";
  text += "      with_value=" + quoted(" " + joined(with_value, " ") + " ") + "\n";
  if (positional != nullptr && !runs_command(app))
    text += "      words=" + quoted(joined(choices(*positional), " ")) + "\n";
  if (runs_command(app)) text += "      program=1\n";
  text += "      case $option in\n" + bash_values(app) + "        *) values= ;;\n      esac ;;\n";
  return text;
}

// One arm per group: its commands.
std::string bash_groups(const CLI::App& app) {
  std::string text;
  for (const CLI::App* group : commands_of(app)) {
    if (!is_group(*group)) continue;
    std::vector<std::string> names;
    for (const CLI::App* one : commands_of(*group)) names.push_back(one->get_name());
    text += "    " + group->get_name() + ") verbs=" + quoted(joined(names, " ")) + " ;;\n";
  }
  return text;
}

std::string bash_script(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* one : commands_of(app)) names.push_back(one->get_name());
  std::vector<std::string> root;
  for (const CLI::Option* option : options_of(app))
    for (const std::string& name : names_of(*option)) root.push_back(name);

  std::string text =
      R"(# bash completion of agent-sandbox: source it, or put it into /usr/share/bash-completion/completions.

_agent_sandbox_describe() {
  options= with_value=' ' words= program= values=
  case $command in
)";
  for (const CLI::App* one : commands_of(app)) {
    text += bash_command(*one, one->get_name());
    for (const CLI::App* verb : commands_of(*one))
      text += bash_command(*verb, one->get_name() + " " + verb->get_name());
  }
  text += R"(  esac
}

_agent_sandbox() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}
  local options with_value words program values option= verbs= first=2 i
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W ')" +
          joined(names, " ") + " " + joined(root, " ") + R"(' -- "$cur"))
    return
  fi
  case $command in
)" + bash_groups(app) +
          R"(  esac
  if [ -n "$verbs" ] && [ "$COMP_CWORD" -eq 2 ]; then
    COMPREPLY=($(compgen -W "$verbs -h --help" -- "$cur"))
    return
  fi
  [ -z "$verbs" ] || { command="$command ${COMP_WORDS[2]}"; first=3; }
  _agent_sandbox_describe
  # Readline breaks words at = and at colons, and completes what is after them.
  local last=$((COMP_CWORD - 1)) after_colon=
  case $cur in =) cur= ;; :) cur= after_colon=1 ;; esac
  case $prev in
    =) last=$((COMP_CWORD - 2)) ;;
    :) last=$((COMP_CWORD - 3)) after_colon=1 ;;
  esac
  [ -z "$after_colon" ] || [ "$prev" = : ] || last=$((COMP_CWORD - 2))
  [ "${COMP_WORDS[last]}" != = ] || last=$((last - 1))
  # Where the program to run begins: the first word that is neither an option nor a value.
  i=$first
  while [ "$i" -lt "$COMP_CWORD" ]; do
    case ${COMP_WORDS[i]} in
      --) i=$((i + 1)); break ;;
      -?*)
        option=${COMP_WORDS[i]}
        if [ "${COMP_WORDS[i+1]}" = = ]; then i=$((i + 2))
        elif [[ $with_value == *" $option "* ]]; then i=$((i + 1)); fi
        [ "${COMP_WORDS[i+1]}" != : ] || i=$((i + 2))
        i=$((i + 1)) ;;
      *) break ;;
    esac
  done
  if [ "$i" -lt "$COMP_CWORD" ] || [ "${COMP_WORDS[COMP_CWORD-1]}" = -- ]; then
    [ -n "$program" ] || return
    if [ "$i" -lt "$COMP_CWORD" ]; then COMPREPLY=($(compgen -f -- "$cur"))
    else COMPREPLY=($(compgen -c -- "$cur")); fi
    return
  fi
  option=${COMP_WORDS[last]}
  if [[ $with_value == *" $option "* ]]; then
    _agent_sandbox_describe
    if [ -n "$after_colon" ] || [ -z "$values" ]; then COMPREPLY=($(compgen -f -- "$cur"))
    else COMPREPLY=($(compgen -W "$values" -- "$cur")); fi
    [[ ${COMPREPLY[0]-} != *: ]] || compopt -o nospace 2>/dev/null
    return
  fi
  case $cur in
    -*) COMPREPLY=($(compgen -W "$options" -- "$cur")) ;;
    *)
      COMPREPLY=($(compgen -W "$words" -- "$cur"))
      [ -z "$program" ] || COMPREPLY=($(compgen -c -- "$cur")) ;;
  esac
}
complete -F _agent_sandbox agent-sandbox
)";
  return text;
}

// ---- zsh
// -----------------------------------------------------------------------------------------

std::string zsh_text(std::string text) {
  for (char c : {'\\', '[', ']', ':'}) {
    const char with[] = {'\\', c, '\0'};
    text = replaced(text, c, with);
  }
  return replaced(text, '\'', R"('\'')");
}

std::string zsh_action(const CLI::Option& option) {
  std::vector<std::string> words = choices(option);
  if (words.empty()) return option.get_type_name() == "PATH" ? "_files" : " ";
  std::vector<std::string> plain;
  std::string files;
  for (const std::string& word : words) {
    if (word.back() == ':')
      files += "compset -P " + word.substr(0, word.size() - 1) + "\\: && _files || ";
    else
      plain.push_back(word);
  }
  if (files.empty()) return "(" + joined(plain, " ") + ")";
  std::vector<std::string> all;
  all.reserve(words.size());
  for (const std::string& word : words) all.push_back(replaced(word, ':', "\\:"));
  return "{ " + files + "compadd -S \"\" -- " + joined(all, " ") + " }";
}

std::string zsh_option(const CLI::Option& option) {
  std::vector<std::string> names = names_of(option);
  const std::string excluded = "(" + joined(names, " ") + ")";
  if (takes_value(option))  // A short name may have its value right after it, a long one after "=".
    for (std::string& name : names) name += name.starts_with("--") ? "=" : "+";
  bool often = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  std::string text = "        '" + (often ? "*" : excluded) + "'";
  text += names.size() > 1 ? "{" + joined(names, ",") + "}" : names.front();
  text += "'[" + zsh_text(option.get_description()) + "]";
  if (takes_value(option))
    text += ":" + zsh_text(option.get_type_name()) + ":" + zsh_action(option);
  return text + "' \\\n";
}

std::string zsh_command(const CLI::App& app) {
  std::string text = "      " + app.get_name() + ")\n        _arguments -s -S \\\n";
  for (const CLI::Option* option : options_of(app)) text += zsh_option(*option);
  const CLI::Option* positional = positional_of(app);
  if (runs_command(app))
    return text + "        '(-)1:program: _command_names -e' '*::argument: _normal' ;;\n";
  if (positional != nullptr)
    return text + "        '1:" + positional->get_name() + ":(" +
           joined(choices(*positional), " ") + ")' ;;\n";
  return text + "        && return ;;\n";
}

// The group's own name is shifted away, so that its commands look like any other.
std::string zsh_group(const CLI::App& app) {
  std::string text = "      " + app.get_name() + ")\n        commands=(\n";
  for (const CLI::App* one : commands_of(app))
    text += "    '" + one->get_name() + ":" + zsh_text(one->get_description()) + "'\n";
  text +=
      "        )\n        if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
      "        shift words; (( CURRENT-- ))\n        case $words[1] in\n";
  for (const CLI::App* one : commands_of(app)) text += zsh_command(*one);
  return text + "        esac ;;\n";
}

std::string zsh_script(const CLI::App& app) {
  std::string text =
      "#compdef agent-sandbox\n# zsh completion of agent-sandbox: put it into a folder of $fpath "
      "as "
      "_agent-sandbox.\n\n_agent_sandbox() {\n  local context state state_descr line\n"
      "  typeset -A opt_args\n  local -a commands\n  commands=(\n";
  for (const CLI::App* one : commands_of(app))
    text += "    '" + one->get_name() + ":" + zsh_text(one->get_description()) + "'\n";
  text += "  )\n  _arguments -C \\\n";
  for (const CLI::Option* option : options_of(app)) text += zsh_option(*option);
  text +=
      "        '1:command:->command' '*::argument:->argument'\n"
      "  case $state in\n    command) _describe command commands ;;\n    argument)\n      case "
      "$words[1] in\n";
  for (const CLI::App* one : commands_of(app))
    text += is_group(*one) ? zsh_group(*one) : zsh_command(*one);
  text +=
      "      esac ;;\n  esac\n}\n"
      "# Works when autoloaded and when sourced.\n"
      "if [ \"$funcstack[1]\" = _agent-sandbox ]; then _agent_sandbox \"$@\"; else compdef "
      "_agent_sandbox "
      "agent-sandbox; fi\n";
  return text;
}

// ---- fish
// ----------------------------------------------------------------------------------------

std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, '\\', "\\\\"), '\'', "\\'") + "'";
}

std::string fish_option(const CLI::Option& option, const std::string& condition) {
  std::string text = "complete -c agent-sandbox -n " + fish_quoted(condition);
  for (const std::string& name : option.get_snames()) text += " -s " + name;
  for (const std::string& name : option.get_lnames()) text += " -l " + name;
  if (takes_value(option)) {
    bool files = option.get_type_name().find("PATH") != std::string::npos;
    text += files ? " -r -F" : " -x";
    if (auto words = choices(option); !words.empty())
      text += " -a " + fish_quoted(joined(words, " "));
  }
  return text + " -d " + fish_quoted(option.get_description()) + "\n";
}

// `before`: where its name is offered; `after`: where its options are.
std::string fish_command(const CLI::App& app, const std::string& before, const std::string& after) {
  const std::string& name = app.get_name();
  std::string text = "complete -c agent-sandbox -n " + fish_quoted(before) + " -a " + name +
                     " -d " + fish_quoted(app.get_description()) + "\n";
  for (const CLI::Option* option : options_of(app)) text += fish_option(*option, after);
  const CLI::Option* positional = positional_of(app);
  if (runs_command(app))
    text += "complete -c agent-sandbox -n " + fish_quoted(after) +
            " -x -a '(__fish_complete_subcommand --fcs-skip=2)'\n";
  else if (positional != nullptr)
    text += "complete -c agent-sandbox -n " + fish_quoted(after) + " -a " +
            fish_quoted(joined(choices(*positional), " ")) + "\n";
  return text;
}

std::string fish_script(const CLI::App& app) {
  std::string text =
      "# fish completion of agent-sandbox: put it into ~/.config/fish/completions.\n\n"
      "complete -c agent-sandbox -f\n";
  for (const CLI::Option* option : options_of(app))
    text += fish_option(*option, "__fish_use_subcommand");
  for (const CLI::App* one : commands_of(app)) {
    std::string condition = "__fish_seen_subcommand_from " + one->get_name();
    text += fish_command(*one, "__fish_use_subcommand", condition);
    std::vector<std::string> verbs;
    for (const CLI::App* verb : commands_of(*one)) verbs.push_back(verb->get_name());
    for (const CLI::App* verb : commands_of(*one))
      text += fish_command(
          *verb, condition + "; and not __fish_seen_subcommand_from " + joined(verbs, " "),
          condition + "; and __fish_seen_subcommand_from " + verb->get_name());
  }
  return text;
}

int print_completion(const CLI::App& app, const std::string& shell) {
  std::string text = shell == "bash"  ? bash_script(app)
                     : shell == "zsh" ? zsh_script(app)
                                      : fish_script(app);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

void add_completion_command(CLI::App& app, Invocation& call) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print a completion script for bash, zsh or fish");
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->option_text("bash|zsh|fish")
      ->type_name("bash|zsh|fish")
      ->check([](const std::string& given) {
        bool known = given == "bash" || given == "zsh" || given == "fish";
        return known ? std::string() : "no completion for " + given + ": use bash, zsh or fish";
      });
  command->footer(
      "  source <(agent-sandbox completion bash)\n"
      "  agent-sandbox completion zsh > ~/.zfunc/_agent-sandbox\n"
      "  agent-sandbox completion fish > ~/.config/fish/completions/agent-sandbox.fish");
  command->callback([&app, shell, &call] { call.status = print_completion(app, *shell); });
}

}  // namespace asr
