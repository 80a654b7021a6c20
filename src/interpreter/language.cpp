#include "interpreter/language.hpp"

#include <algorithm>

extern "C" const char asr_python_kernel_begin[], asr_python_kernel_end[];
extern "C" const char asr_python_values_begin[], asr_python_values_end[];
extern "C" const char asr_python_branch_begin[], asr_python_branch_end[];
extern "C" const char asr_node_kernel_begin[], asr_node_kernel_end[];
extern "C" const char asr_bash_kernel_begin[], asr_bash_kernel_end[];

namespace asr {

namespace {

constexpr std::size_t kLongestName = 32;

// Each reads a line with a number, then so many bytes, and runs them: a kernel need not lie in a
// file that the sandbox could change.
constexpr std::string_view kPython =
    "import os\n"
    "def take(n):\n"
    " s=b''\n"
    " while len(s)<n:\n"
    "  t=os.read(0,n-len(s))\n"
    "  if not t:raise SystemExit\n"
    "  s+=t\n"
    " return s\n"
    "n=b''\n"
    "while n[-1:]!=b'\\n':n+=take(1)\n"
    "exec(compile(take(int(n)),'<kernel>','exec'),{'__name__':'kernel'})\n";
constexpr std::string_view kNode =
    "(()=>{const f=require('node:fs');"
    "const t=(n)=>{const b=Buffer.alloc(n);let a=0;"
    "while(a<n){const k=f.readSync(0,b,a,n-a);if(!k)process.exit(0);a+=k}return b};"
    "let l='';for(;;){const c=t(1).toString();if(c==='\\n')break;l+=c}"
    "new "
    "Function('require','process','Buffer',t(Number(l)).toString())(require,process,Buffer)})()";
constexpr std::string_view kBash =
    "IFS= read -r __n && LC_ALL=C IFS= read -r -N \"$__n\" __k && eval \"$__k\"";

std::string_view text_between(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

LanguagePtr make(Language language) {
  return std::make_shared<const Language>(std::move(language));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_small_letter(char c) { return c >= 'a' && c <= 'z'; }

bool may_be_a_name(std::string_view name) {
  if (name.empty() || name.size() > kLongestName || !is_small_letter(name[0])) return false;
  auto fits = [](char c) {
    return is_small_letter(c) || is_digit(c) || c == '_' || c == '+' || c == '-';
  };
  if (!std::all_of(name.begin(), name.end(), fits)) return false;
  // Contexts that somebody made are called so.
  return name[0] != 'x' || name.size() == 1 || !std::all_of(name.begin() + 1, name.end(), is_digit);
}

}  // namespace

std::string python_definitions() {
  std::string text(asr_python_kernel_begin, asr_python_kernel_end);
  text += "\n";
  text.append(asr_python_values_begin, asr_python_values_end);
  text += "\n";
  text.append(asr_python_branch_begin, asr_python_branch_end);
  return text + "\n";
}

const std::vector<LanguagePtr>& languages() {
  static const std::string python = python_definitions() + "prepare().serve()\n";
  static const std::string_view node = text_between(asr_node_kernel_begin, asr_node_kernel_end);
  static const std::vector<LanguagePtr> all{
      make({"python",
            {"python3", "py", "ipython"},
            "python3",
            {"python3", "-c", std::string(kPython)},
            python}),
      make({"javascript",
            {"js", "node", "nodejs"},
            "node",
            {"node", "--expose-internals", "--no-warnings", "-e", std::string(kNode)},
            node}),
      make({"typescript",
            {"ts"},
            "node",
            {"node", "--expose-internals", "--no-warnings", "-e", std::string(kNode), "--",
             "--typescript"},
            node}),
      make({"bash",
            {"sh", "shell"},
            "bash",
            {"bash", "--norc", "--noprofile", "-c", std::string(kBash)},
            text_between(asr_bash_kernel_begin, asr_bash_kernel_end)}),
  };
  return all;
}

LanguagePtr find_language(std::string_view name) {
  for (const LanguagePtr& language : languages()) {
    const auto& others = language->aliases;
    if (language->name == name || std::find(others.begin(), others.end(), name) != others.end())
      return language;
  }
  return nullptr;
}

LanguagePtr possible_language(std::string_view name) {
  if (LanguagePtr ours = find_language(name)) return ours;
  if (!may_be_a_name(name)) return nullptr;
  std::string program = std::string(kKernelFolder) + std::string(name);
  return make({std::string(name), {}, program, {program}, {}});
}

Command kernel_command(const Language& language, std::shared_ptr<const FrozenProgram> frozen) {
  Command command;
  if (frozen)
    command.argv = {language.program, "--kernel"};
  else
    command.argv = language.argv;
  command.frozen = std::move(frozen);
  command.stdin_mode = StdinMode::both_ways;
  // Cells have limits; what runs them has none.
  command.wall_time = command.cpu_time = std::chrono::milliseconds(0);
  command.output_bytes = 0;
  command.overflow = OutputOverflow::truncate;
  return command;
}

std::string kernel_greeting(const Language& language) {
  return std::to_string(language.kernel.size()) + "\n" + std::string(language.kernel);
}

std::string environ_text(const Language& language, const json::object& variables) {
  if (language.name != "bash") return to_text(variables);
  std::string text;
  for (const auto& [name, value] : variables) {
    auto is_plain = [](char c) {
      return is_small_letter(c) || is_digit(c) || c == '_' || (c >= 'A' && c <= 'Z');
    };
    if (name.empty() || is_digit(name[0]) || !std::all_of(name.begin(), name.end(), is_plain))
      continue;  // No shell has such a variable.
    if (!value.is_string()) {
      text += "unset " + std::string(name) + "\n";
      continue;
    }
    text += "export " + std::string(name) + "='";
    for (char c : value.get_string()) text += c == '\'' ? "'\\''" : std::string(1, c);
    text += "'\n";
  }
  return text;
}

}  // namespace asr
