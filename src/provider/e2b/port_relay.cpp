// Connections to servers inside a sandbox. The protocol has none but requests of HTTP to a name or
// with headers that say where to: the first head that goes through is given these, the rest passes
// as it is.
#include <sys/socket.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>

#include "net/dial.hpp"
#include "net/http_proxy.hpp"
#include "provider/e2b/remote.hpp"

namespace asr::e2b {

namespace {

constexpr std::size_t kMostHead = 64 * 1024;
constexpr std::chrono::seconds kIdle{300};

// Up to the empty line, and what came with it.
asio::awaitable<Result<std::string>> read_head(std::shared_ptr<ByteStream> from) {
  std::string head;
  std::array<char, 16 * 1024> block{};
  while (head.find("\r\n\r\n") == std::string::npos) {
    if (head.size() > kMostHead) co_return fail(Errc::invalid, "the head is too long");
    auto reading = from->read_some(block);
    std::size_t n = CO_TRY(co_await std::move(reading));
    if (n == 0) co_return fail(Errc::gone, "nothing was asked");
    head.append(block.data(), n);
  }
  co_return head;
}

// Ours in the place of those of the same names.
std::string with_headers(const std::string& raw, const Headers& ours) {
  std::size_t end = raw.find("\r\n\r\n");
  std::string out;
  std::size_t at = 0;
  for (bool first = true; at < end; first = false) {
    std::size_t stop = std::min(raw.find("\r\n", at), end);
    std::string_view line(raw.data() + at, stop - at);
    at = stop + 2;
    std::string_view name = line.substr(0, line.find(':'));
    if (!first && ours.has(name)) continue;
    out += line;
    out += "\r\n";
  }
  for (const auto& [name, value] : ours.all()) out += name + ": " + value + "\r\n";
  return out + raw.substr(end + 2);
}

}  // namespace

asio::awaitable<void> Remote::relay(std::shared_ptr<ByteStream> local, EgressDialer* dialer,
                                    std::string url, Headers headers,
                                    asio::any_io_executor executor) {
  auto where = server_of_url(url);
  if (!where) co_return;
  // Whoever never asks is not waited for without end.
  asio::steady_timer patience(executor, kIdle);
  patience.async_wait([local](boost::system::error_code ec) {
    if (!ec) local->close();
  });
  auto reading = read_head(local);
  auto head = co_await std::move(reading);
  patience.cancel();
  if (!head) co_return;
  headers.add("Host", where->authority);
  auto dialing = dial_server(dialer, *where);
  auto server = co_await std::move(dialing);
  if (!server) co_return;
  std::string text = with_headers(*head, headers);
  auto writing = (*server)->write(text);
  if (auto written = co_await std::move(writing); !written) co_return;
  auto joining = join_streams(local, *server, executor, {}, kIdle);
  co_await std::move(joining);
}

asio::awaitable<Result<UniqueFd>> Remote::connect(Place place, std::uint16_t port) {
  CO_TRY(admit());
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    co_return fail_errno("socketpair");
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  auto local = CO_TRY(stream_of(executor_, std::move(ours)));
  Headers headers;
  headers.add("E2b-Sandbox-Id", place.id);
  headers.add("E2b-Sandbox-Port", std::to_string(port));
  auto relaying = relay(local, dialer_, sandbox_base(place, port), std::move(headers), executor_);
  asio::co_spawn(executor_, std::move(relaying), asio::detached);
  co_return theirs;
}

}  // namespace asr::e2b
