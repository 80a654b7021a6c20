#include "interpreter/language.hpp"

#include <algorithm>

extern "C" const char asr_python_kernel_begin[], asr_python_kernel_end[];
extern "C" const char asr_node_kernel_begin[], asr_node_kernel_end[];
extern "C" const char asr_bash_kernel_begin[], asr_bash_kernel_end[];

namespace asr {

namespace {

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

}  // namespace

const std::vector<Language>& languages() {
  static const std::string_view node = text_between(asr_node_kernel_begin, asr_node_kernel_end);
  static const std::vector<Language> all{
      {"python",
       {"python3", "py", "ipython"},
       "python3",
       {"python3", "-c", kPython},
       text_between(asr_python_kernel_begin, asr_python_kernel_end)},
      {"javascript",
       {"js", "node", "nodejs"},
       "node",
       {"node", "--expose-internals", "--no-warnings", "-e", kNode},
       node},
      {"typescript",
       {"ts"},
       "node",
       {"node", "--expose-internals", "--no-warnings", "-e", kNode, "--", "--typescript"},
       node},
      {"bash",
       {"sh", "shell"},
       "bash",
       {"bash", "--norc", "--noprofile", "-c", kBash},
       text_between(asr_bash_kernel_begin, asr_bash_kernel_end)},
  };
  return all;
}

const Language* find_language(std::string_view name) {
  for (const Language& language : languages()) {
    const auto& others = language.aliases;
    if (language.name == name || std::find(others.begin(), others.end(), name) != others.end())
      return &language;
  }
  return nullptr;
}

Command kernel_command(const Language& language) {
  Command command;
  for (std::string_view word : language.argv) command.argv.emplace_back(word);
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

}  // namespace asr
