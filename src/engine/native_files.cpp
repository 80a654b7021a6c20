// The part of a native sandbox that works on files and ports: requests with descriptors, and
// answers whose descriptors are believed only if they are of the kind asked for.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "engine/native_sandbox.hpp"

namespace asr {

namespace {

constexpr int kPipeBytes = 1 << 20;

// The fields of a file request that most operations need.
wire::File file_request(wire::FileOp op, std::string path, std::string user) {
  wire::File request;
  request.op = op;
  request.path = std::move(path);
  request.user = std::move(user);
  return request;
}

Result<void> check_path(const std::string& path) {
  if (path.empty()) return fail(Errc::invalid, "the path is empty");
  if (!path.starts_with('/'))
    return fail(Errc::invalid, "the path " + path + " is not absolute",
                "start it with /, as in /workspace/" + path);
  if (path.size() > 4096) return fail(Errc::invalid, "the path is longer than 4096 bytes");
  if (path.find('\0') != std::string::npos)
    return fail(Errc::invalid, "the path holds a zero byte");
  return {};
}

// A descriptor from a guest is used only if it is of the kind asked for.
Result<UniqueFd> plain_file(Letter letter) {
  UniqueFd fd = TRY(descriptor_in(std::move(letter)));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return fail(Errc::internal, "the sandbox handed out something that is not a file");
  return fd;
}

Result<UniqueFd> stream_socket(Letter letter) {
  UniqueFd fd = TRY(descriptor_in(std::move(letter)));
  int domain = 0;
  int type = 0;
  socklen_t size = sizeof(int);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
      (domain != AF_INET && domain != AF_INET6) ||
      ::getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM)
    return fail(Errc::internal, "the sandbox handed out something that is not a connection");
  return fd;
}

FileInfo to_info(wire::Entry entry) {
  FileInfo info;
  info.name = std::move(entry.name);
  info.type =
      static_cast<FileType>(std::min<std::uint8_t>(static_cast<std::uint8_t>(entry.type), 3));
  info.size = entry.size;
  info.mode = entry.mode & 07777;
  info.uid = entry.uid;
  info.gid = entry.gid;
  info.modified = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(entry.modified));
  info.target = std::move(entry.target);
  for (std::size_t i = 0; i + 1 < entry.attributes.size(); i += 2)
    info.attributes.emplace(std::move(entry.attributes[i]), std::move(entry.attributes[i + 1]));
  return info;
}

class NativeWatch final : public Watch {
 public:
  NativeWatch(std::shared_ptr<Channel> channel, std::unique_ptr<Channel::Box> box)
      : channel_(std::move(channel)), box_(std::move(box)) {}
  NativeWatch(const NativeWatch&) = delete;
  NativeWatch& operator=(const NativeWatch&) = delete;
  ~NativeWatch() override {
    // The box belongs to the strand, and the worker inside must be told. Whoever waits in next()
    // holds the box, too.
    asio::post(channel_->executor(), [channel = channel_, box = std::move(box_)] {
      box->give_up();
      if (!channel->is_open()) return;
      wire::StopWork stop;
      stop.work = box->id();
      auto answer = channel->box();
      (void)channel->send(answer->id(), stop);
    });
  }

  asio::awaitable<Result<std::vector<WatchEvent>>> next() override {
    return on_strand(channel_->executor(), next_on_strand(box_));
  }

  void close() override {
    asio::post(channel_->executor(), [box = box_] { box->give_up(); });
  }

 private:
  static asio::awaitable<Result<std::vector<WatchEvent>>> next_on_strand(
      std::shared_ptr<Channel::Box> box) {
    if (box->lost()) co_return std::vector<WatchEvent>{{WatchEvent::Kind::overflow, "", false}};
    Letter letter = CO_TRY(co_await box->next());
    auto events = letter.as<wire::Events>();
    if (!events) co_return fail(failure_in(letter));
    std::vector<WatchEvent> result;
    for (wire::Event& event : events->events) {
      auto kind = std::min<std::uint8_t>(static_cast<std::uint8_t>(event.change),
                                         static_cast<std::uint8_t>(wire::Change::overflow));
      result.push_back(
          {static_cast<WatchEvent::Kind>(kind), std::move(event.path), event.directory});
    }
    co_return result;
  }

  std::shared_ptr<Channel> channel_;
  std::shared_ptr<Channel::Box> box_;
};

class NativeFileWrite final : public FileWrite {
 public:
  NativeFileWrite(std::shared_ptr<Channel> channel, std::shared_ptr<Channel::Box> box,
                  UniqueFd pipe)
      : channel_(std::move(channel)), box_(std::move(box)), pipe_(std::move(pipe)) {}
  NativeFileWrite(const NativeFileWrite&) = delete;
  NativeFileWrite& operator=(const NativeFileWrite&) = delete;
  ~NativeFileWrite() override {
    asio::post(channel_->executor(), [box = std::move(box_)] { box->give_up(); });
  }

  UniqueFd take_pipe() override { return std::move(pipe_); }

  asio::awaitable<Result<void>> finish() override {
    pipe_.reset();
    return on_strand(channel_->executor(), finish_on_strand(box_));
  }

 private:
  static asio::awaitable<Result<void>> finish_on_strand(std::shared_ptr<Channel::Box> box) {
    Letter letter = CO_TRY(co_await box->next(Channel::Clock::now() + kWorkWithin));
    if (!letter.as<wire::Done>()) co_return fail(failure_in(letter));
    co_return Result<void>();
  }

  std::shared_ptr<Channel> channel_;
  std::shared_ptr<Channel::Box> box_;
  UniqueFd pipe_;
};

asio::awaitable<Result<std::unique_ptr<FileWrite>>> start_writing(std::shared_ptr<Channel> channel,
                                                                  wire::File file) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) co_return fail_errno("pipe");
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  if (::fcntl(writing.get(), F_SETFL, O_NONBLOCK) != 0) co_return fail_errno("fcntl");
  (void)::fcntl(writing.get(), F_SETPIPE_SZ, kPipeBytes);  // A smaller one will do, too.
  auto box = channel->box();
  std::vector<int> sent{reading.get()};
  CO_TRY(channel->send(box->id(), file, sent));
  reading.reset();
  Letter opened = CO_TRY(co_await box->next(Channel::Clock::now() + kWorkWithin));
  if (!opened.as<wire::Done>()) co_return fail(failure_in(opened));
  co_return std::make_unique<NativeFileWrite>(channel, std::move(box), std::move(writing));
}

}  // namespace

asio::awaitable<Result<UniqueFd>> NativeSandbox::open_read(std::string path, std::string user) {
  CO_TRY(check_path(path));
  auto asking = request(file_request(wire::FileOp::open_read, std::move(path), std::move(user)));
  Letter answer = CO_TRY(co_await std::move(asking));
  co_return plain_file(std::move(answer));
}

asio::awaitable<Result<UniqueFd>> NativeSandbox::open_before(std::string path) {
  CO_TRY(check_path(path));
  auto asking = request(file_request(wire::FileOp::open_before, std::move(path), "root"));
  Letter answer = CO_TRY(co_await std::move(asking));
  co_return plain_file(std::move(answer));
}

asio::awaitable<Result<std::unique_ptr<FileWrite>>> NativeSandbox::open_write(
    std::string path, WriteMode mode, std::uint32_t permissions, std::string user) {
  return open_write_with(std::move(path), mode, permissions, std::move(user), FileAttributes());
}

asio::awaitable<Result<std::unique_ptr<FileWrite>>> NativeSandbox::open_write_with(
    std::string path, WriteMode mode, std::uint32_t permissions, std::string user,
    FileAttributes attributes) {
  CO_TRY(check_path(path));
  wire::File file = file_request(wire::FileOp::write, std::move(path), std::move(user));
  file.mode = permissions;
  file.mode_flags = static_cast<std::uint32_t>(mode);
  file.other = std::move(attributes.prefix);
  for (auto& [name, value] : attributes.values) {
    file.attributes.push_back(name);
    file.attributes.push_back(std::move(value));
  }
  CO_TRY(check_ready());
  auto self = shared_from_this();
  co_return co_await on_strand(strand(), start_writing(birth_.channel, std::move(file)));
}

asio::awaitable<Result<std::string>> NativeSandbox::read_file(std::string path,
                                                              std::uint64_t most) {
  auto opening = open_read(std::move(path), "user");
  UniqueFd fd = CO_TRY(co_await std::move(opening));
  std::string data;
  std::string chunk(64 * 1024, '\0');
  for (;;) {
    ssize_t n = ::read(fd.get(), chunk.data(), chunk.size());
    if (n < 0) co_return fail_errno("read");
    if (n == 0) co_return data;
    if (data.size() + static_cast<std::size_t>(n) > most)
      co_return fail(Errc::exhausted, "the file is longer than " + std::to_string(most) + " bytes",
                     "open it and read it in pieces");
    data.append(chunk.data(), static_cast<std::size_t>(n));
  }
}

namespace {

// Until all is written, or whoever reads has stopped: it says why itself.
asio::awaitable<void> feed(asio::any_io_executor executor, UniqueFd pipe, std::string data) {
  asio::posix::stream_descriptor sink(executor, pipe.release());
  boost::system::error_code ignored;
  co_await asio::async_write(sink, asio::buffer(data),
                             asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace

asio::awaitable<Result<void>> NativeSandbox::write_file(std::string path, std::string data,
                                                        std::uint32_t permissions,
                                                        std::string user) {
  auto opening =
      open_write(std::move(path), WriteMode::create_or_replace, permissions, std::move(user));
  auto file = CO_TRY(co_await std::move(opening));
  co_await feed(strand(), file->take_pipe(), std::move(data));
  co_return co_await file->finish();
}

asio::awaitable<Result<FileInfo>> NativeSandbox::stat(std::string path, std::string user) {
  CO_TRY(check_path(path));
  auto asking = request(file_request(wire::FileOp::stat, std::move(path), std::move(user)));
  Letter answer = CO_TRY(co_await std::move(asking));
  auto info = answer.as<wire::Info>();
  if (!info) co_return fail(failure_in(answer));
  co_return to_info(std::move(info->entry));
}

asio::awaitable<Result<DirectoryPage>> NativeSandbox::list(std::string path, std::uint64_t cursor,
                                                           std::uint32_t most, std::string user) {
  CO_TRY(check_path(path));
  wire::File file = file_request(wire::FileOp::list, std::move(path), std::move(user));
  file.cursor = cursor;
  file.most = std::max(most, 1U);
  auto asking = request(std::move(file));
  Letter answer = CO_TRY(co_await std::move(asking));
  auto page = answer.as<wire::Page>();
  if (!page) co_return fail(failure_in(answer));
  DirectoryPage result;
  for (wire::Entry& entry : page->entries) result.entries.push_back(to_info(std::move(entry)));
  result.next = page->next;
  co_return result;
}

asio::awaitable<Result<void>> NativeSandbox::make_directory(std::string path, std::uint32_t mode,
                                                            std::string user) {
  CO_TRY(check_path(path));
  wire::File file = file_request(wire::FileOp::make_directory, std::move(path), std::move(user));
  file.mode = mode;
  co_return co_await request_done(std::move(file));
}

asio::awaitable<Result<void>> NativeSandbox::move(std::string from, std::string to,
                                                  std::string user) {
  CO_TRY(check_path(from));
  CO_TRY(check_path(to));
  wire::File file = file_request(wire::FileOp::move, std::move(from), std::move(user));
  file.other = std::move(to);
  co_return co_await request_done(std::move(file));
}

asio::awaitable<Result<void>> NativeSandbox::copy(std::string from, std::string to,
                                                  std::string user) {
  CO_TRY(check_path(from));
  CO_TRY(check_path(to));
  wire::File file = file_request(wire::FileOp::copy, std::move(from), std::move(user));
  file.other = std::move(to);
  co_return co_await request_done(std::move(file));
}

asio::awaitable<Result<void>> NativeSandbox::remove(std::string path, std::string user) {
  CO_TRY(check_path(path));
  co_return co_await request_done(
      file_request(wire::FileOp::remove, std::move(path), std::move(user)));
}

asio::awaitable<Result<void>> NativeSandbox::change_mode(std::string path, std::uint32_t mode,
                                                         std::string user) {
  CO_TRY(check_path(path));
  wire::File file = file_request(wire::FileOp::change_mode, std::move(path), std::move(user));
  file.mode = mode;
  co_return co_await request_done(std::move(file));
}

asio::awaitable<Result<void>> NativeSandbox::change_owner(std::string path, std::string owner,
                                                          std::string user) {
  CO_TRY(check_path(path));
  wire::File file = file_request(wire::FileOp::change_owner, std::move(path), std::move(user));
  file.other = std::move(owner);
  co_return co_await request_done(std::move(file));
}

asio::awaitable<Result<void>> NativeSandbox::symlink(std::string target, std::string path,
                                                     std::string user) {
  CO_TRY(check_path(path));
  wire::File file = file_request(wire::FileOp::symlink, std::move(path), std::move(user));
  file.other = std::move(target);
  co_return co_await request_done(std::move(file));
}

namespace {

asio::awaitable<Result<std::unique_ptr<Watch>>> start_watch(std::shared_ptr<Channel> channel,
                                                            std::string path, std::string user) {
  auto box = channel->box();
  CO_TRY(channel->send(box->id(),
                       file_request(wire::FileOp::watch, std::move(path), std::move(user))));
  Letter answer = CO_TRY(co_await box->next(Channel::Clock::now() + kAnswerWithin));
  if (!answer.as<wire::Done>()) co_return fail(failure_in(answer));
  box->allow_loss();  // A listener that does not listen loses events, not the sandbox.
  co_return std::make_unique<NativeWatch>(channel, std::move(box));
}

}  // namespace

asio::awaitable<Result<std::unique_ptr<Watch>>> NativeSandbox::watch(std::string path,
                                                                     std::string user) {
  CO_TRY(check_ready());
  CO_TRY(check_path(path));
  auto self = shared_from_this();
  co_return co_await on_strand(strand(),
                               start_watch(birth_.channel, std::move(path), std::move(user)));
}

asio::awaitable<Result<UniqueFd>> NativeSandbox::archive_out(std::string path, std::string user) {
  CO_TRY(check_path(path));
  auto asking = request(file_request(wire::FileOp::archive_out, std::move(path), std::move(user)));
  Letter answer = CO_TRY(co_await std::move(asking));
  co_return pipe_in(std::move(answer));
}

asio::awaitable<Result<Sandbox::ArchiveReport>> NativeSandbox::archive_in(std::string path,
                                                                          UniqueFd tar,
                                                                          std::string user) {
  CO_TRY(check_path(path));
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(tar));
  auto asking = request(file_request(wire::FileOp::archive_in, std::move(path), std::move(user)),
                        std::move(fds));
  Letter answer = CO_TRY(co_await std::move(asking));
  auto done = answer.as<wire::ArchiveDone>();
  if (!done) co_return fail(failure_in(answer));
  co_return ArchiveReport{done->entries, done->skipped, std::move(done->reasons)};
}

asio::awaitable<Result<UniqueFd>> NativeSandbox::connect(std::uint16_t port) {
  if (birth_.spec.network == Network::none)
    co_return fail(Errc::conflict, "the sandbox has no loopback",
                   "create it with the network loopback");
  wire::Connect connect;
  connect.port = port;
  auto asking = request(connect);
  Letter answer = CO_TRY(co_await std::move(asking));
  co_return stream_socket(std::move(answer));
}

}  // namespace asr
