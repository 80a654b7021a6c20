// The languages that sessions speak, and how an interpreter of each is started.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/command.hpp"

namespace asr {

struct Language {
  std::string_view name;
  std::vector<std::string_view> aliases;
  std::string_view program;  // what runs it, and must be there
  // What reads the kernel from its input and becomes it.
  std::vector<std::string_view> argv;
  std::string_view kernel;
};

// By its name or another one it is known by; nothing for a language that nobody has taught us.
const Language* find_language(std::string_view name);
const std::vector<Language>& languages();

// What to start, with stdin going both ways; and what to say to it first.
Command kernel_command(const Language& language);
std::string kernel_greeting(const Language& language);

}  // namespace asr
