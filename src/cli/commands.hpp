// One function per command: declares its options, and what runs when it is called.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace asr {

// Exit codes beside those of the program that was run, as env(1) and docker(1) use them.
inline constexpr int kUsageError = 125;     // wrong options, bad limits
inline constexpr int kPlatformError = 124;  // the sandbox could not be made, or ended by itself

// What one call of the program was given beside options, and what it will exit with.
struct Invocation {
  std::vector<std::string> command;  // of exec: never seen by the option parser
  int status = 0;
};

void add_exec_command(CLI::App& app, Invocation& call);
void add_shell_command(CLI::App& app, Invocation& call);
void add_tour_command(CLI::App& app, Invocation& call);
void add_doctor_command(CLI::App& app, Invocation& call);
void add_completion_command(CLI::App& app, Invocation& call);
void add_serve_command(CLI::App& app, Invocation& call);
void add_config_command(CLI::App& app, Invocation& call);
void add_session_commands(CLI::App& app, Invocation& invocation);
void add_history_command(CLI::App& group, Invocation& invocation);
void add_branch_commands(CLI::App& group, Invocation& invocation);
void add_change_commands(CLI::App& group, Invocation& invocation);
void add_snapshot_commands(CLI::App& app, Invocation& invocation);
void add_replay_command(CLI::App& app, Invocation& invocation);
void add_volume_commands(CLI::App& app, Invocation& invocation);
void add_providers_command(CLI::App& app, Invocation& invocation);
void add_preview_command(CLI::App& app, Invocation& invocation);
void add_key_commands(CLI::App& app, Invocation& invocation);
void add_e2b_commands(CLI::App& app, Invocation& invocation);
void add_events_command(CLI::App& app, Invocation& invocation);
void add_logs_command(CLI::App& app, Invocation& invocation);
void add_audit_commands(CLI::App& app, Invocation& invocation);
void add_run_command(CLI::App& app, Invocation& invocation);
void add_copy_command(CLI::App& app, Invocation& invocation);
void add_prompt_commands(CLI::App& app, Invocation& invocation);
void add_judge_command(CLI::App& app, Invocation& invocation);

}  // namespace asr
