#include "net/http_proxy.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>

#include "net/http_proxy_stream.hpp"

namespace asr {

namespace http = beast::http;

namespace {

constexpr std::size_t kMostHead = 64 * 1024;
constexpr std::size_t kBlock = 64 * 1024;
constexpr int kMostInterim = 16;  // answers such as 100 before the one that counts

using Parser = http::response_parser<http::buffer_body>;

Error bad_upstream(const ProxyRules& rules, const std::string& what) {
  return Error(Errc::os, rules.server + " " + what);
}

bool note(const ProxyRules& rules, Direction direction, std::size_t bytes) {
  if (rules.alive) rules.alive();
  return !rules.count || rules.count(direction, bytes);
}
Error stopped(const ProxyRules& rules) {
  return Error(Errc::exhausted, "no more may go to " + rules.server);
}

template <class Stream>
void allow(Stream& stream, std::chrono::seconds time) {
  beast::get_lowest_layer(stream).expires_after(time);
}

std::string request_head(const RequestHead& head, const ProxyRules& rules, bool upgrade) {
  Headers headers = head.headers;
  std::string protocol(head.headers.get("upgrade"));
  remove_hop_by_hop(headers);
  for (const std::string& name : rules.secret_headers) headers.remove(name);
  for (const auto& [name, value] : rules.request_headers.all()) headers.set(name, value);
  headers.remove("expect");
  headers.remove("content-length");
  std::string text = head.method + " " + rules.target + " HTTP/1.1\r\n";
  for (const auto& [name, value] : headers.all()) text += name + ": " + value + "\r\n";
  if (head.length)
    text += "Content-Length: " + std::to_string(*head.length) + "\r\n";
  else if (head.has_body)
    text += "Transfer-Encoding: chunked\r\n";
  text += upgrade ? "Connection: Upgrade\r\nUpgrade: " + protocol + "\r\n\r\n"
                  : "Connection: close\r\n\r\n";
  return text;
}

// The client's body, while its answer may already be coming.
template <class Stream>
asio::awaitable<void> send_body(Exchange* exchange, std::shared_ptr<Stream> upstream,
                                std::shared_ptr<bool> over, std::shared_ptr<ProxyRules> rules) {
  bool chunked = !exchange->head().length.has_value();
  std::string block(kBlock, '\0');
  boost::system::error_code ec;
  while (!*over) {
    auto reading = exchange->read_some(block);
    auto n = co_await std::move(reading);
    if (!n || *over || !note(*rules, Direction::up, *n)) break;
    auto data = asio::buffer(block.data(), *n);
    if (*n == 0) {
      if (chunked) {
        auto last = http::make_chunk_last();
        co_await asio::async_write(*upstream, last, asio::redirect_error(asio::use_awaitable, ec));
      }
      break;
    }
    if (chunked) {
      auto chunk = http::make_chunk(data);
      co_await asio::async_write(*upstream, chunk, asio::redirect_error(asio::use_awaitable, ec));
    } else {
      co_await asio::async_write(*upstream, data, asio::redirect_error(asio::use_awaitable, ec));
    }
    if (ec) break;
  }
}

// A server that repeats what it was sent must not tell the client what it did not send.
std::string masked(std::string value, const ProxyRules& rules) {
  for (const std::string& secret : rules.masked)
    if (value.find(secret) != std::string::npos) return "***";
  return value;
}

Response head_of(const Parser& parser, const ProxyRules& rules) {
  Response response;
  response.status = parser.get().result_int();
  for (const auto& field : parser.get()) {
    std::string value(field.value());
    if (field.name() == http::field::set_cookie &&
        rules.cookies == ProxyRules::Cookies::without_domain)
      value = without_domain(value);
    response.headers.add(std::string(field.name_string()), masked(std::move(value), rules));
  }
  remove_hop_by_hop(response.headers);
  response.headers.remove("content-length");
  response.headers.remove("date");
  for (const auto& [name, value] : rules.response_headers.all()) response.headers.set(name, value);
  return response;
}

// Statuses whose answers never have a body, whatever their headers announce.
bool is_bodiless(unsigned status) { return status == 204 || status == 304; }

template <class Stream>
asio::awaitable<Result<void>> copy_answer(Exchange* exchange, Stream* upstream,
                                          beast::flat_buffer* buffer, Parser* parser,
                                          const ProxyRules* rules) {
  Response head = head_of(*parser, *rules);
  std::size_t head_bytes = 0;
  for (const auto& [name, value] : head.headers.all()) head_bytes += name.size() + value.size() + 4;
  if (!note(*rules, Direction::down, head_bytes)) co_return fail(stopped(*rules));
  if (is_bodiless(head.status)) {
    auto responding = exchange->respond(std::move(head));
    co_return co_await std::move(responding);
  }
  bool bodiless = exchange->head().method == "HEAD";
  std::optional<std::uint64_t> length;
  if (auto announced = parser->content_length()) length = *announced;
  if (bodiless && !length) length = 0;
  auto beginning = exchange->begin(std::move(head), length);
  CO_TRY(co_await std::move(beginning));
  std::string block(kBlock, '\0');
  while (!bodiless && !parser->is_done()) {
    auto& body = parser->get().body();
    body.data = block.data();
    body.size = block.size();
    allow(*upstream, rules->idle_time);
    boost::system::error_code ec;
    co_await http::async_read_some(*upstream, *buffer, *parser,
                                   asio::redirect_error(asio::use_awaitable, ec));
    if (ec == http::error::need_buffer) ec = {};
    std::size_t n = block.size() - body.size;
    if (n > 0) {
      if (!note(*rules, Direction::down, n)) co_return fail(stopped(*rules));
      auto writing = exchange->write(block.substr(0, n));
      CO_TRY(co_await std::move(writing));
    }
    if (ec == http::error::end_of_stream || ec == asio::error::eof) break;
    if (ec) co_return fail(bad_upstream(*rules, "broke off"));
  }
  auto ending = exchange->end();
  co_return co_await std::move(ending);
}

asio::awaitable<void> pour(std::shared_ptr<ByteStream> from, std::shared_ptr<ByteStream> to,
                           Direction direction, std::function<bool(Direction, std::size_t)> count) {
  std::string block(kBlock, '\0');
  for (;;) {
    auto reading = from->read_some(block);
    auto n = co_await std::move(reading);
    if (!n || *n == 0 || !count(direction, *n)) break;
    auto writing = to->write(std::span<const char>(block.data(), *n));
    auto written = co_await std::move(writing);
    if (!written) break;
  }
  to->shut_down_write();
}

}  // namespace

void remove_hop_by_hop(Headers& headers) {
  std::vector<std::string> named;
  for (const auto& [name, value] : headers.all())
    if (!equal_ignoring_case(name, "connection") && headers.lists("connection", name))
      named.push_back(name);
  for (const char* name : {"connection", "keep-alive", "proxy-connection", "proxy-authenticate",
                           "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"})
    headers.remove(name);
  for (const std::string& name : named) headers.remove(name);
}

std::string without_domain(std::string_view cookie) {
  std::string out;
  while (!cookie.empty()) {
    std::size_t end = std::min(cookie.find(';'), cookie.size());
    std::string_view part = cookie.substr(0, end);
    cookie.remove_prefix(std::min(end + 1, cookie.size()));
    std::string_view name = part.substr(
        part.find_first_not_of(' ') == std::string_view::npos ? 0 : part.find_first_not_of(' '));
    name = name.substr(0, std::min(name.find('='), name.size()));
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!out.empty() && equal_ignoring_case(name, "domain")) continue;
    if (!out.empty()) out += ';';
    out += part;
  }
  return out;
}

asio::awaitable<void> join_streams(std::shared_ptr<ByteStream> one,
                                   std::shared_ptr<ByteStream> other,
                                   asio::any_io_executor executor,
                                   std::function<bool(Direction, std::size_t)> count,
                                   std::chrono::seconds idle_time) {
  auto moved = std::make_shared<bool>(true);
  auto left = std::make_shared<int>(2);
  auto noted = [moved, count](Direction direction, std::size_t bytes) {
    *moved = true;
    return !count || count(direction, bytes);
  };
  auto over = [left](const std::exception_ptr&) { --*left; };
  asio::co_spawn(executor, pour(one, other, Direction::up, noted), over);
  asio::co_spawn(executor, pour(other, one, Direction::down, noted), over);
  auto quiet_since = std::chrono::steady_clock::now();
  asio::steady_timer timer(executor);
  while (*left > 0) {
    timer.expires_after(std::chrono::milliseconds(*left == 2 ? 1000 : 100));
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    auto now = std::chrono::steady_clock::now();
    if (std::exchange(*moved, false)) quiet_since = now;
    // One side has ended: the other gets a little time to say its last words.
    auto patience = *left == 2 ? idle_time : std::chrono::seconds(5);
    if (now - quiet_since > patience) {
      one->close();
      other->close();
    }
  }
}

namespace {

// The head of the answer that counts, after a few that do not.
template <class Stream>
asio::awaitable<Result<void>> read_answer(Exchange* exchange, Stream* stream,
                                          beast::flat_buffer* buffer, std::optional<Parser>* parser,
                                          const ProxyRules* rules, bool upgrade) {
  boost::system::error_code ec;
  unsigned status = 0;
  for (int i = 0; i < kMostInterim; ++i) {
    parser->emplace();
    (*parser)->header_limit(kMostHead);
    (*parser)->body_limit(boost::none);
    if (exchange->head().method == "HEAD") (*parser)->skip(true);
    allow(*stream, rules->head_time);
    co_await http::async_read_header(*stream, *buffer, **parser,
                                     asio::redirect_error(asio::use_awaitable, ec));
    if (ec == beast::error::timeout)
      co_return fail(Errc::timeout, rules->server + " did not answer in time");
    if (ec) break;
    status = (*parser)->get().result_int();
    if (status == 101 || status >= 200) break;
  }
  if (ec || (status < 200 && !(status == 101 && upgrade)))
    co_return fail(bad_upstream(*rules, "gave no proper answer"));
  co_return Result<void>();
}

// From here on it is bytes, both ways.
template <class Stream>
asio::awaitable<void> switch_protocols(Exchange* exchange, asio::any_io_executor executor,
                                       Stream* stream, beast::flat_buffer* buffer, Parser* parser,
                                       std::shared_ptr<ProxyRules> rules) {
  beast::get_lowest_layer(*stream).expires_never();
  std::string answer = "HTTP/1.1 101 Switching Protocols\r\n";
  for (const auto& field : parser->get())
    answer += std::string(field.name_string()) + ": " + masked(std::string(field.value()), *rules) +
              "\r\n";
  answer += "\r\n";
  std::string rest(static_cast<const char*>(buffer->data().data()), buffer->size());
  std::shared_ptr<ByteStream> client = exchange->take_over();
  std::shared_ptr<ByteStream> inner = make_byte_stream(std::move(*stream), std::move(rest));
  Cutoff::Part both(rules->cutoff, [client, inner] {
    client->close();
    inner->close();
  });
  auto writing = client->write(std::span<const char>(answer));
  if (auto written = co_await std::move(writing); !written) co_return;
  auto count = [rules](Direction direction, std::size_t n) { return note(*rules, direction, n); };
  auto joining = join_streams(client, inner, executor, std::move(count), rules->idle_time);
  co_await std::move(joining);
}

template <class Stream>
asio::awaitable<Result<void>> go_between(Exchange* exchange, asio::any_io_executor executor,
                                         std::shared_ptr<Stream> stream,
                                         std::shared_ptr<ProxyRules> rules) {
  boost::system::error_code ec;
  std::optional<Cutoff::Part> part;
  part.emplace(rules->cutoff, [stream] {
    boost::system::error_code ignored;
    beast::get_lowest_layer(*stream).socket().close(ignored);
  });
  bool upgrade = exchange->head().headers.lists("connection", "upgrade") &&
                 exchange->head().headers.has("upgrade");
  std::string head = request_head(exchange->head(), *rules, upgrade);
  if (!note(*rules, Direction::up, head.size())) co_return fail(stopped(*rules));
  allow(*stream, rules->head_time);
  co_await asio::async_write(*stream, asio::buffer(head),
                             asio::redirect_error(asio::use_awaitable, ec));
  if (ec) co_return fail(bad_upstream(*rules, "does not listen"));
  // Whoever answers before having read all may close: the rest is not sent then.
  auto over = std::make_shared<bool>(false);
  auto sent = std::make_shared<bool>(!exchange->head().has_body);
  if (!*sent)
    asio::co_spawn(executor, send_body(exchange, stream, over, rules),
                   [sent](const std::exception_ptr&) { *sent = true; });

  beast::flat_buffer buffer(kMostHead + kBlock);
  std::optional<Parser> parser;
  auto reading = read_answer(exchange, stream.get(), &buffer, &parser, rules.get(), upgrade);
  Result<void> result = co_await std::move(reading);
  if (result && parser->get().result_int() == 101) {
    part.reset();  // The stream moves into what takes over.
    auto switching = switch_protocols(exchange, executor, stream.get(), &buffer, &*parser, rules);
    co_await std::move(switching);
    co_return Result<void>();
  }
  if (result) {
    auto copying = copy_answer(exchange, stream.get(), &buffer, &*parser, rules.get());
    result = co_await std::move(copying);
  }
  *over = true;
  beast::get_lowest_layer(*stream).socket().close(ec);
  // The body's reader uses the exchange: it must be done before the exchange goes on.
  asio::steady_timer pause(executor);
  for (int i = 0; !*sent && i < 3000; ++i) {
    pause.expires_after(std::chrono::milliseconds(10));
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
  co_return result;
}

}  // namespace

asio::awaitable<Result<void>> proxy_over(Exchange* exchange, asio::any_io_executor executor,
                                         std::shared_ptr<PlainStream> upstream, ProxyRules rules) {
  auto shared = std::make_shared<ProxyRules>(std::move(rules));
  return go_between(exchange, std::move(executor), std::move(upstream), std::move(shared));
}

asio::awaitable<Result<void>> proxy_over(Exchange* exchange, asio::any_io_executor executor,
                                         std::shared_ptr<TlsStream> upstream, ProxyRules rules) {
  auto shared = std::make_shared<ProxyRules>(std::move(rules));
  return go_between(exchange, std::move(executor), std::move(upstream), std::move(shared));
}

asio::awaitable<Result<void>> proxy_exchange(Exchange* exchange, asio::any_io_executor executor,
                                             UniqueFd upstream, ProxyRules rules) {
  boost::system::error_code ec;
  asio::ip::tcp::socket socket(executor);
  socket.assign(asio::ip::tcp::v4(), upstream.release(), ec);
  if (ec) co_return fail(bad_upstream(rules, "cannot be reached"));
  auto stream = std::make_shared<PlainStream>(std::move(socket));
  auto going = proxy_over(exchange, executor, std::move(stream), std::move(rules));
  co_return co_await std::move(going);
}

}  // namespace asr
