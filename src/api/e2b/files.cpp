// /files: bytes in and out, a little at a time.
#include <unistd.h>

#include <set>

#include "api/e2b/envd.hpp"
#include "api/e2b/file_work.hpp"
#include "api/e2b/inflate.hpp"
#include "api/e2b/multipart.hpp"
#include "api/e2b/upload.hpp"
#include "api/file_transfer.hpp"

namespace asr {

namespace {

constexpr std::size_t kBlock = 256 * 1024;
constexpr std::size_t kMostComposed = 1000;

unsigned status_of_file_error(const Error& error) {
  switch (error.code) {
    case Errc::invalid:
    case Errc::conflict:
      return 400;
    case Errc::not_found:
      return 404;
    case Errc::denied:
      return 403;
    case Errc::exhausted:
      return 507;
    case Errc::gone:
      return 502;
    default:
      return 500;
  }
}

// The body, unpacked if it was packed.
class BodySource {
 public:
  explicit BodySource(Exchange* exchange) : exchange_(exchange), block_(kBlock, '\0') {}

  Result<void> begin() {
    std::string_view coding = exchange_->head().headers.get("content-encoding");
    if (coding.empty() || equal_ignoring_case(coding, "identity")) return {};
    if (!equal_ignoring_case(coding, "gzip"))
      return fail(Errc::invalid, "unsupported content encoding: " + std::string(coding));
    inflater_ = std::make_unique<Inflater>();
    return {};
  }

  // Empty at the end. Valid until the next call.
  asio::awaitable<Result<std::string_view>> next() {
    for (;;) {
      if (inflater_) {
        std::string_view made = CO_TRY(inflater_->next());
        if (!made.empty()) co_return made;
      }
      auto reading = exchange_->read_some(block_);
      std::size_t n = CO_TRY(co_await std::move(reading));
      std::string_view came(block_.data(), n);
      if (n == 0 && inflater_ && !inflater_->is_complete())
        co_return fail(Errc::invalid, "the body ended too early");
      if (n == 0 || !inflater_) co_return came;
      inflater_->feed(came);
    }
  }

 private:
  Exchange* exchange_;
  std::string block_;
  std::unique_ptr<Inflater> inflater_;
};

json::object written_entry(const std::string& path, const FileAttributes& metadata) {
  json::object entry{{"path", repair_utf8(path)},
                     {"name", repair_utf8(path.substr(path.rfind('/') + 1))},
                     {"type", "file"}};
  json::object told = metadata_of(metadata.values);
  if (!told.empty()) entry["metadata"] = std::move(told);
  return entry;
}

asio::awaitable<Result<json::array>> take_plain(EnvdCallPtr call, std::string path) {
  if (path.empty()) co_return fail(Errc::invalid, "the parameter path is missing");
  FileAttributes metadata = CO_TRY(metadata_in(call->head().headers));
  BodySource body(call->exchange);
  CO_TRY(body.begin());
  auto opening = Upload::open(call, call->resolve(path), metadata);
  auto upload = CO_TRY(co_await std::move(opening));
  Result<void> taken;
  for (;;) {
    auto reading = body.next();
    auto data = co_await std::move(reading);
    if (!data) taken = fail(data.error());
    if (!data || data->empty()) break;
    auto writing = upload->write(*data);
    CO_TRY(co_await std::move(writing));
  }
  auto finishing = upload->finish();
  auto finished = co_await std::move(finishing);
  CO_TRY(std::move(taken));
  CO_TRY(std::move(finished));
  co_return json::array{written_entry(upload->path(), metadata)};
}

// File after file out of one body. `path` is instead of the name of the only one.
asio::awaitable<Result<json::array>> take_parts(EnvdCallPtr call, std::string path) {
  using Kind = MultipartReader::Event::Kind;
  std::string boundary = CO_TRY(multipart_boundary(call->head().headers.get("content-type")));
  FileAttributes metadata = CO_TRY(metadata_in(call->head().headers));
  MultipartReader reader(boundary);
  BodySource body(call->exchange);
  CO_TRY(body.begin());
  json::array written;
  std::set<std::string> targets;
  std::unique_ptr<Upload> upload;
  for (;;) {
    MultipartReader::Event event = CO_TRY(reader.next());
    if (event.kind == Kind::end) break;
    if (event.kind == Kind::hungry) {
      auto reading = body.next();
      std::string_view data = CO_TRY(co_await std::move(reading));
      if (data.empty()) co_return fail(Errc::invalid, "the body ended too early");
      reader.feed(data);
    } else if (event.kind == Kind::part && event.name == "file") {
      std::string target = call->resolve(path.empty() ? event.filename : path);
      if (path.empty() && event.filename.empty())
        co_return fail(Errc::invalid, "a file of the body has no name");
      if (!targets.insert(target).second)
        co_return fail(Errc::invalid, "you cannot upload multiple files to the same path '" +
                                          target + "' in one upload request");
      auto opening = Upload::open(call, std::move(target), metadata);
      upload = CO_TRY(co_await std::move(opening));
    } else if (event.kind == Kind::data && upload) {
      auto writing = upload->write(event.data);
      CO_TRY(co_await std::move(writing));
    } else if (event.kind == Kind::done && upload) {
      auto finishing = upload->finish();
      CO_TRY(co_await std::move(finishing));
      written.push_back(written_entry(upload->path(), metadata));
      upload.reset();
    }
  }
  co_return written;
}

Answering write(EnvdCallPtr call) {
  std::string path = call->head().parameter("path").value_or("");
  bool plain = is_media(call->head().headers.get("content-type"), "application/octet-stream");
  auto taking = plain ? take_plain(call, std::move(path)) : take_parts(call, std::move(path));
  auto taken = co_await std::move(taking);
  if (!taken) {
    auto failing =
        answer_plain_error(call->exchange, status_of_file_error(taken.error()),
                           taken.error().code == Errc::exhausted ? "not enough disk space available"
                                                                 : taken.error().what);
    co_return co_await std::move(failing);
  }
  call->session->touch();
  auto answering = answer_json(call->exchange, *std::move(taken));
  co_return co_await std::move(answering);
}

Answering read(EnvdCallPtr call) {
  std::string path = call->resolve(call->head().parameter("path").value_or(""));
  auto work = [call, path](std::string user) {
    return call->sandbox->open_read(path, std::move(user));
  };
  auto opening = with_rights<UniqueFd>(call, std::move(work));
  auto file = co_await std::move(opening);
  if (!file) {
    std::string what = file.error().code == Errc::not_found  ? "path '" + path + "' does not exist"
                       : file.error().code == Errc::conflict ? "path '" + path + "' is a directory"
                                                             : file.error().what;
    auto failing =
        answer_plain_error(call->exchange, status_of_file_error(file.error()), std::move(what));
    co_return co_await std::move(failing);
  }
  auto plain = std::make_shared<Call>();
  plain->exchange = call->exchange;
  plain->caller = call->caller;
  auto sending = send_download(plain, *std::move(file), path);
  CO_TRY(co_await std::move(sending));
  co_return Result<void>();
}

// Several files become one; they are gone afterwards.
asio::awaitable<Result<json::object>> put_together(EnvdCallPtr call) {
  auto reading = call->exchange->read_body(kMostRpcMessage);
  std::string text = CO_TRY(co_await std::move(reading));
  json::object message = CO_TRY(message_from(text));
  const json::value* sources = message.if_contains("source_paths");
  std::string destination = CO_TRY(text_field(message, "destination"));
  if (!sources || !sources->is_array() || sources->get_array().empty() || destination.empty())
    co_return fail(Errc::invalid, "source_paths and destination are needed");
  if (sources->get_array().size() > kMostComposed)
    co_return fail(Errc::invalid, "at most 1000 files at once");
  destination = call->resolve(destination);
  std::vector<std::string> paths;
  for (const json::value& source : sources->get_array()) {
    if (!source.is_string()) co_return fail(Errc::invalid, "source_paths must be texts");
    paths.push_back(call->resolve(source.get_string()));
    if (paths.back() == destination)
      co_return fail(Errc::invalid, "the destination is one of the sources");
  }
  auto opening = Upload::open(call, destination, FileAttributes{std::string(kMetadataPrefix), {}});
  auto upload = CO_TRY(co_await std::move(opening));
  std::string block(kBlock, '\0');
  for (const std::string& path : paths) {
    auto work = [call, path](std::string user) {
      return call->sandbox->open_read(path, std::move(user));
    };
    auto looking = with_rights<UniqueFd>(call, std::move(work));
    UniqueFd file = CO_TRY(co_await std::move(looking));
    for (;;) {
      ssize_t n = ::read(file.get(), block.data(), block.size());
      if (n < 0) co_return fail_errno("read " + path);
      if (n == 0) break;
      auto writing = upload->write({block.data(), static_cast<std::size_t>(n)});
      CO_TRY(co_await std::move(writing));
    }
  }
  auto finishing = upload->finish();
  CO_TRY(co_await std::move(finishing));
  for (const std::string& path : paths) {
    auto work = [call, path](std::string user) {
      return call->sandbox->remove(path, std::move(user));
    };
    auto removing = with_rights<void>(call, std::move(work));
    CO_TRY(co_await std::move(removing));
  }
  co_return written_entry(destination, {});
}

Answering compose(EnvdCallPtr call) {
  auto putting = put_together(call);
  auto made = co_await std::move(putting);
  if (made) {
    auto answering = answer_json(call->exchange, *std::move(made));
    co_return co_await std::move(answering);
  }
  auto failing =
      answer_plain_error(call->exchange, status_of_file_error(made.error()), made.error().what);
  co_return co_await std::move(failing);
}

}  // namespace

Answering serve_files(EnvdCallPtr call) {
  const RequestHead& head = call->head();
  bool reads = head.method == "GET" || head.method == "HEAD";
  if (head.path == "/files" && reads) return read(std::move(call));
  if (head.path == "/files" && head.method == "POST") return write(std::move(call));
  if (head.path == "/files/compose" && head.method == "POST") return compose(std::move(call));
  return answer_plain_error(call->exchange, 405, "this address has no " + head.method);
}

}  // namespace asr
