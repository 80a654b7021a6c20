// Bytes of a remote sandbox's files, in and out. Descriptors are ours: copies on this machine's
// disk, pipes that a coroutine fills or empties.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "base/id.hpp"
#include "provider/e2b/paths.hpp"
#include "provider/e2b/sandbox.hpp"

namespace asr::e2b {

using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kMostDownload = 4ULL << 30;
constexpr std::size_t kBlock = 256 << 10;
constexpr auto kAnswerTime = 60s;  // once all is sent

// A file of ours that has no name.
Result<UniqueFd> nameless_file(const std::string& folder) {
  UniqueFd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) return fail_errno("a copy of a file cannot be made");
  return file;
}

Result<void> write_out(int file, std::string_view data) {
  while (!data.empty()) {
    ssize_t n = ::write(file, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("a copy of a file cannot be written");
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

// The answer of a transfer, to its end.
asio::awaitable<Result<void>> settle(CorePtr core, std::shared_ptr<HttpTransfer> transfer) {
  asio::steady_timer patience(core->remote->executor(), kAnswerTime);
  patience.async_wait([transfer](boost::system::error_code ec) {
    if (!ec) transfer->cancel();
  });
  auto reading = read_all(transfer, 64 << 10);
  auto response = co_await std::move(reading);
  patience.cancel();
  if (!response)
    co_return fail(Errc::provider, "the connection to the provider broke", "try again in a moment");
  auto judged = core->remote->judge(response->status, response->body);
  if (!judged) {
    auto looking = Core::look(core, judged.error());
    co_return fail(co_await std::move(looking));
  }
  co_return Result<void>();
}

// From a pipe of ours to a file of the sandbox's.
asio::awaitable<Result<void>> pump_up(CorePtr core, UniqueFd from, std::string path,
                                      std::string user) {
  asio::posix::stream_descriptor source(core->remote->executor(), from.release());
  auto transfer = CO_TRY(core->remote->upload(core->place, path, user));
  std::string block(kBlock, '\0');
  for (;;) {
    boost::system::error_code ec;
    std::size_t n = co_await source.async_read_some(asio::buffer(block),
                                                    asio::redirect_error(asio::use_awaitable, ec));
    if (ec) break;
    auto writing = transfer->write(block.substr(0, n));
    if (auto written = co_await std::move(writing); !written)
      co_return fail(Errc::provider, "the connection to the provider broke",
                     "try again in a moment");
  }
  transfer->end_body();
  auto settling = settle(core, transfer);
  co_return co_await std::move(settling);
}

// Puts what was sent where it belongs, as the mode says.
std::vector<std::string> place_words(const std::string& part, const std::string& path,
                                     WriteMode mode, std::uint32_t permissions) {
  char octal[8];
  std::snprintf(octal, sizeof octal, "%o", permissions & 07777);
  std::string script;
  const std::string fresh = "chmod \"$3\" \"$1\" && mv -T -- \"$1\" \"$2\"";
  switch (mode) {
    case WriteMode::create_or_replace:  // Through links.
      script =
          "if [ -e \"$2\" ]; then cat < \"$1\" > \"$2\" && { chmod \"$3\" \"$2\" || :; }; else " +
          fresh + "; fi";
      break;
    case WriteMode::overwrite:
      script = "if [ -e \"$2\" ]; then cat < \"$1\" > \"$2\"; else " + fresh + "; fi";
      break;
    case WriteMode::append:
      script = "if [ -e \"$2\" ]; then cat < \"$1\" >> \"$2\"; else " + fresh + "; fi";
      break;
    case WriteMode::create_new:
      script = "chmod \"$3\" \"$1\" && ln -T -- \"$1\" \"$2\"";
      break;
  }
  script += "; r=$?; rm -f -- \"$1\"; exit $r";
  return {"/bin/sh", "-c", script, "sh", part, path, octal};
}

std::string part_beside(const std::string& path) {
  return path.substr(0, path.rfind('/') + 1) + ".asr-" + random_name(12) + ".part";
}

class RemoteWrite final : public FileWrite {
 public:
  struct Job {
    explicit Job(const asio::any_io_executor& executor) : changed(executor) {}
    std::optional<Result<void>> sent;
    Bell changed;
  };

  RemoteWrite(CorePtr core, UniqueFd pipe, std::shared_ptr<Job> job)
      : pipe_(std::move(pipe)), core_(std::move(core)), job_(std::move(job)) {}

  UniqueFd take_pipe() override { return std::move(pipe_); }
  asio::awaitable<Result<void>> finish() override {
    pipe_.reset();
    auto job = job_;
    while (!job->sent) co_await job->changed.wait();
    co_return *job->sent;
  }

 private:
  UniqueFd pipe_;
  CorePtr core_;
  std::shared_ptr<Job> job_;
};

}  // namespace

asio::awaitable<Result<UniqueFd>> RemoteSandbox::open_read(std::string path, std::string user) {
  CO_TRY(check_path(path));
  CO_TRY(core_->check_ready());
  auto core = core_;
  std::string scratch = home_->scratch;
  auto asking = stat(path, user);
  FileInfo info = CO_TRY(co_await std::move(asking));
  if (info.type == FileType::directory || info.type == FileType::other)
    co_return fail(Errc::invalid, path + " is not a regular file",
                   "directories: …/files/list, or …/files/archive for all that is in one");
  auto opening = core->remote->download(core->place, path, user);
  auto transfer = CO_TRY(co_await std::move(opening));
  auto heading = transfer->head();
  auto head = co_await std::move(heading);
  if (!head)
    co_return fail(Errc::provider, "the connection to the provider broke", "try again in a moment");
  if (head->status != 200) {
    auto settling = settle(core, transfer);
    auto settled = co_await std::move(settling);
    co_return fail(settled ? Error(Errc::provider, "the provider's answer makes no sense")
                           : settled.error());
  }
  UniqueFd file = CO_TRY(nameless_file(scratch));
  std::uint64_t size = 0;
  for (;;) {
    auto reading = transfer->read();
    auto part = co_await std::move(reading);
    if (!part)
      co_return fail(Errc::provider, "the connection to the provider broke",
                     "try again in a moment");
    if (part->empty()) break;
    size += part->size();
    if (size > kMostDownload) co_return fail(Errc::exhausted, path + " is too large to be copied");
    CO_TRY(write_out(file.get(), *part));
  }
  // As it is there: what tells versions apart is made from it.
  auto since = info.modified.time_since_epoch();
  auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  timespec time{seconds.count(), std::chrono::nanoseconds(since - seconds).count()};
  timespec times[2] = {time, time};
  (void)::futimens(file.get(), times);
  (void)::fchmod(file.get(), info.mode & 0777);
  ::lseek(file.get(), 0, SEEK_SET);
  co_return file;
}

asio::awaitable<Result<std::unique_ptr<FileWrite>>> RemoteSandbox::open_write(
    std::string path, WriteMode mode, std::uint32_t permissions, std::string user) {
  CO_TRY(check_path(path));
  CO_TRY(core_->check_ready());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) co_return fail_errno("pipe");
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  auto job = std::make_shared<RemoteWrite::Job>(core_->remote->executor());
  auto work = [](CorePtr core, UniqueFd from, std::string to, WriteMode how, std::uint32_t bits,
                 std::string as, std::shared_ptr<RemoteWrite::Job> of) -> asio::awaitable<void> {
    std::string part = part_beside(to);
    auto pumping = pump_up(core, std::move(from), part, as);
    Result<void> sent = co_await std::move(pumping);
    if (sent) {
      auto placing = run_helper(core, place_words(part, to, how, bits), as);
      auto placed = co_await std::move(placing);
      if (!placed) sent = fail(placed.error());
    } else {
      auto removing = ask(core, "filesystem.Filesystem/Remove", json::object{{"path", part}}, as);
      (void)co_await std::move(removing);
    }
    of->sent = std::move(sent);
    of->changed.ring();
  };
  asio::co_spawn(
      core_->remote->executor(),
      work(core_, std::move(reading), std::move(path), mode, permissions, std::move(user), job),
      asio::detached);
  co_return std::make_unique<RemoteWrite>(core_, std::move(writing), std::move(job));
}

asio::awaitable<Result<std::string>> RemoteSandbox::read_file(std::string path,
                                                              std::uint64_t most) {
  CO_TRY(check_path(path));
  CO_TRY(core_->check_ready());
  auto core = core_;
  auto opening = core->remote->download(core->place, path, "user");
  auto transfer = CO_TRY(co_await std::move(opening));
  auto reading = read_all(transfer, most);
  auto response = co_await std::move(reading);
  if (!response && response.error().code == Errc::exhausted)
    co_return fail(Errc::exhausted, path + " is larger than was asked for");
  if (!response)
    co_return fail(Errc::provider, "the connection to the provider broke", "try again in a moment");
  auto judged = core->remote->judge(response->status, response->body);
  if (judged) co_return std::move(response->body);
  auto looking = Core::look(core, judged.error());
  co_return fail(co_await std::move(looking));
}

asio::awaitable<Result<void>> RemoteSandbox::write_file(std::string path, std::string data,
                                                        std::uint32_t permissions,
                                                        std::string user) {
  CO_TRY(check_path(path));
  CO_TRY(core_->check_ready());
  auto core = core_;
  std::string part = part_beside(path);
  auto transfer = CO_TRY(core->remote->upload(core->place, part, user));
  auto writing = transfer->write(std::move(data));
  (void)co_await std::move(writing);
  transfer->end_body();
  auto settling = settle(core, transfer);
  CO_TRY(co_await std::move(settling));
  auto placing =
      run_helper(core, place_words(part, path, WriteMode::create_or_replace, permissions), user);
  CO_TRY(co_await std::move(placing));
  co_return Result<void>();
}

asio::awaitable<Result<UniqueFd>> RemoteSandbox::archive_out(std::string path, std::string user) {
  CO_TRY(check_path(path));
  auto asking = stat(path, user);
  FileInfo info = CO_TRY(co_await std::move(asking));
  Command command;
  std::string name = path.substr(path.rfind('/') + 1);
  std::string folder = path.substr(0, path.rfind('/') + 1);
  if (info.type == FileType::file)
    command.argv = {"tar", "-C", folder, "-cf", "-", "--", name};
  else
    command.argv = {"/bin/sh", "-c",
                    "cd -- \"$1\" && find . -mindepth 1 \\( -type f -o -type d -o -type l \\) "
                    "-printf '%P\\0' | "
                    "tar --null --no-recursion -T - -cf -",
                    "sh", path};
  command.user = user;
  command.cwd = "/";
  command.wall_time = command.cpu_time = std::chrono::milliseconds(0);
  command.output_bytes = 0;
  auto starting = start_program(core_, std::move(command), spec_.limits);
  std::shared_ptr<Execution> program = CO_TRY(co_await std::move(starting));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) co_return fail_errno("pipe");
  UniqueFd reading(ends[0]);
  auto pump = [](std::shared_ptr<Execution> from, UniqueFd to,
                 asio::any_io_executor executor) -> asio::awaitable<void> {
    asio::posix::stream_descriptor sink(executor, to.release());
    for (;;) {
      auto taking = from->read();
      auto chunk = co_await std::move(taking);
      if (!chunk || !*chunk) co_return;
      if ((*chunk)->stream != OutputChunk::Stream::out) continue;
      boost::system::error_code ec;
      co_await asio::async_write(sink, asio::buffer((*chunk)->data),
                                 asio::redirect_error(asio::use_awaitable, ec));
      if (!ec) continue;
      auto killing = from->signal(9);
      (void)co_await std::move(killing);
      co_return;
    }
  };
  asio::co_spawn(core_->remote->executor(),
                 pump(std::move(program), UniqueFd(ends[1]), core_->remote->executor()),
                 asio::detached);
  co_return reading;
}

asio::awaitable<Result<Sandbox::ArchiveReport>> RemoteSandbox::archive_in(std::string path,
                                                                          UniqueFd tar,
                                                                          std::string user) {
  CO_TRY(check_path(path));
  CO_TRY(core_->check_ready());
  auto core = core_;
  std::string part = "/tmp/.asr-" + random_name(12) + ".tar";
  int flags = ::fcntl(tar.get(), F_GETFL);
  if (flags < 0 || ::fcntl(tar.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    co_return fail_errno("fcntl");
  struct stat info {};
  if (::fstat(tar.get(), &info) == 0 && S_ISREG(info.st_mode))
    co_return fail(Errc::unsupported, "not supported by this provider: an archive that is a file");
  auto pumping = pump_up(core, std::move(tar), part, user);
  CO_TRY(co_await std::move(pumping));
  auto unpacking =
      run_helper(core,
                 {"/bin/sh", "-c",
                  "mkdir -p -- \"$2\" && tar -C \"$2\" --no-same-owner -xvf \"$1\" | wc -l; "
                  "tar -tf \"$1\" >/dev/null; r=$?; rm -f -- \"$1\"; exit $r",
                  "sh", part, path},
                 user);
  std::string count = CO_TRY(co_await std::move(unpacking));
  ArchiveReport report;
  report.entries = std::strtoull(count.c_str(), nullptr, 10);
  co_return report;
}

}  // namespace asr::e2b
