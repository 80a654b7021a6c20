// agent-sandbox exec and shell: one program in a sandbox of its own or in a session of a server,
// used like any other command.
#include "cli/exec.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cli/attend.hpp"
#include "cli/commands.hpp"
#include "cli/effects_text.hpp"
#include "cli/folder_view.hpp"
#include "cli/report.hpp"
#include "cli/run.hpp"
#include "cli/terminal.hpp"
#include "engine/engine.hpp"
#include "session/effects_json.hpp"

namespace asr {

namespace {

asio::awaitable<Result<ExitStatus>> run_program(std::shared_ptr<Run> run,
                                                std::shared_ptr<Sandbox> sandbox, Command command) {
  auto starting = sandbox->start(std::move(command));
  auto execution = CO_TRY(co_await std::move(starting));
  auto attending = attend(run, std::move(execution));
  co_return co_await std::move(attending);
}

using Raw = std::shared_ptr<std::optional<RawTerminal>>;

// `view`: of the folder it works on, if there is one.
asio::awaitable<Result<ExitStatus>> use_sandbox(std::shared_ptr<Run> run, Raw raw, Engine* engine,
                                                SandboxSpec spec, Command command,
                                                std::shared_ptr<FolderView> view) {
  auto creating = engine->create(std::move(spec));
  auto sandbox = CO_TRY(co_await std::move(creating));
  auto running = run_program(run, sandbox, std::move(command));
  auto status = co_await std::move(running);
  raw->reset();  // From here on the keys are for us.
  json::object more;
  if (status && view) {
    auto settling = view->settle(run, sandbox);
    CO_TRY(co_await std::move(settling));
    more["changes"] = view->told();
  }
  if (status && status->effects) more["effects"] = json_of(*status->effects, std::nullopt);
  if (status && run->streams.output == Streams::Output::collected) {
    run->collected.status = *status;
    Usage usage;
    auto measuring = sandbox->usage();
    if (auto measured = co_await std::move(measuring)) usage = *measured;
    std::printf("%s\n", json_result(run->collected, *sandbox, usage, more).c_str());
  }
  auto ending = sandbox->destroy();
  (void)co_await std::move(ending);
  co_return status;
}

Result<Command> command_for(const ExecOptions& options, const std::vector<std::string>& argv) {
  if (argv.empty())
    return fail(Errc::invalid, "no command to run", "give one: agent-sandbox exec ls -l /");
  Command command;
  command.argv = argv;
  command.effects = options.effects;
  command.stdin_mode = options.no_stdin ? StdinMode::closed : StdinMode::pipe;
  TRY(options.sandbox.fill(command));
  if (!options.tty) return command;
  command.terminal = terminal_size();
  const char* kind = std::getenv("TERM");
  if (kind != nullptr && *kind != '\0') command.env.try_emplace("TERM", kind);
  return command;
}

Result<std::shared_ptr<FolderView>> view_for(const ExecOptions& options) {
  if (options.folder.folder.empty()) {
    if (options.folder.keep.empty()) return nullptr;
    return fail(Errc::invalid, "--keep is for changes to a folder", "name it with --on");
  }
  auto words = options.json    ? FolderView::Words::json
               : options.quiet ? FolderView::Words::none
                               : FolderView::Words::spoken;
  return FolderView::open(options.folder, words);
}

Result<int> exec_in_sandbox(const ExecOptions& options, Command command) {
  SandboxSpec spec = TRY(options.sandbox.spec());
  std::shared_ptr<FolderView> view = TRY(view_for(options));
  if (view) view->put_into(spec);
  std::string program = command.argv[0];
  asio::io_context context;
  Streams streams{options.json ? Streams::Output::collected : Streams::Output::passed, options.tty,
                  options.no_stdin};
  auto run = std::make_shared<Run>(context.get_executor(), streams);
  EngineOptions engine_options;
  engine_options.zygotes = 1;
  if (options.sandbox.no_cgroups) engine_options.cgroups = EngineOptions::Cgroups::off;
  // Who may run this as root may have it.
  if (spec.network == Network::full) engine_options.full_network = FullNetworkOptions{};
  if (!options.quiet)
    engine_options.log = [](std::string_view line) {
      std::fprintf(stderr, "agent-sandbox: %.*s\n", static_cast<int>(line.size()), line.data());
    };
  auto engine = TRY(Engine::start(context.get_executor(), engine_options));

  auto raw = std::make_shared<std::optional<RawTerminal>>();
  if (options.tty && ::isatty(STDIN_FILENO) != 0) raw->emplace();
  auto using_it = use_sandbox(run, raw, engine.get(), std::move(spec), std::move(command), view);
  auto status = run_to_end(context, with_aside(std::move(using_it), pass_signals(run)));
  raw->reset();
  if (auto stopped = run_to_end(context, engine->stop()); !stopped && !options.quiet)
    complain(stopped.error());
  if (!status && run->interrupted_by != 0) return 128 + run->interrupted_by;
  if (!status) return fail(std::move(status).error());
  std::string reason = why(*status);
  if (!reason.empty() && !options.quiet)
    std::fprintf(stderr, "agent-sandbox: %s: %s\n", program.c_str(), reason.c_str());
  if (status->effects && !options.json)
    std::fputs(effects_text(json_of(*status->effects, std::nullopt)).c_str(), stderr);
  return status->reason == EndReason::sandbox_gone ? kPlatformError : status->exit_code;
}

// `--session ""` is a variable that somebody forgot to set, not a wish for a new sandbox.
Result<void> check_session(const ExecOptions& options, const CLI::App& command) {
  if (command.count("--session") == 0) return {};
  if (options.session.empty())
    return fail(Errc::invalid, "--session names no session", "agent-sandbox session list has them");
  return SandboxOptions::check_for_session(command);
}

Result<int> exec_or_fail(const ExecOptions& options, const CLI::App& parsed,
                         const std::vector<std::string>& argv) {
  TRY(check_session(options, parsed));
  Command command = TRY(command_for(options, argv));
  ::signal(SIGPIPE, SIG_IGN);  // A write that fails tells it, too.
  return options.session.empty() ? exec_in_sandbox(options, std::move(command))
                                 : exec_in_session(options, std::move(command));
}

int exec(const ExecOptions& options, const CLI::App& parsed, const std::vector<std::string>& argv) {
  auto code = exec_or_fail(options, parsed, argv);
  if (code) return *code;
  return options.json ? print_json_error(code.error()) : complain(code.error());
}

void add_session_option(CLI::App& command, ExecOptions& options) {
  command
      .add_option("--session", options.session, "in this session of a server, not in a new sandbox")
      ->type_name("ID")
      ->group("Session")
      ->take_last();
}

}  // namespace

void add_exec_command(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<ExecOptions>();
  CLI::App* command =
      app.add_subcommand("exec", "Run a command in a new sandbox, or in a session of a server");
  add_session_option(*command, *options);
  options->folder.declare(*command);
  options->sandbox.declare(*command);
  const char* group = "Streams";
  command->add_flag("--json", options->json, "print the whole result as JSON when it has ended")
      ->group(group);
  command
      ->add_flag("--effects", options->effects,
                 "tell at its end what it did: files, processes, connections, refused calls")
      ->group(group);
  command->add_flag("-T,--tty", options->tty, "give it a terminal")->group(group);
  command->add_flag("-n,--no-stdin", options->no_stdin, "leave the caller's stdin alone")
      ->group(group);
  command->add_flag("-q,--quiet", options->quiet, "say nothing beside the command's own output")
      ->group(group);
  // Only described here: main() keeps the command's words from the parser.
  command->add_option("command", call.command)
      ->option_text("[--] COMMAND [ARGUMENT...]")
      ->type_name("COMMAND");
  command->footer(
      "Everything from the first word that is not an option belongs to the command. Signals go to "
      "it, and its\n"
      "stdin, stdout and stderr are the caller's. The new sandbox is destroyed afterwards; a "
      "session "
      "stays.\n\n"
      "Exit status: the command's own; 128+n if signal n ended it, a limit included; 126 or 127 if "
      "it could\n"
      "not be run; 125 for wrong options; 124 if the sandbox itself failed.\n\n"
      "  agent-sandbox exec python3 -c 'print(6 * 7)'\n"
      "  agent-sandbox exec -p strict --timeout 2s --json -- sh -c 'cat; ls -l' < input\n"
      "  agent-sandbox exec --effects -- ./unknown-program\n"
      "  agent-sandbox exec -T -m 1G -e EDITOR -- bash\n"
      "  agent-sandbox exec --session \"$id\" -- make test\n"
      "  agent-sandbox exec --on ./project -- make format");
  command->callback(
      [options, command, &call] { call.status = exec(*options, *command, call.command); });
}

void add_shell_command(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<ExecOptions>();
  CLI::App* command =
      app.add_subcommand("shell", "Open a shell in a new sandbox, or in a session of a server");
  add_session_option(*command, *options);
  options->folder.declare(*command);
  options->sandbox.declare(*command);
  command->add_flag("-q,--quiet", options->quiet, "say nothing beside the shell's own output")
      ->group("Streams");
  command->footer(
      "bash where the environment has it, sh otherwise; it reads commands from stdin where that is "
      "no terminal.\n"
      "Exit status: as for exec.\n\n"
      "  agent-sandbox shell -u root\n"
      "  agent-sandbox shell --session \"$id\"\n"
      "  agent-sandbox shell -E tar:rootfs.tar.zst < script.sh");
  command->callback([options, command, &call] {
    options->tty = ::isatty(STDIN_FILENO) != 0;
    std::vector<std::string> argv{"/bin/sh", "-c",
                                  "command -v bash >/dev/null && exec bash || exec sh"};
    call.status = exec(*options, *command, argv);
  });
}

}  // namespace asr
