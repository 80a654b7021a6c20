#include "probe.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace probes {

namespace {

struct Header {
  bool succeeded;
  int err;
};

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(number);
}

}  // namespace

Outcome from(long result, std::string detail) {
  return {result != -1, result == -1 ? errno : 0, std::move(detail)};
}

Outcome reached(long result) {
  int err = result == -1 ? errno : 0;
  bool refused = err == EPERM || err == ENOSYS || err == EACCES;
  return {!refused, err, result == -1 && !refused ? "reached the kernel: " + errno_name(err) : ""};
}

Outcome when(bool succeeded, std::string detail) { return {succeeded, 0, std::move(detail)}; }

std::string Probe::arg(std::size_t i, std::string_view otherwise) const {
  return i < args_.size() ? args_[i] : std::string(otherwise);
}

long Probe::number(std::size_t i, long otherwise) const {
  return i < args_.size() ? std::strtol(args_[i].c_str(), nullptr, 10) : otherwise;
}

Outcome Probe::in_child(const std::function<Outcome()>& attack) const {
  std::fflush(stdout);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {false, errno, "pipe"};
  pid_t child = ::fork();
  if (child < 0) {
    Outcome failed{false, errno, "fork"};
    ::close(ends[0]);
    ::close(ends[1]);
    return failed;
  }
  if (child == 0) {
    ::close(ends[0]);
    ::alarm(patience_);
    Outcome outcome = attack();
    Header header{outcome.succeeded, outcome.err};
    outcome.detail.resize(std::min<std::size_t>(outcome.detail.size(), 2000));
    (void)!::write(ends[1], &header, sizeof(header));
    (void)!::write(ends[1], outcome.detail.data(), outcome.detail.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  // Not until end of file: a grandchild that lives on would hold it open.
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Outcome outcome;
  Header header{};
  if (::read(ends[0], &header, sizeof(header)) == sizeof(header)) {
    outcome.succeeded = header.succeeded;
    outcome.err = header.err;
    char detail[2000];
    pollfd ready{ends[0], POLLIN, 0};
    ssize_t size = ::poll(&ready, 1, 0) == 1 ? ::read(ends[0], detail, sizeof(detail)) : 0;
    if (size > 0) outcome.detail.assign(detail, static_cast<std::size_t>(size));
  } else if (WIFSIGNALED(status)) {
    outcome.detail = "ended by " + signal_name(WTERMSIG(status));
  } else {
    outcome.detail = "ended without a word";
  }
  ::close(ends[0]);
  return outcome;
}

void Probe::print(const std::string& what, const char* kind, const std::string& unprovable,
                  const Outcome& outcome) const {
  std::printf(
      "{\"case\":%s,\"attempt\":%s,\"kind\":\"%s\",\"succeeded\":%s,\"errno\":%s,\"detail\":%s,"
      "\"unprovable\":%s}\n",
      json_quoted(name_).c_str(), json_quoted(what).c_str(), kind,
      outcome.succeeded ? "true" : "false",
      json_quoted(outcome.succeeded ? "" : errno_name(outcome.err)).c_str(),
      json_quoted(outcome.detail).c_str(), json_quoted(unprovable).c_str());
  std::fflush(stdout);
}

std::string errno_name(int err) {
  if (err == 0) return "";
  const char* name = strerrorname_np(err);
  return name != nullptr ? name : std::to_string(err);
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 ||
               c >= 0x7f) {  // Bytes, not characters: what is not ASCII need not be UTF-8.
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      out += code;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

std::string read_all(const std::string& path, std::size_t most) {
  std::string text;
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return text;
  char block[8192];
  ssize_t size = 0;
  while (text.size() < most && (size = ::read(fd, block, sizeof(block))) > 0)
    text.append(block, static_cast<std::size_t>(size));
  int err = size < 0 ? errno : 0;
  ::close(fd);
  errno = err;
  return text;
}

bool write_all(const std::string& path, std::string_view text) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  ssize_t size = ::write(fd, text.data(), text.size());
  int err = errno;
  ::close(fd);
  errno = err;
  return size == static_cast<ssize_t>(text.size());
}

std::vector<std::string> entries(const std::string& directory) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(directory.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir)) {
    std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<int> process_ids() {
  std::vector<int> pids;
  for (const std::string& name : entries("/proc"))
    if (name.find_first_not_of("0123456789") == std::string::npos)
      pids.push_back(std::atoi(name.c_str()));
  return pids;
}

std::string link_of(const std::string& path) {
  char target[4096];
  ssize_t size = ::readlink(path.c_str(), target, sizeof(target));
  return size < 0 ? "" : std::string(target, static_cast<std::size_t>(size));
}

bool copy_self(const std::string& to, unsigned mode) {
  int in = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  int out = ::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
  if (in < 0 || out < 0) return false;
  std::string block(1 << 16, 0);
  ssize_t size = 0;
  while ((size = ::read(in, block.data(), block.size())) > 0)
    (void)!::write(out, block.data(), static_cast<std::size_t>(size));
  bool ok = ::fchmod(out, mode) == 0;
  ::close(in);
  ::close(out);
  return ok;
}

}  // namespace probes
