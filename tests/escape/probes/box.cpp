// The harmless surroundings of an attack that runs outside a sandbox: as root of the machine and
// without a filter, but in a process, mount, ipc, name and network namespace of its own, and in
// cgroups that bound it where the attack is one on resources. Everything goes when the box's first
// process does.
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "probe.hpp"

namespace probes {

namespace {

int no_box(const Case& one, const std::string& why) {
  std::printf("{\"case\":%s,\"no_box\":%s}\n", json_quoted(one.name).c_str(),
              json_quoted(why).c_str());
  std::fflush(stdout);
  return 3;
}

// A cgroup of its own below the root of a hierarchy. Holds one process tree, removed when that is
// gone.
class Group {
 public:
  ~Group() {
    if (path_.empty()) return;
    for (int i = 0; i < 100 && ::rmdir(path_.c_str()) != 0 && errno == EBUSY; ++i) ::usleep(20'000);
  }
  bool make(const std::string& hierarchy) {
    path_ = hierarchy + "/agent-sandbox-escape-" + std::to_string(::getpid());
    if (::mkdir(path_.c_str(), 0755) == 0) return true;
    path_.clear();
    return false;
  }
  bool set(const std::string& file, const std::string& value) {
    return put(path_ + "/" + file, value);
  }
  bool enter() { return put(path_ + "/cgroup.procs", "0"); }

 private:
  static bool put(const std::string& path, const std::string& value) {
    int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool ok = ::write(fd, value.data(), value.size()) == static_cast<ssize_t>(value.size());
    ::close(fd);
    return ok;
  }
  std::string path_;
};

const std::string kCgroups = "/sys/fs/cgroup";

bool limit_memory(Group& group, unsigned mib) {
  std::string bytes = std::to_string(static_cast<unsigned long long>(mib) << 20);
  if (group.make(kCgroups + "/memory")) return group.set("memory.limit_in_bytes", bytes);
  if (::access((kCgroups + "/cgroup.controllers").c_str(), F_OK) == 0 && group.make(kCgroups))
    return group.set("memory.max", bytes);
  return false;
}

bool limit_pids(Group& group, unsigned pids) {
  if (!group.make(kCgroups + "/pids") &&
      !(::access((kCgroups + "/cgroup.controllers").c_str(), F_OK) == 0 &&
        group.make(kCgroups + "/unified")) &&
      !group.make(kCgroups))
    return false;
  return group.set("pids.max", std::to_string(pids));
}

void loopback_up() {
  int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  ::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  (void)::ioctl(fd, SIOCSIFFLAGS, &request);
  ::close(fd);
}

// The box's pid 1: a process worth attacking that never reaps what it did not start.
int live_as_first(const Case& one, const std::vector<std::string>& args,
                  const std::string& scratch) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0 ||
      ::mount("scratch", scratch.c_str(), "tmpfs", 0, "mode=0777") != 0)
    return no_box(one, std::string("mount: ") + ::strerror(errno));
  if (!one.box.host_network) loopback_up();
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGSEGV, SIGPIPE}) ::signal(number, SIG_IGN);
  pid_t attacker = ::fork();
  if (attacker < 0) return no_box(one, std::string("fork: ") + ::strerror(errno));
  if (attacker == 0) {
    for (int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGSEGV}) ::signal(number, SIG_DFL);
    ::signal(SIGTTOU, SIG_IGN);
    ::setsid();
    if (::chdir(scratch.c_str()) != 0) ::_exit(3);
    Probe probe(one.name, args, scratch, true);
    one.run(probe);
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(attacker, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}

}  // namespace

int run_outside(const Case& one, const std::vector<std::string>& args) {
  if (::geteuid() != 0) return no_box(one, "only root can show that an attack works outside");
  Group memory, pids;  // Removed last, when the box is empty.
  if (one.box.memory_mib != 0 && !limit_memory(memory, one.box.memory_mib))
    return no_box(one, "there is no memory cgroup to keep the attack in");
  if (one.box.pids != 0 && !limit_pids(pids, one.box.pids))
    return no_box(one, "there is no pids cgroup to keep the attack in");

  char scratch[] = "/var/tmp/agent-sandbox-escape-XXXXXX";
  if (::mkdtemp(scratch) == nullptr)
    return no_box(one, std::string("mkdtemp: ") + ::strerror(errno));
  pid_t keeper = ::fork();
  if (keeper == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((one.box.memory_mib != 0 && !memory.enter()) || (one.box.pids != 0 && !pids.enter()))
      ::_exit(no_box(one, "cannot enter the cgroup of the box"));
    int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | (one.box.host_ipc ? 0 : CLONE_NEWIPC) |
                (one.box.host_network ? 0 : CLONE_NEWNET);
    if (::unshare(flags) != 0) ::_exit(no_box(one, std::string("unshare: ") + ::strerror(errno)));
    pid_t first = ::fork();
    if (first == 0) {
      int code = live_as_first(one, args, scratch);
      std::fflush(stdout);
      ::_exit(code);
    }
    int status = 0;
    ::waitpid(first, &status, 0);
    std::fflush(stdout);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
  }
  int status = 0;
  if (keeper > 0) ::waitpid(keeper, &status, 0);
  ::rmdir(scratch);
  return keeper > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}

}  // namespace probes
