#include "net/http_connection.hpp"

#include <poll.h>
#include <sys/sendfile.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <charconv>
#include <ctime>

#include "net/deadline.hpp"
#include "net/web_socket.hpp"

namespace asr {

namespace http = beast::http;
namespace websocket = beast::websocket;

namespace {

constexpr std::size_t kLongestTarget = 8 * 1024;
constexpr std::chrono::seconds kHearOut{2};
constexpr std::size_t kMostHeardOut = 64 << 20;
constexpr std::size_t kBufferBeyondHead = 64 * 1024;
constexpr std::size_t kMostPart = 256 * 1024;      // of a body that is read whole
constexpr std::size_t kLeftoverBody = 256 * 1024;  // so much nobody read is skipped, not more

Error connection_lost() { return Error(Errc::gone, "the client has gone"); }

template <class Stream>
class HttpConnection final : public Connection, public Exchange {
 public:
  HttpConnection(Stream stream, std::shared_ptr<Serving> serving)
      : stream_(std::move(stream)),
        serving_(std::move(serving)),
        // Also what one chunk's head or the trailers may take.
        buffer_(serving_->options.most_head_bytes + kBufferBeyondHead) {}

  asio::awaitable<void> serve() override;
  void close_if_idle() noexcept override {
    if (idle_) close();
  }
  bool is_answering() const noexcept override { return !idle_ && !taken_ && !endless_; }
  void close() noexcept override {
    if (taken_) return;
    boost::system::error_code ignored;
    beast::get_lowest_layer(stream_).socket().close(ignored);
  }

  const RequestHead& head() const noexcept override { return head_; }
  asio::awaitable<Result<std::size_t>> read_some(std::span<char> buffer) override;
  asio::awaitable<Result<std::string>> read_body(std::size_t most) override;
  void always_send(std::string name, std::string value) override {
    always_.add(std::move(name), std::move(value));
  }
  asio::awaitable<Result<void>> respond(Response response) override;
  asio::awaitable<Result<void>> begin(Response head, std::optional<std::uint64_t> length) override;
  asio::awaitable<Result<void>> write(std::string data) override;
  asio::awaitable<Result<void>> write_last(std::string data) override;
  void hold_head() noexcept override { holds_head_ = true; }
  bool is_client_there() noexcept override;
  asio::awaitable<Result<void>> send_file(int file, std::uint64_t offset,
                                          std::uint64_t length) override;
  asio::awaitable<Result<void>> end() override;
  bool wants_websocket() const noexcept override;
  asio::awaitable<Result<std::unique_ptr<WebSocket>>> upgrade(std::string protocol,
                                                              std::size_t most) override;
  std::unique_ptr<ByteStream> take_over() override;
  TakenSocket take_socket() override;
  bool has_answered() const noexcept override { return answered_; }

 private:
  using Parser = http::request_parser<http::buffer_body>;
  enum class Head { complete, over, refused };

  asio::awaitable<bool> handshake();
  asio::awaitable<Head> read_head();
  asio::awaitable<Head> refuse(unsigned status, std::string what);
  bool understand_head(std::size_t size);
  asio::awaitable<std::size_t> read_from_stream(std::span<char> buffer);
  asio::awaitable<std::size_t> read_chunked(std::span<char> buffer);
  asio::awaitable<bool> skip_rest_of_body();
  asio::awaitable<void> hear_out();
  asio::awaitable<void> say_continue();
  template <class Body>
  void fill(http::response<Body>& message, Response& response);
  template <class Buffers>
  asio::awaitable<Result<void>> write_all(Buffers buffers);
  asio::awaitable<Result<void>> write_parts(std::string_view data, bool last);
  asio::awaitable<void> wait_for_room();
  asio::awaitable<Result<void>> copy_file(int file, std::uint64_t offset, std::uint64_t length);
  void allow(std::chrono::seconds time) { beast::get_lowest_layer(stream_).expires_after(time); }

  Stream stream_;
  std::shared_ptr<Serving> serving_;
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  RequestHead head_;
  std::uint64_t body_left_ = 0;  // of a body whose length was announced
  bool chunked_ = false;
  Headers always_;
  bool is_version_10_ = false;
  bool continue_wanted_ = false;
  bool keep_alive_ = true;
  bool idle_ = true;
  bool answered_ = false;
  bool ended_ = false;  // the answer is complete
  bool chunked_answer_ = false;
  bool endless_ = false;  // the answer goes on until somebody leaves
  bool taken_ = false;
  bool holds_head_ = false;
  std::string held_head_;  // not sent yet
  boost::system::error_code error_;
};

template <class Stream>
asio::awaitable<bool> HttpConnection<Stream>::handshake() {
  if constexpr (std::is_same_v<Stream, TlsStream>) {
    allow(serving_->options.head_time);
    const std::string& hello = serving_->hello;
    if (hello.empty()) {
      co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                       asio::redirect_error(asio::use_awaitable, error_));
      co_return !error_;
    }
    std::size_t used =
        co_await stream_.async_handshake(asio::ssl::stream_base::server, asio::buffer(hello),
                                         asio::redirect_error(asio::use_awaitable, error_));
    co_return !error_ && used == hello.size();
  } else {
    co_return true;
  }
}

template <class Stream>
asio::awaitable<void> HttpConnection<Stream>::serve() {
  boost::system::error_code ec;
  auto peer = beast::get_lowest_layer(stream_).socket().remote_endpoint(ec);
  head_.peer = ec ? "" : peer.address().to_string();
  head_.tls = std::is_same_v<Stream, TlsStream>;
  if (!co_await handshake()) co_return;
  while (!serving_->stopping) {
    Head result = co_await read_head();
    if (result != Head::complete) break;
    co_await serving_->handler(this);
    if (taken_) co_return;
    if (!answered_) {
      Response nothing = serving_->refusal(500, "the request was not answered");
      (void)co_await respond(std::move(nothing));
    }
    // An answer that stops half way can only be told by closing.
    if (!ended_ || !keep_alive_ || error_) break;
    if (!co_await skip_rest_of_body()) break;
  }
  if (answered_ && !keep_alive_) co_await hear_out();
  if constexpr (std::is_same_v<Stream, TlsStream>) {
    allow(std::chrono::seconds(5));
    if (!error_) co_await stream_.async_shutdown(asio::redirect_error(asio::use_awaitable, error_));
  } else {
    beast::get_lowest_layer(stream_).socket().shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  }
}

// Waits long for the first byte, then not long for the rest.
template <class Stream>
auto HttpConnection<Stream>::read_head() -> asio::awaitable<Head> {
  const HttpServerOptions& options = serving_->options;
  answered_ = ended_ = chunked_answer_ = endless_ = continue_wanted_ = chunked_ = false;
  body_left_ = 0;
  holds_head_ = false;
  held_head_.clear();
  parser_.reset();
  always_ = Headers();
  head_.method.clear();
  idle_ = buffer_.size() == 0;
  auto& lowest = beast::get_lowest_layer(stream_);
  lowest.expires_never();
  std::optional<Deadline> deadline;
  deadline.emplace(lowest.socket(), idle_ ? options.idle_time : options.head_time);
  std::size_t scanned = 0;
  for (;;) {
    std::string_view text(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    std::size_t end = text.find("\r\n\r\n", scanned);
    if (std::min(text.find('\n'), text.size()) > kLongestTarget)
      co_return co_await refuse(414, "the address is too long");
    if (end != std::string_view::npos) {
      if (end + 4 > options.most_head_bytes) co_return co_await refuse(431, "headers too large");
      break;
    }
    if (text.size() > options.most_head_bytes) co_return co_await refuse(431, "headers too large");
    // A line that ends without CR, or a zero byte, will not get better by waiting.
    for (std::size_t i = scanned; i < text.size(); ++i)
      if (text[i] == '\0' || (text[i] == '\n' && (i == 0 || text[i - 1] != '\r')))
        co_return co_await refuse(400, "lines must end with CR LF");
    scanned = text.size() < 3 ? 0 : text.size() - 3;
    auto room = buffer_.prepare(4096);
    std::size_t n =
        co_await stream_.async_read_some(room, asio::redirect_error(asio::use_awaitable, error_));
    if (error_ && deadline->has_passed() && !idle_)
      co_return co_await refuse(408, "the headers took too long");
    if (error_) co_return Head::over;
    buffer_.commit(n);
    if (idle_) {
      idle_ = false;
      deadline.emplace(lowest.socket(), options.head_time);
    }
  }
  std::string_view text(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  std::size_t size = text.find("\r\n\r\n") + 4;
  std::string_view raw = text.substr(0, size);
  if (static_cast<std::size_t>(std::count(raw.begin(), raw.end(), '\n')) >
      options.most_head_fields + 2)
    co_return co_await refuse(431, "too many headers");
  auto checked = check_head(raw, options.targets);
  if (!checked) co_return co_await refuse(400, checked.error().what);
  if (!understand_head(size)) co_return co_await refuse(400, "malformed request");
  co_return Head::complete;
}

template <class Stream>
bool HttpConnection<Stream>::understand_head(std::size_t size) {
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(serving_->options.most_head_bytes + 1024));
  parser_->body_limit(boost::none);
  boost::system::error_code ec;
  parser_->put(asio::buffer(buffer_.data().data(), size), ec);
  if (ec == http::error::need_buffer) ec = {};
  if (ec || !parser_->is_header_done()) return false;
  buffer_.consume(size);

  const auto& request = parser_->get();
  head_.method = std::string(request.method_string());
  head_.target = std::string(request.target());
  std::size_t question = std::min(head_.target.find('?'), head_.target.size());
  head_.path.clear();
  if (head_.target[0] == '/') {
    auto path = percent_decode(std::string_view(head_.target).substr(0, question));
    if (!path) return false;
    head_.path = std::move(*path);
  }
  head_.query = head_.target.substr(std::min(question + 1, head_.target.size()));
  head_.headers = Headers();
  for (const auto& field : request)
    head_.headers.add(std::string(field.name_string()), std::string(field.value()));
  keep_alive_ = request.keep_alive();
  is_version_10_ = request.version() < 11;
  chunked_ = parser_->chunked();
  auto length = parser_->content_length();
  head_.length = length ? std::optional<std::uint64_t>(*length) : std::nullopt;
  body_left_ = head_.length.value_or(0);
  head_.has_body = chunked_ || body_left_ > 0;
  continue_wanted_ =
      head_.has_body && equal_ignoring_case(head_.headers.get("expect"), "100-continue");
  return true;
}

// The connection's state is unknown afterwards, so it ends.
template <class Stream>
auto HttpConnection<Stream>::refuse(unsigned status, std::string what) -> asio::awaitable<Head> {
  keep_alive_ = false;
  error_ = {};
  allow(std::chrono::seconds(5));
  Response response = serving_->refusal(status, std::move(what));
  (void)co_await respond(std::move(response));
  co_return Head::refused;
}

template <class Stream>
asio::awaitable<void> HttpConnection<Stream>::say_continue() {
  continue_wanted_ = false;
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  allow(serving_->options.body_time);
  co_await asio::async_write(stream_, asio::buffer(kContinue),
                             asio::redirect_error(asio::use_awaitable, error_));
}

template <class Stream>
asio::awaitable<std::size_t> HttpConnection<Stream>::read_from_stream(std::span<char> buffer) {
  std::size_t most = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), body_left_));
  std::size_t n = 0;
  if (buffer_.size() > 0) {
    n = asio::buffer_copy(asio::buffer(buffer.data(), most), buffer_.data());
    buffer_.consume(n);
  } else {
    n = co_await stream_.async_read_some(asio::buffer(buffer.data(), most),
                                         asio::redirect_error(asio::use_awaitable, error_));
  }
  body_left_ -= n;
  co_return n;
}

template <class Stream>
asio::awaitable<std::size_t> HttpConnection<Stream>::read_chunked(std::span<char> buffer) {
  auto& body = parser_->get().body();
  while (!parser_->is_done()) {
    body.data = buffer.data();
    body.size = buffer.size();
    body.more = true;
    co_await http::async_read_some(stream_, buffer_, *parser_,
                                   asio::redirect_error(asio::use_awaitable, error_));
    if (error_ == http::error::need_buffer) error_ = {};
    if (error_) co_return 0;
    if (body.size < buffer.size()) co_return buffer.size() - body.size;
  }
  co_return 0;
}

template <class Stream>
asio::awaitable<Result<std::size_t>> HttpConnection<Stream>::read_some(std::span<char> buffer) {
  if (!chunked_ && body_left_ == 0) co_return std::size_t{0};
  if (continue_wanted_) co_await say_continue();
  allow(serving_->options.body_time);
  std::size_t n = 0;
  if (!error_) {
    if (chunked_)
      n = co_await read_chunked(buffer);
    else
      n = co_await read_from_stream(buffer);
  }
  if (!error_) {
    if (chunked_ && parser_->is_done()) chunked_ = false;
    co_return n;
  }
  keep_alive_ = false;
  if (error_ == beast::error::timeout) co_return fail(Errc::timeout, "the body came too slowly");
  if (error_ == asio::error::eof || error_ == http::error::end_of_stream ||
      error_ == http::error::partial_message)
    co_return fail(Errc::invalid, "the body ended too early");
  if (error_.category() == http::make_error_code(http::error::bad_chunk).category())
    co_return fail(Errc::invalid, "malformed body");
  co_return fail(connection_lost());
}

template <class Stream>
asio::awaitable<Result<std::string>> HttpConnection<Stream>::read_body(std::size_t most) {
  std::string body;
  if (head_.length.value_or(0) > most)
    co_return fail(Errc::exhausted, "the body is larger than " + std::to_string(most) + " bytes");
  // As much as comes at once, and not all that is announced: that may never come.
  std::size_t at_once = std::min<std::size_t>(most, head_.length.value_or(16 * 1024));
  std::string part(std::min(at_once, kMostPart) + 1, '\0');
  for (;;) {
    std::size_t n = CO_TRY(co_await read_some(part));
    if (n == 0) co_return body;
    if (body.size() + n > most)
      co_return fail(Errc::exhausted, "the body is larger than " + std::to_string(most) + " bytes");
    body.append(part.data(), n);
  }
}

// A client that still sends gets no answer if the connection is reset under it: what it sends is
// taken for a little while, after it was told that no more will come.
template <class Stream>
asio::awaitable<void> HttpConnection<Stream>::hear_out() {
  auto& socket = beast::get_lowest_layer(stream_).socket();
  boost::system::error_code ec;
  if (std::is_same_v<Stream, PlainStream>)
    socket.shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  beast::get_lowest_layer(stream_).expires_never();
  Deadline deadline(socket, kHearOut);
  std::string part(64 * 1024, '\0');
  for (std::size_t heard = 0; !ec && heard < kMostHeardOut;)
    heard += co_await socket.async_read_some(asio::buffer(part),
                                             asio::redirect_error(asio::use_awaitable, ec));
}

// What a handler left unread: a little is skipped, for more the connection is not worth keeping.
template <class Stream>
asio::awaitable<bool> HttpConnection<Stream>::skip_rest_of_body() {
  if (!chunked_ && body_left_ == 0) co_return true;
  if (continue_wanted_ || body_left_ > kLeftoverBody) co_return false;
  std::string part(16 * 1024, '\0');
  for (std::size_t skipped = 0; skipped <= kLeftoverBody;) {
    auto n = co_await read_some(part);
    if (!n) co_return false;
    if (*n == 0) co_return true;
    skipped += *n;
  }
  co_return false;
}

template <class Stream>
template <class Body>
void HttpConnection<Stream>::fill(http::response<Body>& message, Response& response) {
  message.version(11);
  message.result(response.status);
  for (auto& [name, value] : response.headers.all()) message.insert(name, value);
  for (auto& [name, value] : always_.all()) message.set(name, value);
  message.set(http::field::date, http_date(std::time(nullptr)));
  // A body that will not be read to its end takes the connection with it.
  bool leaves_rest = continue_wanted_ || chunked_ || body_left_ > kLeftoverBody;
  if (serving_->stopping || leaves_rest) keep_alive_ = false;
  message.keep_alive(keep_alive_);
}

template <class Stream>
template <class Buffers>
asio::awaitable<Result<void>> HttpConnection<Stream>::write_all(Buffers buffers) {
  allow(serving_->options.body_time);
  co_await asio::async_write(stream_, buffers, asio::redirect_error(asio::use_awaitable, error_));
  if (error_) co_return fail(connection_lost());
  co_return Result<void>();
}

template <class Stream>
asio::awaitable<Result<void>> HttpConnection<Stream>::respond(Response response) {
  if (answered_) co_return fail(Errc::internal, "answered twice");
  answered_ = true;
  http::response<http::string_body> message;
  fill(message, response);
  message.body() = std::move(response.body);
  bool bodiless = response.status == 204 || response.status == 304 || head_.method == "HEAD";
  if (response.status != 204 && response.status != 304)
    message.content_length(message.body().size());
  if (bodiless) message.body().clear();
  allow(serving_->options.body_time);
  co_await http::async_write(stream_, message, asio::redirect_error(asio::use_awaitable, error_));
  if (error_) co_return fail(connection_lost());
  ended_ = true;
  co_return Result<void>();
}

template <class Stream>
asio::awaitable<Result<void>> HttpConnection<Stream>::begin(Response head,
                                                            std::optional<std::uint64_t> length) {
  if (answered_) co_return fail(Errc::internal, "answered twice");
  answered_ = true;
  http::response<http::empty_body> message;
  fill(message, head);
  if (length) {
    message.content_length(*length);
  } else if (is_version_10_) {
    keep_alive_ = false;  // The end of the connection is the end of the answer.
    message.keep_alive(false);
  } else {
    message.chunked(true);
    chunked_answer_ = true;
    endless_ = head.headers.get("content-type") == "text/event-stream";
  }
  http::response_serializer<http::empty_body> serializer{message};
  if (std::exchange(holds_head_, false) && head_.method != "HEAD") {
    boost::system::error_code ec;
    auto take = [&](boost::system::error_code&, auto buffers) {
      for (asio::const_buffer part : beast::buffers_range_ref(buffers))
        held_head_.append(static_cast<const char*>(part.data()), part.size());
      serializer.consume(beast::buffer_bytes(buffers));
    };
    serializer.split(true);
    while (!ec && !serializer.is_header_done()) serializer.next(ec, take);
    if (ec) co_return fail(Errc::internal, "the head of an answer cannot be written");
    co_return Result<void>();
  }
  allow(serving_->options.body_time);
  co_await http::async_write_header(stream_, serializer,
                                    asio::redirect_error(asio::use_awaitable, error_));
  if (error_) co_return fail(connection_lost());
  co_return Result<void>();
}

template <class Stream>
asio::awaitable<Result<void>> HttpConnection<Stream>::write(std::string data) {
  if ((data.empty() && held_head_.empty()) || head_.method == "HEAD") co_return Result<void>();
  co_return co_await write_parts(data, false);
}

template <class Stream>
asio::awaitable<Result<void>> HttpConnection<Stream>::write_last(std::string data) {
  if (head_.method != "HEAD") CO_TRY(co_await write_parts(data, true));
  ended_ = true;
  co_return Result<void>();
}

// Some of the answer, in one call: what was held back, the bytes, the end.
template <class Stream>
asio::awaitable<Result<void>> HttpConnection<Stream>::write_parts(std::string_view data,
                                                                  bool last) {
  std::string before = std::exchange(held_head_, {});
  std::string_view after;
  if (chunked_answer_) {
    constexpr std::string_view kEnd = "\r\n0\r\n\r\n";
    std::array<char, 20> length{};
    char* end = std::to_chars(length.data(), length.data() + 18, data.size(), 16).ptr;
    if (!data.empty()) before.append(length.data(), end).append("\r\n");
    after = last ? kEnd : kEnd.substr(0, 2);
    if (data.empty()) after.remove_prefix(2);
  }
  std::array<asio::const_buffer, 3> parts{asio::buffer(before), asio::buffer(data),
                                          asio::buffer(after)};
  co_return co_await write_all(parts);
}

template <class Stream>
bool HttpConnection<Stream>::is_client_there() noexcept {
  pollfd asked{beast::get_lowest_layer(stream_).socket().native_handle(), POLLRDHUP, 0};
  return ::poll(&asked, 1, 0) <= 0;
}

template <class Stream>
asio::awaitable<Result<void>> HttpConnection<Stream>::end() {
  bool unsaid = chunked_answer_ || !held_head_.empty();
  if (unsaid && head_.method != "HEAD") CO_TRY(co_await write_parts({}, true));
  ended_ = true;
  co_return Result<void>();
}

template <class Stream>
asio::awaitable<Result<void>> HttpConnection<Stream>::copy_file(int file, std::uint64_t offset,
                                                                std::uint64_t length) {
  std::string block(std::min<std::uint64_t>(length, 256 * 1024), '\0');
  while (length > 0) {
    ssize_t n = ::pread(file, block.data(), std::min<std::uint64_t>(block.size(), length),
                        static_cast<off_t>(offset));
    if (n <= 0) co_return fail(Errc::conflict, "the file became shorter while it was read");
    auto part = asio::buffer(block.data(), static_cast<std::size_t>(n));
    CO_TRY(co_await write_all(part));
    offset += static_cast<std::uint64_t>(n);
    length -= static_cast<std::uint64_t>(n);
  }
  co_return Result<void>();
}

template <class Stream>
asio::awaitable<void> HttpConnection<Stream>::wait_for_room() {
  auto& socket = beast::get_lowest_layer(stream_).socket();
  Deadline deadline(socket, serving_->options.body_time);
  co_await socket.async_wait(asio::ip::tcp::socket::wait_write,
                             asio::redirect_error(asio::use_awaitable, error_));
}

template <class Stream>
asio::awaitable<Result<void>> HttpConnection<Stream>::send_file(int file, std::uint64_t offset,
                                                                std::uint64_t length) {
  if (head_.method == "HEAD") co_return Result<void>();
  if (!held_head_.empty()) CO_TRY(co_await write_parts({}, false));
  if constexpr (std::is_same_v<Stream, TlsStream>) {
    co_return co_await copy_file(file, offset, length);
  } else {
    auto& socket = stream_.socket();
    socket.native_non_blocking(true, error_);
    auto at = static_cast<off_t>(offset);
    std::uint64_t left = length;
    while (left > 0) {
      // Little at once: others want to be served between.
      ssize_t n =
          ::sendfile(socket.native_handle(), file, &at, std::min<std::uint64_t>(left, 1024 * 1024));
      if (n > 0) {
        left -= static_cast<std::uint64_t>(n);
        continue;
      }
      if (n == 0) co_return fail(Errc::conflict, "the file became shorter while it was read");
      if (errno == EINTR) continue;
      if (errno == EINVAL && left == length) co_return co_await copy_file(file, offset, length);
      if (errno != EAGAIN) co_return fail(connection_lost());
      co_await wait_for_room();
      if (error_) co_return fail(connection_lost());
    }
    co_return Result<void>();
  }
}

template <class Stream>
bool HttpConnection<Stream>::wants_websocket() const noexcept {
  return parser_ && websocket::is_upgrade(parser_->get());
}

template <class Stream>
asio::awaitable<Result<std::unique_ptr<WebSocket>>> HttpConnection<Stream>::upgrade(
    std::string protocol, std::size_t most) {
  if (!wants_websocket()) co_return fail(Errc::invalid, "this address speaks WebSocket");
  if (buffer_.size() > 0) co_return fail(Errc::invalid, "frames before the handshake");
  // Beast would refuse these by itself, in words of its own.
  if (head_.headers.get("sec-websocket-version") != "13")
    co_return fail(Errc::invalid, "only version 13 of WebSocket is spoken here");
  if (head_.headers.get("sec-websocket-key").size() != 24)
    co_return fail(Errc::invalid, "malformed Sec-WebSocket-Key");
  beast::get_lowest_layer(stream_).expires_never();
  answered_ = ended_ = taken_ = true;
  http::request<http::empty_body> request;
  request.base() = parser_->get().base();
  auto opening = open_web_socket(std::move(stream_), std::move(request), std::move(protocol), most);
  co_return co_await std::move(opening);
}

template <class Stream>
std::unique_ptr<ByteStream> HttpConnection<Stream>::take_over() {
  answered_ = ended_ = taken_ = true;
  beast::get_lowest_layer(stream_).expires_never();
  std::string rest(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  return make_byte_stream(std::move(stream_), std::move(rest));
}

template <class Stream>
TakenSocket HttpConnection<Stream>::take_socket() {
  answered_ = ended_ = taken_ = true;
  std::string rest(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  return {beast::get_lowest_layer(stream_).release_socket(), std::move(rest)};
}

}  // namespace

std::shared_ptr<Connection> make_connection(PlainStream stream, std::shared_ptr<Serving> serving) {
  return std::make_shared<HttpConnection<PlainStream>>(std::move(stream), std::move(serving));
}

std::shared_ptr<Connection> make_connection(TlsStream stream, std::shared_ptr<Serving> serving) {
  return std::make_shared<HttpConnection<TlsStream>>(std::move(stream), std::move(serving));
}

}  // namespace asr
