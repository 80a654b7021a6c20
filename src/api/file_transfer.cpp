#include "api/file_transfer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "api/errors.hpp"
#include "base/id.hpp"

namespace asr {

namespace {

constexpr std::size_t kBlock = 256 * 1024;

std::string tag_of(const struct stat& info) {
  // A file without a name is a copy of one that lies elsewhere: its number means nothing.
  return '"' + std::to_string(info.st_nlink == 0 ? 0 : info.st_ino) + '-' +
         std::to_string(info.st_size) + '-' + std::to_string(info.st_mtim.tv_sec) + '.' +
         std::to_string(info.st_mtim.tv_nsec) + '"';
}

// Never shown by a browser as a page of this server, whatever is in it.
void add_file_headers(Headers& headers, const std::string& path, const struct stat& info) {
  std::string name = path.substr(path.rfind('/') + 1);
  headers.add("Content-Type", "application/octet-stream");
  headers.add("X-Content-Type-Options", "nosniff");
  headers.add("Content-Security-Policy", "sandbox; default-src 'none'");
  headers.add("Content-Disposition", "attachment; filename*=UTF-8''" + percent_encode(name));
  headers.add("ETag", tag_of(info));
  headers.add("Last-Modified", http_date(info.st_mtim.tv_sec));
  headers.add("Accept-Ranges", "bytes");
}

asio::awaitable<Result<void>> copy_body_to_pipe(CallPtr call, asio::posix::stream_descriptor* pipe,
                                                std::shared_ptr<ContentHash> hash) {
  std::string block(kBlock, '\0');
  for (;;) {
    auto reading = call->exchange->read_some(block);
    std::size_t n = CO_TRY(co_await std::move(reading));
    if (n == 0) co_return Result<void>();
    if (hash) hash->feed({block.data(), n});
    boost::system::error_code ec;
    co_await asio::async_write(*pipe, asio::buffer(block.data(), n),
                               asio::redirect_error(asio::use_awaitable, ec));
    // Whoever unpacks has stopped reading and says why itself.
    if (ec) co_return Result<void>();
  }
}

}  // namespace

asio::awaitable<Result<Reply>> send_download(CallPtr call, UniqueFd file, std::string path) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) co_return fail_errno("fstat");
  if (!S_ISREG(info.st_mode))
    co_return fail(Errc::invalid, "this is not a regular file",
                   "directories: …/files/list, or …/files/archive for all that is in one");
  Response response;
  add_file_headers(response.headers, path, info);
  const Headers& asked = call->head().headers;
  std::string tag = tag_of(info);
  std::string_view match = asked.get("if-match");
  if (!match.empty() && match != "*" && !asked.lists("if-match", tag)) {
    Error changed(Errc::conflict, "the file has changed");
    response = error_response(412, changed, call->caller.trace_id);
    auto responding = call->exchange->respond(std::move(response));
    CO_TRY(co_await std::move(responding));
    co_return Reply::done();
  }
  bool same = asked.has("if-none-match")
                  ? asked.lists("if-none-match", tag) || asked.get("if-none-match") == "*"
                  : asked.get("if-modified-since") == response.headers.get("last-modified");
  if (same) {
    response.status = 304;
    auto responding = call->exchange->respond(std::move(response));
    CO_TRY(co_await std::move(responding));
    co_return Reply::done();
  }
  auto size = static_cast<std::uint64_t>(info.st_size);
  ByteRange range{0, size == 0 ? 0 : size - 1};
  RangeVerdict verdict = RangeVerdict::whole;
  std::string_view unless = asked.get("if-range");
  if (unless.empty() || unless == tag) verdict = parse_range(asked.get("range"), size, range);
  if (verdict == RangeVerdict::impossible) {
    Error error(Errc::invalid, "the file has no such range");
    response = error_response(416, error, call->caller.trace_id);
    response.headers.add("Content-Range", "bytes */" + std::to_string(size));
    auto responding = call->exchange->respond(std::move(response));
    CO_TRY(co_await std::move(responding));
    co_return Reply::done();
  }
  std::uint64_t length = size;
  if (verdict == RangeVerdict::part) {
    response.status = 206;
    length = range.last - range.first + 1;
    response.headers.add("Content-Range", "bytes " + std::to_string(range.first) + "-" +
                                              std::to_string(range.last) + "/" +
                                              std::to_string(size));
  }
  auto beginning = call->exchange->begin(std::move(response), length);
  CO_TRY(co_await std::move(beginning));
  if (length > 0) {
    auto sending = call->exchange->send_file(file.get(), range.first, length);
    CO_TRY(co_await std::move(sending));
  }
  auto ending = call->exchange->end();
  CO_TRY(co_await std::move(ending));
  co_return Reply::done();
}

Result<bool> write_is_wanted(const RequestHead& head, const UniqueFd& present) {
  std::string tag;
  if (present) {
    struct stat info {};
    if (::fstat(present.get(), &info) != 0) return fail_errno("fstat");
    tag = tag_of(info);
  }
  auto names_it = [&](std::string_view header) {
    return present && (head.headers.get(header) == "*" || head.headers.lists(header, tag));
  };
  if (head.headers.has("if-match") && !names_it("if-match")) return false;
  return !(head.headers.has("if-none-match") && names_it("if-none-match"));
}

asio::awaitable<Result<void>> receive_upload(CallPtr call, asio::any_io_executor executor,
                                             std::shared_ptr<Sandbox> sandbox, std::string path,
                                             std::string user, std::uint32_t mode,
                                             std::shared_ptr<ContentHash> hash) {
  // Known beforehand not to fit: say so before it is sent.
  std::uint64_t disk = sandbox->spec().limits.disk_bytes;
  bool elsewhere = !sandbox->spec().volumes.empty();  // it may be
  if (!elsewhere && call->head().length.value_or(0) > disk)
    co_return fail(Errc::exhausted, "the file is larger than the session's disk",
                   "create sessions with more disk");
  std::size_t slash = path.rfind('/');
  std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  std::string name = path.substr(folder.size());
  if (name.empty() || name == "." || name == "..")
    co_return fail(Errc::invalid, "the path names no file");
  if (folder.size() > 1) {
    auto making = sandbox->make_directory(folder, 0755, user);
    auto made = co_await std::move(making);
    if (!made && made.error().code != Errc::conflict) co_return fail(std::move(made).error());
  }
  std::string partial = folder + "." + name.substr(0, 200) + "." + random_name(8) + ".part";
  auto opening = sandbox->open_write(partial, WriteMode::create_new, mode, user);
  auto file = co_await std::move(opening);
  Result<void> received;
  if (file) {
    asio::posix::stream_descriptor pipe(executor, (*file)->take_pipe().release());
    auto copying = copy_body_to_pipe(call, &pipe, std::move(hash));
    received = co_await std::move(copying);
    pipe.close();
    auto finishing = (*file)->finish();
    auto finished = co_await std::move(finishing);
    if (received) received = std::move(finished);
  } else {
    received = fail(std::move(file).error());
  }
  if (received) {
    auto moving = sandbox->move(partial, path, user);
    received = co_await std::move(moving);
  }
  if (received) co_return received;
  auto removing = sandbox->remove(partial, user);
  (void)co_await std::move(removing);
  // The name of the part means nothing to whoever asked.
  Error error = std::move(received).error();
  if (std::size_t at = error.what.find(partial); at != std::string::npos)
    error.what.replace(at, partial.size(), path);
  co_return fail(std::move(error));
}

asio::awaitable<Result<Reply>> send_pipe(CallPtr call, asio::any_io_executor executor,
                                         UniqueFd pipe, std::string media) {
  if (::fcntl(pipe.get(), F_SETFL, O_NONBLOCK) != 0) co_return fail_errno("fcntl");
  asio::posix::stream_descriptor source(executor, pipe.release());
  Response head;
  head.headers.add("Content-Type", std::move(media));
  head.headers.add("X-Content-Type-Options", "nosniff");
  head.headers.add("Content-Disposition", "attachment");
  auto beginning = call->exchange->begin(std::move(head), std::nullopt);
  CO_TRY(co_await std::move(beginning));
  std::string block(kBlock, '\0');
  for (;;) {
    boost::system::error_code ec;
    std::size_t n = co_await source.async_read_some(asio::buffer(block),
                                                    asio::redirect_error(asio::use_awaitable, ec));
    if (ec == asio::error::eof) break;
    if (ec) co_return fail(Errc::os, "the archive could not be read");
    auto writing = call->exchange->write(block.substr(0, n));
    CO_TRY(co_await std::move(writing));
  }
  auto ending = call->exchange->end();
  CO_TRY(co_await std::move(ending));
  co_return Reply::done();
}

asio::awaitable<Result<Sandbox::ArchiveReport>> receive_archive(CallPtr call,
                                                                asio::any_io_executor executor,
                                                                std::shared_ptr<Sandbox> sandbox,
                                                                std::string path, std::string user,
                                                                std::shared_ptr<ContentHash> hash) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) co_return fail_errno("pipe");
  UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  if (::fcntl(writing.get(), F_SETFL, O_NONBLOCK) != 0) co_return fail_errno("fcntl");
  asio::posix::stream_descriptor pipe(executor, writing.release());
  // Unpacked while it comes in.
  auto report = std::make_shared<std::optional<Result<Sandbox::ArchiveReport>>>();
  auto done = std::make_shared<asio::steady_timer>(executor, asio::steady_timer::time_point::max());
  auto unpacking = sandbox->archive_in(std::move(path), std::move(reading), std::move(user));
  asio::co_spawn(executor, std::move(unpacking),
                 [report, done](const std::exception_ptr&, Result<Sandbox::ArchiveReport> result) {
                   report->emplace(std::move(result));
                   done->cancel();
                 });
  auto copying = copy_body_to_pipe(call, &pipe, std::move(hash));
  auto copied = co_await std::move(copying);
  pipe.close();
  while (!*report) {
    boost::system::error_code ignored;
    co_await done->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  CO_TRY(std::move(copied));
  co_return std::move(**report);
}

}  // namespace asr
