// The languages that sessions speak, and how an interpreter of each is started.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/command.hpp"
#include "net/json.hpp"

namespace asr {

struct Language {
  std::string name;
  std::vector<std::string> aliases;
  std::string program;  // what runs it, and must be there
  // What reads the kernel from its input and becomes it.
  std::vector<std::string> argv;
  std::string_view kernel;  // a part of this program; empty: the environment brings the whole

  bool is_brought() const noexcept { return kernel.empty(); }
  // Whether an interpreter can be saved with all it has in memory.
  bool can_be_saved() const noexcept { return name == "python"; }
};
using LanguagePtr = std::shared_ptr<const Language>;

// One of ours, by its name or another one it is known by; nothing for a language that nobody has
// taught us.
LanguagePtr find_language(std::string_view name);
const std::vector<LanguagePtr>& languages();

// What a Python must have run before its prepare() makes an interpreter of it.
std::string python_definitions();

// Where an environment has its interpreters of other languages, each under its language's name.
inline constexpr std::string_view kKernelFolder = "/usr/local/lib/agent-sandbox/kernels/";

// One of ours, or else one that an environment may bring: whether it does is another question.
// Nothing for a name that none may have, as it becomes a part of a path and names a context.
LanguagePtr possible_language(std::string_view name);

// What to start, with stdin going both ways; and what to say to it first, unless it was frozen
// after that or is brought by the environment.
Command kernel_command(const Language& language, std::shared_ptr<const FrozenProgram> frozen);
std::string kernel_greeting(const Language& language);

// What goes with the request "environ": names and their values, null for those that are to go.
// JSON, but for Bash, which would have to be taught to read it.
std::string environ_text(const Language& language, const json::object& variables);

}  // namespace asr
