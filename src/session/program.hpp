// A program that somebody wants judged: what it is written in, how it is built, how it is run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/command.hpp"
#include "policy/spec.hpp"
#include "session/request.hpp"

namespace asr {

struct ProgramLanguage {
  std::string_view name;
  std::string_view source;                  // the file that holds the code
  std::vector<std::string_view> compiler;   // and its words; empty: nothing is built
  std::vector<std::string_view> libraries;  // after the source
  std::vector<std::string_view> run;
  std::string_view needs;  // the program that must be installed
};

// Nothing for a language that programs cannot be written in here.
const ProgramLanguage* find_program_language(std::string_view name);

struct Program {
  const ProgramLanguage* language = nullptr;
  std::string code;
  std::vector<InitialFile> files;

  bool is_built() const noexcept { return !language->compiler.empty(); }
  std::size_t bytes() const noexcept;
};

// Where files of a program lie, and what a build makes there.
inline constexpr std::string_view kProgramFolder = "/workspace";
std::string place_of_code(const ProgramLanguage& language);
std::string place_of_executable();

// What runs a program whose code, or executable, is in its place. The one place that decides it.
Command program_command(const ProgramLanguage& language, const Limits& limits);
Command build_command(const ProgramLanguage& language);

// What a build depends on: equal names give equal executables.
std::string build_name(const Program& program);

// A computer for one run, without a network.
SandboxSpec judging_spec(const Limits& limits);
Limits judged_limits();   // where an item does not say
Limits build_limits();    // of a compiler
Limits checker_limits();  // of a program that judges another's output

}  // namespace asr
