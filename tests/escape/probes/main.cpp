// escape_probes CASE [argument…]             tries the attacks of a case right here
// escape_probes --outside CASE [argument…]   the same as root of the machine, in a box that keeps
// them harmless escape_probes sweep native|x32|i386        calls every system call number; only
// inside a sandbox escape_probes list                         the names of all cases
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>

#include "probe.hpp"

namespace {

using namespace probes;

std::vector<std::span<const Case>> all_cases() {
  return {resource_cases(),  storage_cases(),    budget_cases(),  process_cases(), proc_cases(),
          namespace_cases(), descriptor_cases(), syscall_cases(), socket_cases(),  network_cases(),
          file_cases(),      terminal_cases(),   posture_cases()};
}

const Case* find(std::string_view name) {
  for (std::span<const Case> cases : all_cases())
    for (const Case& one : cases)
      if (name == one.name) return &one;
  return nullptr;
}

// The first of the places a program may write to; the working directory may be one it may not.
std::string writable_place() {
  for (const char* place : {"/workspace", "/tmp"})
    if (::access(place, W_OK) == 0) return place;
  return ".";
}

// A copy under another name is a program that was replaced: it writes down who ran it, and with
// which rights.
int spring_trap(int argc, char** argv) {
  const char* log = ::getenv("ASR_TRAP_LOG");
  int fd = ::open(log != nullptr ? log : "/workspace/asr-trap.log",
                  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  std::string status = read_all("/proc/self/status"), line;
  for (int i = 0; i < argc; ++i) line += std::string(argv[i]) + " ";
  std::size_t caps = status.find("CapEff:\t");
  line += "uid=" + std::to_string(::geteuid()) + " " +
          (caps == std::string::npos ? "" : status.substr(caps, 24)) + "\n";
  (void)!::write(fd, line.data(), line.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string self = link_of("/proc/self/exe");
  if (!std::string_view(self).substr(self.rfind('/') + 1).starts_with("escape_probes"))
    return spring_trap(argc, argv);
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) {
    std::fputs("escape_probes [--outside] CASE [argument…]\n", stderr);
    return 2;
  }
  if (args[0] == "list") {
    for (std::span<const Case> cases : all_cases())
      for (const Case& one : cases) std::puts(one.name);
    return 0;
  }
  if (args[0] == "sweep") return sweep(args.size() > 1 ? args[1] : "native");
  bool outside = args[0] == "--outside";
  if (outside) args.erase(args.begin());
  const Case* one = args.empty() ? nullptr : find(args[0]);
  if (one == nullptr) {
    std::fputs("escape_probes: there is no such case\n", stderr);
    return 2;
  }
  args.erase(args.begin());
  if (outside) return run_outside(*one, args);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);
  Probe probe(one->name, std::move(args), writable_place(), false);
  one->run(probe);
  return 0;
}
