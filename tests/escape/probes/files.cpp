// E15, E17, E18, E31, E35, E36: files that try to be more than files.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdio>

#include "probe.hpp"

namespace probes {

namespace {

// A template with a symlink where the set-up expects a directory: mount(2) follows it.
void e15_symlinked_mount_point(Probe& probe) {
  probe.attempt("mount through a symlink in the template", [&] {
    std::string target = probe.scratch() + "/elsewhere", link = probe.scratch() + "/proc";
    ::mkdir(target.c_str(), 0755);
    (void)::symlink(target.c_str(), link.c_str());
    (void)::unshare(CLONE_NEWNS);
    return from(::mount("x", link.c_str(), "tmpfs", 0, nullptr));
  });
}

std::string output_of(const std::string& program, const char* argument) {
  int ends[2];
  if (::pipe(ends) != 0) return "";
  pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 1);
    ::execl(program.c_str(), program.c_str(), argument, nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  char block[512];
  ssize_t size = 0;
  while ((size = ::read(ends[0], block, sizeof(block))) > 0)
    text.append(block, static_cast<std::size_t>(size));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

void ids(Probe&) {
  std::string status = read_all("/proc/self/status");
  std::size_t at = status.find("CapEff:\t");
  std::printf("euid=%u egid=%u caps=%s\n", ::geteuid(), ::getegid(),
              at == std::string::npos ? "?" : status.substr(at + 8, 16).c_str());
}

// Argument: a directory. As root: leaves programs there that want more rights than who runs them.
void e17_prepare(Probe& probe) {
  std::string dir = probe.arg(0, probe.scratch());
  probe.report_note("setuid copy", when(copy_self(dir + "/escape_probes_suid", 04755)));
  probe.report_note("setgid copy", when(copy_self(dir + "/escape_probes_sgid", 02755)));
  bool made = copy_self(dir + "/escape_probes_caps", 0755);
  // Version 2, effective, CAP_SYS_ADMIN and CAP_SETUID.
  unsigned char caps[20] = {0x01, 0, 0, 0x02, 0x80, 0, 0x20, 0};
  long result = ::setxattr((dir + "/escape_probes_caps").c_str(), "security.capability", caps,
                           sizeof(caps), 0);
  probe.report_note("copy with capabilities", {made && result == 0, errno, ""});
}

// Argument: the directory that was prepared.
void e17_set_id(Probe& probe) {
  if (probe.outside()) e17_prepare(probe);
  std::string dir = probe.arg(0, probe.scratch());
  auto as_user = [&](const std::string& name, const std::string& unwanted) {
    if (probe.outside() &&
        (::setresgid(1000, 1000, 1000) != 0 || ::setresuid(1000, 1000, 1000) != 0))
      return from(-1, "setresuid");
    std::string text = output_of(dir + "/" + name, "IDS");
    bool zero_caps = text.find("caps=0000000000000000") != std::string::npos;
    bool gained =
        unwanted == "caps" ? !text.empty() && !zero_caps : text.find(unwanted) != std::string::npos;
    return when(gained, text);
  };
  probe.attempt("become root by a setuid program",
                [&] { return as_user("escape_probes_suid", "euid=0"); });
  probe.attempt("join group 0 by a setgid program",
                [&] { return as_user("escape_probes_sgid", "egid=0"); });
  probe.attempt("gain capabilities from a file",
                [&] { return as_user("escape_probes_caps", "caps"); });
  probe.attempt("a mount without nosuid", [] {
    std::string table = read_all("/proc/self/mountinfo"), found;
    for (std::size_t at = 0, end; at < table.size(); at = end + 1) {
      end = table.find('\n', at);
      std::string line = table.substr(at, end - at);
      if (line.find("nosuid") == std::string::npos) found += line.substr(0, 80) + "; ";
    }
    return when(!found.empty(), found);
  });
}

void e18_devices(Probe& probe) {
  std::string place = probe.scratch() + "/asr-node";
  auto node = [&](const std::string& what, unsigned long mode, dev_t device) {
    probe.attempt("mknod " + what, [&, mode, device] {
      ::unlink(place.c_str());
      return from(::syscall(SYS_mknodat, AT_FDCWD, place.c_str(), mode, device));
    });
  };
  node("of memory (c 1 1)", S_IFCHR | 0600, makedev(1, 1));
  node("of a disk (b 254 0)", S_IFBLK | 0600, makedev(254, 0));
  node("of a loop device (b 7 0)", S_IFBLK | 0600, makedev(7, 0));
  node("of a whiteout (c 0 0)", S_IFCHR, makedev(0, 0));
  node("with bits above the 32nd in its mode", 0x100000000UL | S_IFCHR | 0600, makedev(1, 3));
  node("with bits above the 16th in its mode", 0x10000UL | S_IFCHR | 0600, makedev(1, 3));
  probe.attempt("mknod by the old call", [&] {
    ::unlink(place.c_str());
    return from(::syscall(SYS_mknod, place.c_str(), S_IFCHR | 0600, makedev(1, 3)));
  });
  probe.needed("mkfifo", [&] {
    ::unlink(place.c_str());
    return from(::mkfifo(place.c_str(), 0600));
  });
  // Never a watchdog: opening one starts it.
  for (const char* name : {"kvm",
                           "fuse",
                           "loop0",
                           "loop-control",
                           "vda",
                           "sda",
                           "kmsg",
                           "mem",
                           "kmem",
                           "port",
                           "uinput",
                           "net/tun",
                           "mapper/control",
                           "vsock",
                           "vhost-net",
                           "vhost-vsock",
                           "hwrng",
                           "rtc0",
                           "console",
                           "ttyS0",
                           "tty0",
                           "tty1",
                           "fb0",
                           "nvram",
                           "cpu_dma_latency",
                           "userfaultfd",
                           "ppp",
                           "btrfs-control",
                           "autofs",
                           "snapshot",
                           "hpet",
                           "vga_arbiter",
                           "ptp0",
                           "dri/card0",
                           "nbd0",
                           "zram0",
                           "cuse",
                           "udmabuf",
                           "dma_heap/system"}) {
    std::string path = std::string("/dev/") + name;
    bool has = ::access(path.c_str(), F_OK) == 0;
    std::string why = probe.outside() && !has ? "this machine has no " + path : "";
    if (probe.outside() && has) {
      int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
      if (fd < 0) why = "cannot be opened here: " + errno_name(errno);
      ::close(fd);
    }
    probe.attempt("open " + path, Unprovable{why}, [&] {
      return from(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    });
  }
  for (const char* name : {"null", "zero", "full", "random", "urandom"})
    probe.needed(std::string("open /dev/") + name, [&] {
      return from(::open((std::string("/dev/") + name).c_str(), O_RDWR | O_CLOEXEC));
    });
  probe.attempt("replace /dev/null", [&] {
    if (probe.outside() &&
        (::unshare(CLONE_NEWNS) != 0 || ::mount("d", "/dev", "tmpfs", 0, nullptr) != 0 ||
         !write_all("/dev/null", "")))
      return from(-1, "set-up");
    return when(::rename("/dev/null", "/dev/old") == 0 || ::unlink("/dev/null") == 0);
  });
  probe.attempt("create a file in /dev", [&] {
    if (probe.outside() &&
        (::unshare(CLONE_NEWNS) != 0 || ::mount("d", "/dev", "tmpfs", 0, nullptr) != 0))
      return from(-1, "set-up");
    return from(::open("/dev/asr", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  });
}

// Outside: an attribute in the upper layer makes an overlay show a directory that was hidden.
Outcome overlay_redirect(const Probe& probe) {
  (void)::unshare(CLONE_NEWNS);
  std::string base = probe.scratch() + "/redirect";
  for (const char* part : {"", "/l", "/l/hidden", "/u", "/u/shown", "/w", "/m"})
    ::mkdir((base + part).c_str(), 0755);
  (void)write_all(base + "/l/hidden/secret", "s");
  if (::setxattr((base + "/u/shown").c_str(), "trusted.overlay.redirect", "/hidden", 7, 0) != 0)
    return from(-1, "setxattr");
  std::string options =
      "redirect_dir=follow,lowerdir=" + base + "/l,upperdir=" + base + "/u,workdir=" + base + "/w";
  if (::mount("o", (base + "/m").c_str(), "overlay", 0, options.c_str()) != 0)
    return from(-1, "mount");
  return when(::access((base + "/m/shown/secret").c_str(), F_OK) == 0);
}

void e31_overlay(Probe& probe) {
  if (probe.outside())
    probe.attempt("show a hidden directory by an attribute",
                  [&] { return overlay_redirect(probe); });
  std::string dir = probe.scratch() + "/asr-redirect";
  ::mkdir(dir.c_str(), 0755);
  for (const char* space : {"trusted.overlay.", "security.overlay."})
    for (const char* name : {"redirect", "opaque", "metacopy", "origin"}) {
      std::string attribute = std::string(space) + name;
      probe.attempt("set " + attribute,
                    [&] { return from(::setxattr(dir.c_str(), attribute.c_str(), "/usr", 4, 0)); });
    }
  if (probe.outside()) return;
  for (const char* name : {"redirect", "opaque", "metacopy"})
    probe.attempt(std::string("have user.overlay.") + name + " change what a directory shows",
                  Unprovable{"shown by the redirect above"}, [&] {
                    std::string attribute = std::string("user.overlay.") + name;
                    long result = ::setxattr(dir.c_str(), attribute.c_str(), "/usr", 4, 0);
                    std::string detail = result == 0 ? "set" : errno_name(errno);
                    return when(!entries(dir).empty(), detail);
                  });
  probe.note("hard link a file of the lower layer",
             [&] { return from(::link("/usr/bin/env", (probe.scratch() + "/asr-link").c_str())); });
}

void e35_fifo(Probe& probe) {
  probe.attempt("make a reader wait for ever on a FIFO", [&] {
    std::string path = probe.scratch() + "/asr-fifo";
    ::mkfifo(path.c_str(), 0666);
    pid_t reader = ::fork();
    if (reader == 0) {
      (void)::open(path.c_str(), O_RDONLY);
      ::_exit(0);
    }
    ::usleep(300'000);
    bool waits = ::waitpid(reader, nullptr, WNOHANG) == 0;
    ::kill(reader, SIGKILL);
    return when(waits);
  });
}

// Leaves things for the file interface to stumble over: a FIFO, a socket, links that lead away.
void e35_prepare(Probe& probe) {
  const std::string& dir = probe.scratch();
  ::mkfifo((dir + "/fifo").c_str(), 0666);
  probe.report_note("fifo", when(::access((dir + "/fifo").c_str(), F_OK) == 0));
  (void)::symlink("/proc/1/mem", (dir + "/to-mem").c_str());
  (void)::symlink("/proc/1/root/etc/shadow", (dir + "/to-root").c_str());
  (void)::symlink("loop", (dir + "/loop").c_str());
  (void)::symlink("/dev/tty", (dir + "/to-tty").c_str());
  (void)::symlink("/dev/zero", (dir + "/to-zero").c_str());
}

// Outside: whoever runs a poisoned program runs the attacker's.
void e36_poison(Probe& probe) {
  probe.attempt("have a replaced program run by somebody else", [&] {
    std::string log = probe.scratch() + "/trap.log";
    ::setenv("ASR_TRAP_LOG", log.c_str(), 1);
    if (!copy_self(probe.scratch() + "/sh", 0755)) return from(-1, "copy");
    (void)output_of(probe.scratch() + "/sh", "-c");
    return when(!read_all(log).empty());
  });
}

// Arguments: programs to replace by this one. What runs them later leaves a line in
// /workspace/asr-trap.log.
void e36_replace(Probe& probe) {
  for (std::size_t i = 0; i < probe.args(); ++i) {
    (void)::unlink(probe.arg(i).c_str());
    probe.report_note("replace " + probe.arg(i), when(copy_self(probe.arg(i), 0755)));
  }
}

}  // namespace

std::span<const Case> file_cases() {
  static constexpr Case cases[] = {
      {"E15", e15_symlinked_mount_point, {}},
      {"E17", e17_set_id, {}},
      {"E17-prepare", e17_prepare, {}},
      {"IDS", ids, {}},
      {"E18", e18_devices, {}},
      {"E31", e31_overlay, {}},
      {"E35", e35_fifo, {}},
      {"E35-prepare", e35_prepare, {}},
      {"E36", e36_poison, {}},
      {"E36-replace", e36_replace, {}},
  };
  return cases;
}

}  // namespace probes
