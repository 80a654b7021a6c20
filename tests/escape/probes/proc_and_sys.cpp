// E05, E06, E08, E16 and the canaries: what /proc, /sys and the cgroup trees give away, and what
// can be written there. Files are opened for writing and closed again: nothing is ever written to
// the machine's own.
#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdio>

#include "probe.hpp"

extern "C" char** environ;

namespace probes {

namespace {

constexpr const char* kSecrets[] = {
    "kallsyms",    "keys",          "key-users",     "timer_list", "cmdline",       "config.gz",
    "iomem",       "ioports",       "interrupts",    "softirqs",   "diskstats",     "partitions",
    "zoneinfo",    "vmstat",        "vmallocinfo",   "buddyinfo",  "pagetypeinfo",  "slabinfo",
    "sched_debug", "kmsg",          "kcore",         "kpagecount", "kpageflags",    "kpagecgroup",
    "acpi",        "scsi",          "bus",           "fs",         "irq",           "driver",
    "pressure",    "consoles",      "tty",           "crypto",     "devices",       "misc",
    "mtrr",        "sysrq-trigger", "latency_stats", "dma",        "execdomains",   "fb",
    "locks",       "modules",       "swaps",         "mdstat",     "dynamic_debug", "schedstat",
    "cgroups",
};

bool gives_anything(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  if (S_ISDIR(info.st_mode)) return !entries(path).empty();
  int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return false;
  char byte;
  ssize_t size = ::read(fd, &byte, 1);
  ::close(fd);
  return size > 0;
}

// These may be empty on a healthy machine, or are the same for everybody: only noted.
bool only_noted(std::string_view name) {
  for (std::string_view noted : {"locks", "modules", "swaps", "mdstat", "fb", "dma", "execdomains",
                                 "dynamic_debug", "crypto", "devices", "misc"})
    if (name == noted) return true;
  return false;
}

void e05_secrets(Probe& probe) {
  for (const char* name : kSecrets) {
    std::string path = std::string("/proc/") + name;
    auto look = [&] {
      errno = 0;
      return when(gives_anything(path));
    };
    if (only_noted(name)) {
      probe.note("read " + path, look);
    } else if (probe.outside() && !gives_anything(path)) {
      probe.attempt("read " + path, Unprovable{"this kernel has no " + path + ", or nothing in it"},
                    look);
    } else {
      probe.attempt("read " + path, look);
    }
  }
}

// Everything but processes at the top of /proc that can be read or listed, one per line.
void list_readable(Probe& probe) {
  for (const std::string& name : entries("/proc")) {
    if (name.find_first_not_of("0123456789") == std::string::npos) continue;
    bool readable = gives_anything("/proc/" + name);
    if (readable) probe.report_note("/proc/" + name, when(true));
  }
}

long g_writable = 0;
std::string g_first;

int try_writing(const char* path, const struct stat* info, int type, FTW*) {
  if (type != FTW_F || !S_ISREG(info->st_mode)) return 0;
  int fd = ::open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return 0;
  ::close(fd);
  if (g_writable++ < 5) g_first += std::string(path) + " ";
  return 0;
}

void e06_sysctls(Probe& probe) {
  probe.set_patience(60);
  probe.attempt("open any file below /proc/sys for writing", [] {
    ::nftw("/proc/sys", try_writing, 16, FTW_PHYS);
    return when(g_writable > 0, std::to_string(g_writable) + ": " + g_first);
  });
  auto open_to_write = [&](const std::string& path, bool always_there) {
    bool lacking = probe.outside() && ::access(path.c_str(), F_OK) != 0 && !always_there;
    probe.attempt(
        "open " + path + " for writing",
        Unprovable{lacking                               ? "this machine has no " + path
                   : path.starts_with("/proc/sys/user/") ? "needs CAP_SYS_RESOURCE outside"
                                                         : ""},
        [&] { return from(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)); });
  };
  for (const char* name :
       {"kernel/core_pattern", "kernel/modprobe", "kernel/hotplug", "kernel/pid_max",
        "kernel/ns_last_pid", "user/max_user_namespaces", "user/max_inotify_instances",
        "vm/overcommit_memory", "kernel/domainname", "kernel/hostname", "net/ipv4/ip_forward",
        "kernel/shmmax", "fs/binfmt_misc/register"})
    open_to_write(std::string("/proc/sys/") + name, false);
  open_to_write("/proc/sysrq-trigger", false);
  for (const char* name : {"oom_score_adj", "loginuid", "uid_map", "ns_last_pid"})
    open_to_write(std::string("/proc/1/") + name, false);
  probe.attempt("make itself the last choice of the out-of-memory killer",
                Unprovable{"needs CAP_SYS_RESOURCE outside"}, [] {
                  int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
                  if (fd < 0) return from(-1, "open");
                  return from(::write(fd, "-1000", 5));
                });
}

void e08_cgroups(Probe& probe) {
  std::vector<std::string> roots = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
  for (const std::string& name : entries("/sys/fs/cgroup"))
    roots.push_back("/sys/fs/cgroup/" + name);
  auto any_opens = [&](const std::string& file) {
    probe.attempt("open " + file + " of a cgroup hierarchy for writing",
                  Unprovable{file == "cgroup.procs" ? "" : "only cgroup v1 has it"}, [&] {
                    Outcome outcome;
                    for (const std::string& root : roots) {
                      int fd = ::open((root + "/" + file).c_str(), O_WRONLY | O_CLOEXEC);
                      if (fd >= 0) return when(true, root);
                      outcome.err = errno;
                    }
                    return outcome;
                  });
  };
  for (const char* file :
       {"cgroup.procs", "tasks", "release_agent", "devices.allow", "notify_on_release"})
    any_opens(file);
  probe.attempt("a cgroup file system in the mount table", [] {
    return when(read_all("/proc/self/mountinfo").find(" - cgroup") != std::string::npos);
  });
  probe.note("/proc/self/cgroup", [] { return when(true, read_all("/proc/self/cgroup")); });
}

void e16_fake_proc(Probe& probe) {
  probe.attempt("cover /proc with a file system of its own", [&] {
    if (probe.outside()) (void)::unshare(CLONE_NEWNS);
    return from(::mount("fake", "/proc", "tmpfs", 0, nullptr));
  });
  probe.attempt("remove or rename an entry of /proc", Unprovable{"procfs never allows it"}, [] {
    return when(::rename("/proc/self", "/proc/other") == 0 || ::unlink("/proc/version") == 0);
  });
  probe.needed("/proc is procfs", [] {
    struct statfs info {};
    return when(::statfs("/proc", &info) == 0 && info.f_type == PROC_SUPER_MAGIC);
  });
}

// Arguments: the two halves of a secret, so that it is not in this program's own arguments; a path
// that holds it.
void canaries(Probe& probe) {
  std::string secret = probe.arg(0) + probe.arg(1);
  std::string path = probe.arg(2);
  auto holds = [&](const std::string& text) {
    return when(text.find(secret) != std::string::npos);
  };
  probe.attempt("find the secret in an environment", [&] {
    std::string all;
    for (char** entry = environ; *entry != nullptr; ++entry) all += *entry;
    for (int pid : process_ids()) all += read_all("/proc/" + std::to_string(pid) + "/environ");
    return holds(all);
  });
  probe.attempt("find the secret in a file of the host", [&] { return holds(read_all(path)); });
  probe.attempt("find the secret below another process's root", [&] {
    std::string all;
    for (int pid : process_ids()) {
      all += read_all("/proc/" + std::to_string(pid) + "/root" + path);
      all += read_all("/proc/" + std::to_string(pid) + "/cwd/../../../../../../.." + path);
    }
    return holds(all);
  });
  probe.attempt("find a process of the host by its arguments",
                Unprovable{"the box has no process of the host"}, [&] {
                  std::string all;
                  for (int pid : process_ids())
                    all += read_all("/proc/" + std::to_string(pid) + "/cmdline");
                  return holds(all);
                });
  probe.attempt("find a path of the host in the mount table",
                Unprovable{"no mount has the secret in its name"},
                [&] { return holds(read_all("/proc/self/mountinfo")); });
}

}  // namespace

std::span<const Case> proc_cases() {
  static constexpr Case cases[] = {
      {"E05", e05_secrets, {}}, {"PROC-readable", list_readable, {}}, {"E06", e06_sysctls, {}},
      {"E08", e08_cgroups, {}}, {"E16", e16_fake_proc, {}},           {"CANARY", canaries, {}},
  };
  return cases;
}

}  // namespace probes
