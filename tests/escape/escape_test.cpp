// E01-E40: ways out of a sandbox. Each is shown to work outside, and then tried inside as root and
// as the user.
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/id.hpp"
#include "harness.hpp"

namespace asr::escape {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::uint64_t hash_of(const std::string& path, int flags = 0) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  std::uint64_t hash = 0xcbf29ce484222325;
  alignas(4096) static std::array<unsigned char, 1 << 16> block;
  ssize_t size = 0;
  while (fd && (size = ::read(fd.get(), block.data(), block.size())) > 0)
    for (ssize_t i = 0; i < size; ++i)
      hash = (hash ^ block[static_cast<std::size_t>(i)]) * 0x100000001b3;
  return hash;
}

// Addresses of this machine that a sandbox must not reach.
Args host_addresses() {
  std::set<std::string> found = {"127.0.0.1"};
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {found.begin(), found.end()};
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    found.insert(text.data());
  }
  ::freeifaddrs(list);
  return {found.begin(), found.end()};
}

UniqueFd listen_tcp(std::uint16_t& port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(fd.get(), 64), 0);
  EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  port = ntohs(address.sin_port);
  return fd;
}

UniqueFd listen_unix(const std::string& name) {  // Abstract if it begins with a zero byte.
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, sizeof(address.sun_path) - 1);
  auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(fd.get(), 64), 0);
  return fd;
}

// One ustar header, with `size` bytes of content to follow.
std::string tar_header(const std::string& name, char type, const std::string& link = "",
                       std::size_t size = 0, unsigned mode = 0644) {
  std::string block(512, '\0');
  name.copy(&block[0], 100);
  std::snprintf(&block[100], 8, "%07o", mode);
  std::snprintf(&block[108], 8, "%07o", 0);
  std::snprintf(&block[116], 8, "%07o", 0);
  std::snprintf(&block[124], 12, "%011zo", size);
  std::snprintf(&block[136], 12, "%011o", 0);
  block[156] = type;
  link.copy(&block[157], 100);
  std::string("ustar\00000", 8).copy(&block[257], 8);
  std::snprintf(&block[329], 8, "%07o", 1);
  std::snprintf(&block[337], 8, "%07o", 3);
  std::fill(&block[148], &block[156], ' ');
  unsigned sum = 0;
  for (char c : block) sum += static_cast<unsigned char>(c);
  std::snprintf(&block[148], 8, "%06o", sum);
  return block;
}

UniqueFd pipe_with(const std::string& content) {  // Small enough for the pipe.
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return UniqueFd();
  UniqueFd in(ends[0]), out(ends[1]);
  EXPECT_EQ(::write(out.get(), content.data(), content.size()),
            static_cast<ssize_t>(content.size()));
  return in;
}

}  // namespace

class Escapes : public Escape {
 protected:
  // Most cases are only this.
  SandboxPtr plain(const std::string& name, const std::string& title, const Args& args = {}) {
    begin(name, title);
    prove(name, args);
    SandboxPtr sandbox = make();
    attack(sandbox, name, args);
    expect_alive(sandbox, title);
    return sandbox;
  }
  Args canary() const { return {secret_file_, secret_}; }
};

TEST_F(Escapes, E01_SignalsToPid1) {
  SandboxPtr sandbox = plain("E01", "signals to pid 1");
  must(sandbox->state() == SandboxState::ready, "the sandbox is not ready after signals to pid 1");
}

TEST_F(Escapes, E02_KillEverything) {
  begin("E02", "kill(-1)");
  prove("E02");
  SandboxPtr sandbox = make();
  auto nb = neighbour();
  for (const char* user : {"root", "user"}) {
    std::unique_ptr<Execution> bystander = start(sandbox, user, "HOLD-sleep");
    ASSERT_TRUE(bystander);
    read_until(*bystander, "holding");
    attack_as(user, sandbox, "E02");
    Result<ExitStatus> status = sync(bystander->wait(), 5s);
    must(status && status->signal == 9, "a killed process is not reported as killed");
    expect_alive(sandbox, std::string("kill(-1) as ") + user);
  }
  let_pass(200ms);
  expect_undisturbed(nb);
}

TEST_F(Escapes, E03_MemoryOfPid1) {
  begin("E03", "trace, read or rob pid 1 and its helpers");
  prove("E03");
  prove("E03-race", {"1"});
  SandboxPtr sandbox = make();
  attack(sandbox, "E03");
  for (const char* user : {"root", "user"}) {
    std::unique_ptr<Execution> racer = start(sandbox, user, "E03-race", {"3"});
    ASSERT_TRUE(racer);
    std::string out = read_until(*racer, "racing");
    auto end = Clock::now() + 3s;
    std::size_t execs = 0;
    while (Clock::now() < end) {  // Everything that makes pid 1 fork.
      RunResult result = run(sandbox, execs % 2 == 0 ? "user" : "root", {"/bin/true"});
      ++execs;
      (void)sync(sandbox->list("/workspace"), 5s);
      (void)sync(sandbox->read_file("/etc/passwd"), 5s);
      (void)sync(sandbox->processes(), 5s);
    }
    out += read_until(*racer, "its descriptors");
    std::string no_box;
    std::vector<Attempt> attempts = parse_attempts(out, user, no_box);
    must(!attempts.empty(), "the race did not report");
    judge(attempts);
    RecordProperty(std::string("execs_as_") + user, static_cast<int>(execs));
  }
  expect_alive(sandbox, "a race for its helpers");
}

TEST_F(Escapes, E04_Tracer) { plain("E04", "a tracer rewrites system calls"); }
TEST_F(Escapes, E05_ProcSecrets) { plain("E05", "read the machine's secrets in /proc"); }
TEST_F(Escapes, E06_Sysctls) { plain("E06", "write to /proc/sys and its kin"); }
TEST_F(Escapes, E07_Mounts) { plain("E07", "mount file systems, read /sys"); }

TEST_F(Escapes, E08_Cgroups) {
  begin("E08", "leave or reconfigure the cgroup");
  prove("E08");
  SandboxPtr sandbox = make();
  std::string path = "/proc/" + std::to_string(sandbox->host_pid()) + "/cgroup";
  std::string before = read_host_file(path);
  attack(sandbox, "E08");
  must(!before.empty() && read_host_file(path) == before, "the cgroups of pid 1 have changed");
  std::string own = run(sandbox, "root", {"/bin/cat", "/proc/self/cgroup"}).out;
  must(own.find(sandbox->id().text) == std::string::npos &&
           own.find("agent-sandbox") == std::string::npos,
       "the host's cgroup paths are visible: " + own);
}

TEST_F(Escapes, E09_Namespaces) {
  plain("E09", "new namespaces, joining others");
  SandboxSpec browser = standard();
  browser.tier = SyscallTier::browser;
  prove("E09-nested");
  attack_as("user", make(browser), "E09-nested");
}

TEST_F(Escapes, E10_MountTricks) {
  std::string before = read_host_file("/proc/self/mountinfo");
  plain("E10", "mount tricks");
  must(read_host_file("/proc/self/mountinfo") == before, "the host's mounts have changed");
}

TEST_F(Escapes, E11_Root) {
  SandboxPtr sandbox = plain("E11", "climb out of the root directory", canary());
  SandboxSpec browser = standard();
  browser.tier = SyscallTier::browser;
  attack(make(browser), "E11", canary());
  SandboxSpec strict = spec_of(Preset::strict);
  attack(make(strict), "E11", canary());
}

TEST_F(Escapes, E12_LeakedDescriptors) {
  SandboxPtr sandbox = plain("E12", "descriptors left open", canary());
  Command terminal;
  terminal.terminal = TerminalSize{};
  attack_as("user", sandbox, "E12", canary(), terminal);
  attack_as("root", sandbox, "E12", canary(), terminal);
  Command with_input;
  with_input.stdin_mode = StdinMode::pipe;
  attack_as("user", sandbox, "E12", canary(), with_input);
}

TEST_F(Escapes, E13_WorkingDirectory) {
  begin("E13", "working directories that lead out");
  prove("E13", canary());
  SandboxPtr sandbox = make();
  run(sandbox, "root",
      {"/bin/sh", "-c",
       "mkdir -p /workspace/gone && ln -s /proc/1/root /workspace/up && ln -s /proc/1/cwd "
       "/workspace/cwd; chmod 777 /workspace"});
  std::size_t accepted = 0;
  auto try_in = [&](const std::string& cwd, const std::string& user) {
    Command command;
    command.cwd = cwd;
    command.argv = {kProbe, "E13", secret_file_, secret_};
    command.user = user;
    Result<RunResult> result = sync(sandbox->run(command), 10s);
    if (!result || !result->status.ok()) return;  // Refused: as good.
    ++accepted;
    std::string no_box;
    judge(parse_attempts(result->out, user, no_box));
  };
  for (const char* user : {"root", "user"}) {
    for (int fd = 0; fd < 16; ++fd) try_in("/proc/self/fd/" + std::to_string(fd), user);
    for (const char* cwd : {"/proc/self/cwd", "/proc/1/cwd", "/proc/1/root", "/workspace/up",
                            "/workspace/cwd", "/workspace/gone/..", "..", "../../../..", "relative",
                            "/nonexistent", "/proc/self/root/../..", "/workspace/escape_probes"})
      try_in(cwd, user);
    try_in(std::string(5000, 'x'), user);
  }
  for (const char* target : {"/proc/1/root", "/proc/1/cwd"}) {
    std::unique_ptr<Execution> swapper = start(sandbox, "root", "E13-swap", {"/workspace", target});
    ASSERT_TRUE(swapper);
    read_until(*swapper, "swapping");
    for (int i = 0; i < 150; ++i) try_in("/workspace/swap", i % 2 == 0 ? "root" : "user");
    must(sync(swapper->signal(9)).has_value(), "the swapper cannot be stopped");
    (void)sync(swapper->wait(), 5s);
    (void)sync(sandbox->remove("/workspace/swap"));
    (void)sync(sandbox->remove("/workspace/other"));
  }
  try_in("/workspace", "user");
  must(accepted > 0, "no working directory was accepted, so nothing is shown");
  expect_alive(sandbox, "odd working directories");
}

TEST_F(Escapes, E14_Executable) {
  std::uint64_t before = hash_of("/proc/self/exe");
  SandboxPtr sandbox = plain("E14", "overwrite the daemon's executable");
  for (const char* interpreter : {"/proc/self/exe", "/proc/1/exe", "/proc/self/fd/3"}) {
    ASSERT_TRUE(sync(sandbox->write_file("/workspace/script",
                                         std::string("#!") + interpreter + " list\n", 0755)));
    for (const char* user : {"root", "user"}) {
      Command command;
      command.argv = {"/workspace/script"};
      command.user = user;
      command.wall_time = 5s;
      Result<std::unique_ptr<Execution>> script = sync(sandbox->start(command), 10s);
      if (!script) continue;  // Not started: as good.
      let_pass(50ms);
      judge(probe(sandbox, "user", "E14-hunt"));
      judge(probe(sandbox, "root", "E14-hunt"));
      must(sync(sandbox->kill_all()).has_value(), "a script cannot be stopped");
    }
  }
  must(hash_of("/proc/self/exe") == before, "the daemon's executable has changed");
  expect_alive(sandbox, "attacks on its executable");
}

TEST_F(Escapes, E15_Templates) {
  begin("E15", "a template with links where the set-up mounts");
  prove("E15");
  fs::path base = fs::path(secret_file_).parent_path();
  fs::path victim = base / "victim";
  fs::create_directories(victim);
  std::ofstream(victim / "file") << secret_;
  struct stat null_before {
  }, null_after{};
  ::lstat("/dev/null", &null_before);
  expect_new_environments();
  std::size_t created = 0;
  for (const char* where :
       {"proc", "dev", "tmp", "workspace", "home", "run", "usr", "etc", "root", "dev/null",
        "dev/pts", "dev/shm", "proc/sys", "home/user", "etc/passwd", "etc/hosts"}) {
    fs::path root = base / ("template-" + random_name(8));
    for (const char* part : {"bin", "etc", "proc", "dev", "tmp", "usr", "home", "workspace"})
      fs::create_directories(root / part);
    fs::copy_file(ASR_ESCAPE_PROBES, root / "bin/escape_probes");
    fs::path link = root / where;
    fs::remove_all(link);
    fs::create_directories(link.parent_path());
    bool file =
        std::string_view(where) == "dev/null" || std::string_view(where).starts_with("etc/");
    fs::create_symlink(file ? victim / "file" : victim, link);

    SandboxSpec spec = standard();
    spec.environment = {Environment::Kind::folder, root};
    Result<SandboxPtr> sandbox = sync(engine_->create(spec));
    if (!sandbox) continue;  // Refused: as good, if nothing was touched.
    ++created;
    Command command;
    command.argv = {"/bin/escape_probes", "CANARY", secret_.substr(0, 10), secret_.substr(10),
                    secret_file_};
    command.user = "0";
    Result<RunResult> result = sync((*sandbox)->run(command), 10s);
    std::string no_box;
    if (result)
      judge(parse_attempts(result->out, std::string("root, /") + where + " is a link", no_box));
    (void)sync((*sandbox)->write_file("/workspace/new", "x"), 5s);
    (void)sync((*sandbox)->write_file("/tmp/new", "x"), 5s);
    Result<std::string> through =
        sync((*sandbox)->read_file(std::string("/") + where + (file ? "" : "/file")), 5s);
    must(!through || through->find(secret_) == std::string::npos,
         std::string("a link at /") + where + " shows the host's file");
    (void)sync((*sandbox)->destroy());
  }
  RecordProperty("created", static_cast<int>(created));
  must(read_host_file(victim / "file") == secret_,
       "a file of the host was changed through a template");
  std::size_t left = 0;
  for ([[maybe_unused]] const fs::directory_entry& entry : fs::directory_iterator(victim)) ++left;
  must(left == 1, "files were made in a directory of the host through a template");
  ::lstat("/dev/null", &null_after);
  must(null_after.st_ino == null_before.st_ino && null_after.st_mode == null_before.st_mode,
       "the host's /dev/null was changed");
}

TEST_F(Escapes, E16_FakeProc) {
  plain("E16", "a false /proc");
  expect_new_environments();
  fs::path root = fs::path(secret_file_).parent_path() / "template";
  for (const char* part : {"bin", "etc", "dev", "tmp", "proc/self", "proc/1", "proc/sys/kernel"})
    fs::create_directories(root / part);
  std::ofstream(root / "proc/self/status") << "Name: false\n";
  std::ofstream(root / "proc/sys/kernel/core_pattern") << "|/false\n";
  fs::copy_file(ASR_ESCAPE_PROBES, root / "bin/escape_probes");
  SandboxSpec spec = standard();
  spec.environment = {Environment::Kind::folder, root};
  Result<SandboxPtr> sandbox = sync(engine_->create(spec));
  ASSERT_TRUE(sandbox) << sandbox.error().what;
  Command command;
  command.argv = {"/bin/escape_probes", "E16"};
  command.user = "0";
  Result<RunResult> result = sync((*sandbox)->run(command), 10s);
  ASSERT_TRUE(result) << result.error().what;
  std::string no_box;
  std::vector<Attempt> attempts =
      parse_attempts(result->out, "root, with a template that has a /proc", no_box);
  must(!attempts.empty(), "the probe said nothing in the template");
  judge(attempts);
  (void)sync((*sandbox)->destroy());
}

TEST_F(Escapes, E17_SetId) {
  begin("E17", "setuid, setgid and file capabilities");
  prove("E17");
  SandboxPtr sandbox = make();
  run(sandbox, "root", {"/bin/mkdir", "-m", "0755", "/tmp/set-id"});
  std::vector<Attempt> prepared = probe(sandbox, "root", "E17-prepare", {"/tmp/set-id"});
  must(!prepared.empty() && prepared.front().succeeded,
       "the setuid copy could not be made, so nothing is shown");
  attack_as("user", sandbox, "E17", {"/tmp/set-id"});
  ASSERT_TRUE(sync(sandbox->change_mode(kProbe, 06755)));
  std::string ids = run(sandbox, "user", {kProbe, "IDS"}).out;
  must(ids.starts_with("euid=1000 egid=1000 caps=0000000000000000"),
       "a set-id file of another user works: " + ids);
}

TEST_F(Escapes, E18_Devices) {
  SandboxPtr sandbox = plain("E18", "device nodes");
  std::string tar = tar_header("disk", '4') + tar_header("mem", '3') +
                    tar_header("up", '2', "../../../../etc") + tar_header("up/asr", '0') +
                    tar_header("../../outside", '0') + tar_header("/absolute", '0') +
                    tar_header("setuid", '0', "", 0, 04755) + std::string(1024, '\0');
  ASSERT_TRUE(sync(sandbox->make_directory("/workspace/in")));
  Result<Sandbox::ArchiveReport> report =
      sync(sandbox->archive_in("/workspace/in", pipe_with(tar)));
  must(report && report->skipped >= 2,
       "devices in an archive are not reported as skipped: " +
           (report ? std::to_string(report->skipped) : report.error().what));
  std::string made = run(sandbox, "root",
                         {"/bin/sh", "-c",
                          "find / -xdev \\( -type b -o -type c \\) -not -path '/dev/*' -not -path "
                          "'/proc/*'; ls /outside /absolute /etc/asr 2>/dev/null"})
                         .out;
  must(made.empty(), "an archive made: " + made);
}

TEST_F(Escapes, E19_Injection) {
  begin("E19", "typing into a terminal");
  prove("E19");
  SandboxPtr sandbox = make();
  Command terminal;
  terminal.terminal = TerminalSize{};
  for (const char* user : {"root", "user"}) {
    RunResult result = run(sandbox, user, {kProbe, "E19"}, terminal);
    std::string no_box;
    std::vector<Attempt> attempts = parse_attempts(result.out, user, no_box);
    must(attempts.size() >= 9, "the probe did not finish on a terminal: " + result.out);
    judge(attempts);
    must(!result.out.starts_with("Z") && result.out.find("\nZ") == std::string::npos,
         "a letter was typed into the terminal");
  }
}

TEST_F(Escapes, E20_OtherTerminals) {
  begin("E20", "terminals of others");
  prove("E20");
  SandboxPtr sandbox = make(), other = make();
  Command terminal;
  terminal.terminal = TerminalSize{};
  terminal.argv = {kProbe, "HOLD-sleep"};
  Result<std::unique_ptr<Execution>> held = sync(other->start(terminal));
  ASSERT_TRUE(held) << held.error().what;
  read_until(**held, "holding");
  attack(sandbox, "E20");
}

TEST_F(Escapes, E21_OtherAbis) { plain("E21", "32-bit and x32 system calls"); }
TEST_F(Escapes, E22_IoUring) { plain("E22", "io_uring"); }
TEST_F(Escapes, E23_DangerousCalls) { plain("E23", "system calls nobody needs"); }
TEST_F(Escapes, E24_Keys) { plain("E24", "kernel keyrings", {"asr-canary"}); }
TEST_F(Escapes, E25_ProcessModes) { plain("E25", "personality, segments, forged process records"); }
TEST_F(Escapes, E26_SocketFamilies) { plain("E26", "families of sockets"); }

TEST_F(Escapes, E27_UnixSockets) {
  begin("E27", "unix sockets of the host and of neighbours");
  std::string name = "asr-canary-" + random_name(12);
  std::string path = fs::path(secret_file_).parent_path() / "socket";
  UniqueFd abstract = listen_unix(std::string(1, '\0') + name), named = listen_unix(path);
  prove("E27", {name, path});
  SandboxPtr sandbox = make(), other = make();
  std::unique_ptr<Execution> server = start(other, "user", "SERVE-abstract", {"asr-neighbour"});
  ASSERT_TRUE(server);
  read_until(*server, "listening");
  attack(sandbox, "E27", {name, path, "asr-neighbour"});
}

TEST_F(Escapes, E28_Addresses) {
  begin("E28", "addresses of the host and beyond");
  std::uint16_t port = 0;
  UniqueFd listener = listen_tcp(port);
  Args args = {std::to_string(port)};
  for (const std::string& address : host_addresses()) args.push_back(address);
  prove("E28", args);
  for (Network network : {Network::none, Network::loopback}) {
    SandboxSpec spec = standard();
    spec.network = network;
    SandboxPtr sandbox = make(spec);
    attack(sandbox, "E28", args);
  }
}

TEST_F(Escapes, E29_ControlSocket) { plain("E29", "speak to the daemon over its own socket"); }

TEST_F(Escapes, E30_HostileGuest) {
  begin("E30", "a guest that lies");
  not_applicable(
      "nothing inside reaches the control socket (E29); what the daemon believes is fuzzed in "
      "tests/fuzz");
}

TEST_F(Escapes, E31_Overlay) {
  SandboxPtr sandbox = plain("E31", "attributes that steer the overlay");
  must(sync(sandbox->archive_in("/workspace", pipe_with(tar_header("dir/", '5', "", 0, 0755) +
                                                        std::string(1024, '\0'))))
           .has_value(),
       "an archive with a directory is refused");
}

TEST_F(Escapes, E32_PageCache) {
  std::uint64_t cached = hash_of("/usr/bin/env");
  SandboxPtr sandbox = plain("E32", "doors to the page cache");
  run(sandbox, "root",
      {"/bin/sh", "-c",
       "echo poisoned > /usr/bin/env; echo poisoned >> /usr/bin/true; truncate -s 0 /usr/bin/id; "
       "rm -f /usr/bin/who"});
  must(hash_of("/usr/bin/env") == cached, "the host's /usr/bin/env has changed");
  std::uint64_t on_disk = hash_of("/usr/bin/env", O_DIRECT);
  must(on_disk == cached || on_disk == hash_of("/nonexistent"), "disk and page cache differ");
  must(fs::file_size("/usr/bin/id") > 0 && fs::exists("/usr/bin/who"),
       "a sandbox changed the host's /usr");
  SandboxPtr fresh = make();
  expect_alive(fresh, "another sandbox wrote to its own /usr");
}

TEST_F(Escapes, E33_FilterOnEveryThread) { plain("E33", "threads without the filter"); }
TEST_F(Escapes, E34_Notifier) { plain("E34", "wave calls through with a notifier"); }

TEST_F(Escapes, E35_FileInterface) {
  begin("E35", "have the daemon open what it should not");
  prove("E35");
  SandboxPtr sandbox = make();
  judge(probe(sandbox, "user", "E35-prepare"));
  std::unique_ptr<Execution> server = start(sandbox, "user", "SERVE-abstract", {"x"});
  for (const char* path : {"/workspace/fifo",
                           "/workspace/to-mem",
                           "/workspace/to-root",
                           "/workspace/loop",
                           "/workspace/to-tty",
                           "/workspace/to-zero",
                           "/proc/1/mem",
                           "/proc/self/mem",
                           "/proc/1/environ",
                           "/proc/kmsg",
                           "/proc/sys/kernel/core_pattern",
                           "/dev/tty",
                           "/dev/zero",
                           "/dev/ptmx",
                           "/dev/random",
                           "/workspace",
                           "/",
                           "/proc/1/root/etc/shadow",
                           "/proc/self/fd/0",
                           "/proc/self/root",
                           "/workspace/\n",
                           ""}) {
    auto begin_of_call = Clock::now();
    std::string what = std::string(" of '") + path + "'";
    Result<std::string> content = sync(sandbox->read_file(path, 1 << 20), 5s);
    must(!content || content->find(secret_) == std::string::npos,
         "a read" + what + " shows the secret");
    must(content || content.error().code != Errc::timeout, "a read" + what + " hangs");
    must(!content || content->size() <= (1U << 20), "a read" + what + " is not bounded");
    Result<UniqueFd> opened = sync(sandbox->open_read(path), 5s);
    if (opened) {
      struct stat info {};
      must(::fstat(opened->get(), &info) == 0 && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)),
           "the daemon got a strange descriptor" + what);
    }
    std::string_view name = path;
    if (name.starts_with("/proc") || name.starts_with("/dev") || name.ends_with("fifo") ||
        name.find("to-") != std::string_view::npos) {
      Result<void> written = sync(sandbox->write_file(path, "x", 0644, "root"), 5s);
      must(!written, "a write" + what + " is accepted");
      must(written || written.error().code != Errc::timeout, "a write" + what + " hangs");
    }
    (void)sync(sandbox->stat(path), 5s);
    (void)sync(sandbox->list(path), 5s);
    must(Clock::now() - begin_of_call < 5s, "calls" + what + " take too long");
  }
  expect_alive(sandbox, "strange files");
}

TEST_F(Escapes, E36_Poison) {
  begin("E36", "programs and start-up files replaced for others to run");
  prove("E36");
  SandboxPtr sandbox = make();
  ASSERT_TRUE(sync(sandbox->write_file("/workspace/data", "x")));
  std::vector<Attempt> replaced =
      probe(sandbox, "root", "E36-replace",
            {"/usr/bin/sh", "/usr/bin/dash", "/usr/bin/bash", "/usr/bin/env", "/usr/bin/cat",
             "/usr/bin/ls", "/usr/bin/tar", "/usr/bin/cp", "/usr/bin/rm", "/usr/bin/mount",
             "/usr/bin/ps", "/usr/bin/true"});
  must(!replaced.empty() && replaced.front().succeeded,
       "nothing could be replaced, so nothing is shown");
  run(sandbox, "root", {kProbe, "IDS"});
  (void)sync(sandbox->list("/"));
  (void)sync(sandbox->stat("/usr/bin/sh"));
  (void)sync(sandbox->copy("/workspace/data", "/workspace/copy"));
  (void)sync(sandbox->move("/workspace/copy", "/workspace/moved"));
  (void)sync(sandbox->remove("/workspace/moved"));
  (void)sync(sandbox->processes());
  (void)sync(sandbox->usage());
  (void)sync(
      sandbox->archive_in("/workspace", pipe_with(tar_header("t", '0') + std::string(1024, '\0'))));
  if (Result<UniqueFd> out = sync(sandbox->archive_out("/workspace/data")); out) {
    std::array<char, 4096> block{};
    while (::read(out->get(), block.data(), block.size()) > 0) {
    }
  }
  (void)sync(sandbox->watch("/workspace"));
  (void)sync(sandbox->connect(1), 5s);
  (void)sync(sandbox->kill_all());
  Result<std::string> log = sync(sandbox->read_file("/workspace/asr-trap.log"));
  must(!log || log->empty(), "the engine ran a program of the sandbox: " + (log ? *log : ""));
  run(sandbox, "user", {"/usr/bin/true"});
  log = sync(sandbox->read_file("/workspace/asr-trap.log"));
  must(log && log->find("uid=1000 CapEff:\t0000000000000000") != std::string::npos,
       "the trap does not spring, or with more rights than the user's: " + (log ? *log : ""));
}

TEST_F(Escapes, E37_Environment) {
  begin("E37", "an environment that steers the loader");
  prove("E37");
  SandboxPtr sandbox = make();
  Command command;
  command.env = {{"LD_PRELOAD", "/workspace/evil.so"},
                 {"LD_LIBRARY_PATH", "/workspace"},
                 {"GCONV_PATH", "/workspace"},
                 {"IFS", "/"},
                 {"PATH", "/workspace"},
                 {"LD_AUDIT", "/workspace/evil.so"},
                 {"BASH_ENV", "/workspace/evil"},
                 {"MALLOC_PERTURB_", "1"}};
  for (const char* user : {"root", "user"}) {
    std::vector<Attempt> attempts = probe(sandbox, user, "E37", {}, command);
    judge(attempts);
    for (const Attempt& attempt : attempts)
      must(attempt.detail.find(secret_) == std::string::npos,
           "the daemon's environment is visible");
    must(std::any_of(attempts.begin(), attempts.end(),
                     [](const Attempt& a) { return a.detail == "LD_PRELOAD=/workspace/evil.so"; }),
         "the environment asked for is not there");
  }
  Args args = {secret_.substr(0, 10), secret_.substr(10), secret_file_};
  prove("CANARY", args);
  attack(sandbox, "CANARY", args);
  expect_alive(sandbox, "an odd environment");
}

TEST_F(Escapes, E38_Identities) {
  begin("E38", "users that are none");
  prove("E38");
  SandboxPtr sandbox = make();
  attack(sandbox, "E38");
  auto refused = [&](const std::string& user, const std::string& context) {
    Command command;
    command.argv = {kProbe, "IDS"};
    command.user = user;
    Result<RunResult> result = sync(sandbox->run(command), 10s);
    must(result || result.error().code != Errc::timeout,
         "running as '" + user + "' hangs " + context);
    must(!result || !result->status.ok(),
         "runs as '" + user + "' " + context + ": " + (result ? result->out : ""));
  };
  for (const char* user :
       {"65535", "65536", "-1", "4294967295", "4294967294", "4294967296", "18446744073709551616",
        "0x0", "nosuchuser", "", "root\n", "../root", "1000:0", "user:root"})
    refused(user, "");
  constexpr const char* kStrangeAccounts =
      "printf 'evil:x:65535:65535::/:/bin/sh\\nevil2:x:4294967295:0::/:/bin/sh\\n"
      "evil3:x:-1:0::/:\\n' > /etc/passwd";
  for (const char* poison :
       {"rm -f /etc/passwd; mkfifo /etc/passwd", "rm -f /etc/passwd; ln -s /dev/zero /etc/passwd",
        "rm -f /etc/passwd; ln -s /proc/1/mem /etc/passwd", "rm -f /etc/passwd; mkdir /etc/passwd",
        "rmdir /etc/passwd; yes 'x:x:1:1::/:/' | head -c 20000000 > /etc/passwd",
        kStrangeAccounts}) {
    run(sandbox, "0", {"/bin/sh", "-c", poison});
    std::string context = std::string("after ") + poison;
    for (const char* user : {"evil", "evil2", "evil3", "nosuchuser"}) refused(user, context);
    must(sync(sandbox->ping(), 5s).has_value(), "no answer " + context);
  }
  RunResult by_number = run(sandbox, "1000", {kProbe, "IDS"});
  must(by_number.out.starts_with("euid=1000 "),
       "uid 1000 cannot be used by number: " + by_number.out);
}

TEST_F(Escapes, E39_Clock) { plain("E39", "the machine's clock"); }

TEST_F(Escapes, E40_SideChannels) {
  begin("E40", "speculation and other side channels");
  not_applicable(
      "out of scope, as docs/security.md says; perf_event_open and kernel addresses are refused "
      "(E05, E23)");
}

}  // namespace asr::escape
