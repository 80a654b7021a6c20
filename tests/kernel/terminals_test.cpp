// Programs on a terminal.
#include <signal.h>

#include <filesystem>
#include <sstream>

#include "kernel_test.hpp"

namespace asr::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Terminals : public KernelTest {
 protected:
  static Command on_terminal(Command command, TerminalSize size = {}) {
    command.terminal = size;
    return command;
  }
};

TEST_F(Terminals, AllStreamsAreATerminal) {
  auto box = sandbox_with_tool();
  auto execution = start(*box, on_terminal(tool({"terminal"}), {.rows = 31, .columns = 117}));
  std::string seen = read_until(*execution, "size");
  EXPECT_THAT(seen, HasSubstr("isatty 1 1 1\r\n"));
  must(execution->write_stdin("q\n"));
  read_to_end(*execution);
  EXPECT_TRUE(must(execution->wait()).ok());
}

TEST_F(Terminals, HaveTheirSizeAndChangeIt) {
  auto box = sandbox_with_tool();
  auto execution = start(*box, on_terminal(tool({"terminal"}), {.rows = 31, .columns = 117}));
  EXPECT_THAT(read_until(*execution, "size 31 117"), HasSubstr("size 31 117"));
  must(execution->resize({.rows = 50, .columns = 200}));
  EXPECT_THAT(read_until(*execution, "size 50 200"), HasSubstr("size 50 200"));
  must(execution->signal(SIGKILL));
}

TEST_F(Terminals, ControlCInterrupts) {
  auto box = sandbox_with_tool();
  auto execution = start(*box, on_terminal(tool({"terminal"})));
  read_until(*execution, "size");
  must(execution->write_stdin("\x03"));
  EXPECT_THAT(read_until(*execution, "interrupted"), HasSubstr("interrupted"));
  must(execution->signal(SIGKILL));

  auto shell_execution = start(*box, on_terminal(shell("echo go; exec sleep 100")));
  read_until(*shell_execution, "go");
  must(shell_execution->write_stdin("\x03"));
  EXPECT_EQ(must(shell_execution->wait()).signal, SIGINT);
}

TEST_F(Terminals, ControlDEndsTheInput) {
  auto box = sandbox();
  auto execution = start(*box, on_terminal(shell("stty -echo; echo go; cat; echo over")));
  read_until(*execution, "go");
  must(execution->write_stdin("line\n\x04"));
  EXPECT_THAT(read_to_end(*execution), HasSubstr("line\r\nover\r\n"));
  EXPECT_TRUE(must(execution->wait()).ok());
}

// Nothing is added, lost or translated once the program has switched translation off.
TEST_F(Terminals, OutputIsVerbatim) {
  auto box = sandbox();
  std::string data;
  for (int i = 0; i < 3000; ++i)
    for (int c = 0; c < 256; ++c) data += static_cast<char>(c);
  must(box->write_file("/workspace/data", data));
  auto execution = start(*box, on_terminal(shell("stty raw; cat data; echo END")));
  std::string seen = read_to_end(*execution);
  EXPECT_EQ(seen.size(), data.size() + 4);
  EXPECT_TRUE(seen == data + "END\n");
}

TEST_F(Terminals, LastWordsOfAProgramArrive) {
  auto box = sandbox();
  for (int i = 0; i < 20; ++i) {
    auto execution = start(*box, on_terminal(shell("printf %0100000d 7; echo last words; exit 5")));
    std::string seen = read_to_end(*execution);
    EXPECT_THAT(seen, testing::EndsWith("last words\r\n"));
    EXPECT_EQ(seen.size(), 100'000 + 12U);
    EXPECT_EQ(must(execution->wait()).exit_code, 5);
  }
}

TEST_F(Terminals, InteractiveShellHasJobControl) {
  auto box = sandbox();
  Command command;
  command.argv = {"/bin/sh", "-i"};
  command.env["PS1"] = "$ ";
  auto execution = start(*box, on_terminal(command));
  std::string seen = read_until(*execution, "$ ");
  EXPECT_THAT(seen, testing::Not(HasSubstr("job control")));
  must(execution->write_stdin("tty; echo $TERM\n"));
  seen = read_until(*execution, "xterm-256color\r\n");
  EXPECT_THAT(seen, HasSubstr("/dev/pts/0"));
  must(execution->write_stdin("exit 9\n"));
  read_to_end(*execution);
  EXPECT_EQ(must(execution->wait()).exit_code, 9);
}

TEST_F(Terminals, ResizeWithoutOneIsRefused) {
  auto box = sandbox();
  auto execution = start(*box, shell("sleep 100"));
  EXPECT_TRUE(failed_with(wait(execution->resize({.rows = 1, .columns = 1})), Errc::invalid));
  must(execution->signal(SIGKILL));
}

// Whoever got hold of one would otherwise have everything that was written, and the layers below.
TEST_F(Terminals, RelayHasNoFolders) {
  auto box = sandbox();
  auto execution = start(*box, on_terminal(shell("echo hi; sleep 100")));
  read_until(*execution, "hi");
  std::string init = std::to_string(box->host_pid());
  std::istringstream children(read_host_file("/proc/" + init + "/task/" + init + "/children"));
  int relays = 0;
  for (std::string pid; children >> pid;) {
    if (read_host_file("/proc/" + pid + "/comm") != "sandbox-init\n") continue;
    ++relays;
    for (const auto& entry : fs::directory_iterator("/proc/" + pid + "/fd"))
      EXPECT_FALSE(fs::is_directory(entry)) << entry.path() << fs::read_symlink(entry);
  }
  EXPECT_EQ(relays, 1);
}

// Each is worth a process of the guest's: they must not add up after the programs have ended.
TEST_F(Terminals, LeaveNoRelayBehind) {
  auto box = sandbox();
  auto usage = [&] { return must(box->usage()).pids; };
  std::uint32_t before = usage();
  for (int i = 0; i < 40; ++i) {
    auto execution = start(*box, on_terminal(shell("echo hi")));
    read_to_end(*execution);
  }
  EXPECT_TRUE(eventually([&] { return usage() <= before; })) << usage() << " of " << before;
}

// Bigger than every buffer on the way, typed while nothing is read.
TEST_F(Terminals, FloodBothWaysDoesNotLock) {
  auto box = sandbox();
  auto execution = start(*box, on_terminal(shell("stty raw -echo; echo go; cat")));
  read_until(*execution, "go\n");
  std::string data = noise(1 << 20, 5);
  auto typing = begin(execution->write_stdin(data));
  std::string seen;
  while (seen.size() < data.size()) {
    auto reading = begin(execution->read());
    if (reading.wait_for(20s) != std::future_status::ready) {
      ADD_FAILURE() << "stuck after " << seen.size() << " bytes";
      ::kill(box->host_pid(), SIGKILL);
    }
    auto chunk = reading.get();
    if (!chunk || !*chunk) break;
    seen += (*chunk)->data;
  }
  EXPECT_TRUE(succeeded(typing.get()));
  EXPECT_TRUE(seen == data) << seen.size() << " of " << data.size();
  (void)wait(execution->signal(SIGKILL));
}

}  // namespace
}  // namespace asr::test
