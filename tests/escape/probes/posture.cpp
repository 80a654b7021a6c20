// What a process in a sandbox is, in words: for the golden files. Plain text, one "== section"
// after the other.
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "probe.hpp"

extern "C" char** environ;

namespace probes {

namespace {

// The kind of thing behind a descriptor, without its number.
std::string class_of(const std::string& link) {
  std::size_t end = link.find(":[");
  if (end != std::string::npos) return link.substr(0, end);
  if (link.starts_with("/dev/pts/")) return "/dev/pts/N";
  return link;
}

std::set<std::string>& listing() {
  static std::set<std::string> lines;
  return lines;
}

int list_device(const char* path, const struct stat* info, int, FTW*) {
  char line[512];
  std::string_view name = path;
  if (name.starts_with("/dev/shm/") || name.starts_with("/dev/pts/"))
    return 0;  // Contents, not posture.
  char kind = S_ISDIR(info->st_mode)   ? 'd'
              : S_ISLNK(info->st_mode) ? 'l'
              : S_ISCHR(info->st_mode) ? 'c'
              : S_ISBLK(info->st_mode) ? 'b'
                                       : '-';
  std::string extra;
  if (kind == 'c' || kind == 'b')
    extra = " " + std::to_string(major(info->st_rdev)) + ":" + std::to_string(minor(info->st_rdev));
  if (kind == 'l') extra = " -> " + link_of(path);
  std::snprintf(line, sizeof(line), "%c %04o %u:%u %s%s", kind, info->st_mode & 07777, info->st_uid,
                info->st_gid, path, extra.c_str());
  listing().insert(line);
  return 0;
}

void posture(Probe&) {
  std::puts("== status");
  std::string status = read_all("/proc/self/status");
  for (const char* name : {"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
                           "NoNewPrivs", "Seccomp", "Seccomp_filters"}) {
    std::size_t at = status.find(std::string("\n") + name + ":");
    if (at != std::string::npos)
      std::puts(status.substr(at + 1, status.find('\n', at + 1) - at - 1).c_str());
  }
  std::printf("== limits\n%s", read_all("/proc/self/limits").c_str());
  std::printf("== uid_map\n%s", read_all("/proc/self/uid_map").c_str());
  std::printf("== gid_map\n%s", read_all("/proc/self/gid_map").c_str());
  std::printf("== cgroup\n%s", read_all("/proc/self/cgroup").c_str());
  std::printf("== oom_score_adj\n%s", read_all("/proc/self/oom_score_adj").c_str());
  std::puts("== fd");
  for (int fd = 0; fd < 65536; ++fd)
    if (::fcntl(fd, F_GETFD) >= 0)
      std::printf("%d %s\n", fd, class_of(link_of("/proc/self/fd/" + std::to_string(fd))).c_str());
  std::puts("== cwd");
  std::puts(link_of("/proc/self/cwd").c_str());
  std::puts("== environ");
  std::set<std::string> sorted;
  for (char** entry = environ; *entry != nullptr; ++entry) sorted.insert(*entry);
  for (const std::string& entry : sorted) std::puts(entry.c_str());
  std::printf("== mountinfo\n%s", read_all("/proc/self/mountinfo").c_str());
  std::puts("== dev");
  ::nftw("/dev", list_device, 16, FTW_PHYS);
  for (const std::string& line : listing()) std::puts(line.c_str());
  std::puts("== end");
}

}  // namespace

std::span<const Case> posture_cases() {
  static constexpr Case cases[] = {{"POSTURE", posture, {}}};
  return cases;
}

}  // namespace probes
