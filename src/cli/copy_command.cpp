// agent-sandbox cp: files between this machine and a session.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/unique_fd.hpp"
#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "cli/remote.hpp"
#include "cli/report.hpp"

namespace asr {

namespace {

// "SESSION:/path", or a path here.
struct Place {
  std::string session;
  std::string path;
};

Place place_from(const std::string& text) {
  std::size_t colon = text.find(':');
  if (colon == std::string::npos || text.find('/') < colon) return {"", text};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

std::string file_path(const Place& place) {
  return "/api/sessions/" + percent_encode(place.session) +
         "/files?path=" + percent_encode(place.path);
}

class Progress {
 public:
  explicit Progress(std::uint64_t total) : total_(total) {}

  void add(std::size_t bytes) {
    done_ += bytes;
    if (!line_.is_due()) return;
    std::string text = format_bytes(done_);
    if (total_ > 0)
      text = progress_bar(done_, total_) + " " + std::to_string(100 * done_ / total_) + "% of " +
             format_bytes(total_);
    line_.show(text);
  }

 private:
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  StatusLine line_;
};

Result<void> upload(Remote& remote, const std::string& from, Place to) {
  UniqueFd file(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return fail_errno("open " + from);
  if (!S_ISREG(info.st_mode)) return fail(Errc::invalid, from + " is not a regular file");
  if (to.path.empty() || to.path.ends_with('/')) to.path += from.substr(from.rfind('/') + 1);
  Progress progress(static_cast<std::uint64_t>(info.st_size));
  ClientRequest request;
  request.method = "PUT";
  request.body_length = info.st_size;
  request.read_body = [&](char* buffer, std::size_t size) -> std::size_t {
    ssize_t n = ::read(file.get(), buffer, size);
    if (n > 0) progress.add(static_cast<std::size_t>(n));
    return n > 0 ? static_cast<std::size_t>(n) : 0;
  };
  TRY(remote.send(std::move(request),
                  file_path(to) + "&mode=" + std::to_string(info.st_mode & 0777)));
  return {};
}

Result<void> download(Remote& remote, const Place& from, std::string to) {
  struct stat info {};
  if (::stat(to.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
    to += "/" + from.path.substr(from.path.rfind('/') + 1);
  std::string half = to + ".part";
  UniqueFd file(::open(half.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) return fail_errno("write " + half);
  Progress progress(0);
  bool written = true;
  ClientRequest request;
  request.write_body = [&](std::string_view part) {
    progress.add(part.size());
    while (!part.empty() && written) {
      ssize_t n = ::write(file.get(), part.data(), part.size());
      written = n > 0;
      if (written) part.remove_prefix(static_cast<std::size_t>(n));
    }
    return written;
  };
  auto answer = remote.send(std::move(request), file_path(from));
  if (!written) answer = fail_errno("write " + half);
  if (answer && ::rename(half.c_str(), to.c_str()) != 0) answer = fail_errno("rename " + half);
  if (!answer) {
    ::unlink(half.c_str());
    return fail(answer.error());
  }
  return {};
}

Result<void> copy(const std::string& source, const std::string& target) {
  Place from = place_from(source);
  Place to = place_from(target);
  if (from.session.empty() == to.session.empty())
    return fail(Errc::invalid, "one of the two must be in a session",
                "write it as SESSION:/workspace/file");
  Remote remote = TRY(Remote::find());
  if (from.session.empty()) return upload(remote, from.path, to);
  return download(remote, from, to.path);
}

}  // namespace

void add_copy_command(CLI::App& app, Invocation& invocation) {
  auto from = std::make_shared<std::string>();
  auto to = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("cp", "Copy a file to or from a session");
  command->add_option("from", *from, "A file here, or SESSION:/path")->required();
  command->add_option("to", *to, "Where to: the other of the two")->required();
  command->callback([=, &invocation] {
    auto done = copy(*from, *to);
    invocation.status = done ? 0 : complain(done.error());
  });
}

}  // namespace asr
