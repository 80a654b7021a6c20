// One function per command: declares its options, and what runs when it is called.
#pragma once

#include <CLI/App.hpp>

namespace asr {

// Exit codes beside those of the program that was run, as env(1) and docker(1) use them.
inline constexpr int kUsageError = 125;     // wrong options, bad limits
inline constexpr int kPlatformError = 124;  // the sandbox could not be made, or ended by itself

void add_exec_command(CLI::App& app, int& status);
void add_shell_command(CLI::App& app, int& status);
void add_tour_command(CLI::App& app, int& status);
void add_doctor_command(CLI::App& app, int& status);
void add_completion_command(CLI::App& app, int& status);

}  // namespace asr
