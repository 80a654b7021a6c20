#include "net/http_pool.hpp"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <thread>

#include "net/http_server.hpp"

namespace asr {
namespace {

using namespace std::chrono_literals;
using tcp = asio::ip::tcp;

// A server and a client of it on one thread.
class Pooled : public testing::Test {
 protected:
  void serve(HttpServer::Handler handler) {
    HttpServerOptions options;
    options.listen = *parse_listen("127.0.0.1:0");
    auto refuse = [](unsigned status, const std::string&) { return Response{status, {}, ""}; };
    auto server = HttpServer::listen(context_.get_executor(), options, std::move(handler), refuse);
    ASSERT_TRUE(server) << server.error().what;
    server_ = std::move(*server);
  }
  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(server_->port()) + path;
  }
  void run(std::function<asio::awaitable<void>()> body) {
    asio::co_spawn(context_, body(), [this](const std::exception_ptr& problem) {
      if (problem) std::rethrow_exception(problem);
      server_.reset();
      context_.stop();
    });
    context_.run_for(30s);
  }

  asio::io_context context_{1};
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<HttpPool> pool_ = std::make_unique<HttpPool>(context_.get_executor());
};

asio::awaitable<void> echo(Exchange* exchange) {
  auto reading = exchange->read_body(64 << 20);
  auto body = co_await std::move(reading);
  Response response;
  response.status = body ? 200 : 500;
  response.headers.add("X-Method", exchange->head().method);
  response.body = body ? *body : "";
  (void)co_await exchange->respond(std::move(response));
}

TEST_F(Pooled, SendsAndReceives) {
  serve([](Exchange* exchange) { return echo(exchange); });
  run([this]() -> asio::awaitable<void> {
    for (const char* method : {"GET", "POST", "PUT", "DELETE"}) {
      PooledRequest request;
      request.method = method;
      request.url = url("/");
      if (request.method[0] == 'P') request.body = "hello";
      auto answer = co_await read_all(pool_->open(request), 1000);
      EXPECT_TRUE(answer) << answer.error().what;
      if (!answer) continue;
      EXPECT_EQ(answer->status, 200U);
      EXPECT_EQ(answer->headers.get("x-method"), method);
      EXPECT_EQ(answer->body, request.body);
    }
  });
}

TEST_F(Pooled, BodiesGoInPartsBothWays) {
  serve([](Exchange* exchange) { return echo(exchange); });
  run([this]() -> asio::awaitable<void> {
    PooledRequest request;
    request.method = "POST";
    request.url = url("/");
    request.body_follows = true;
    auto transfer = pool_->open(request);
    std::string all;
    for (int i = 0; i < 40; ++i) {
      std::string part(100'000, static_cast<char>('a' + i % 26));
      all += part;
      auto written = co_await transfer->write(std::move(part));
      EXPECT_TRUE(written);
    }
    transfer->end_body();
    auto answer = co_await read_all(transfer, 64 << 20);
    EXPECT_TRUE(answer && answer->body == all);
  });
}

TEST_F(Pooled, AnAnswerMayBeTooLarge) {
  serve([](Exchange* exchange) { return echo(exchange); });
  run([this]() -> asio::awaitable<void> {
    PooledRequest request;
    request.method = "POST";
    request.url = url("/");
    request.body = std::string(1000, 'x');
    auto answer = co_await read_all(pool_->open(request), 999);
    EXPECT_FALSE(answer);
    if (!answer) EXPECT_EQ(answer.error().code, Errc::exhausted);
  });
}

// Sends without end; counts what it could get rid of.
TEST_F(Pooled, WhoDoesNotReadSlowsTheServerDown) {
  auto sent = std::make_shared<std::size_t>(0);
  serve([sent](Exchange* exchange) -> asio::awaitable<void> {
    (void)co_await exchange->begin(Response{200, {}, ""}, std::nullopt);
    for (;;) {
      auto writing = exchange->write(std::string(64 * 1024, 'x'));
      if (auto written = co_await std::move(writing); !written) co_return;
      *sent += 64 * 1024;
    }
  });
  run([this, sent]() -> asio::awaitable<void> {
    auto transfer = pool_->open({.url = url("/")});
    auto head = co_await transfer->head();
    EXPECT_TRUE(head);
    asio::steady_timer timer(context_, 500ms);
    co_await timer.async_wait(asio::use_awaitable);
    EXPECT_LT(*sent, 32U << 20);  // what sockets and buffers hold
    std::size_t before = *sent, read = 0;
    while (read < before + (8 << 20)) {
      auto part = co_await transfer->read();
      EXPECT_TRUE(part && !part->empty());
      if (!part || part->empty()) break;
      read += part->size();
    }
    EXPECT_GT(*sent, before);
    transfer->cancel();
    auto after = co_await transfer->read();
    EXPECT_FALSE(after);
  });
}

TEST_F(Pooled, EveryWaitHasALimit) {
  serve([this](Exchange* exchange) -> asio::awaitable<void> {
    asio::steady_timer timer(context_, 5s);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    (void)co_await exchange->respond(Response{200, {}, ""});
  });
  run([this]() -> asio::awaitable<void> {
    PooledRequest request;
    request.url = url("/");
    request.total_time = 200ms;
    auto transfer = pool_->open(request);
    auto head = co_await transfer->head();
    EXPECT_FALSE(head);
    if (!head) EXPECT_EQ(head.error().code, Errc::timeout);
    EXPECT_FALSE(transfer->was_never_sent());
  });
}

TEST_F(Pooled, KnowsWhenNothingWasSent) {
  serve([](Exchange* exchange) { return echo(exchange); });
  run([this]() -> asio::awaitable<void> {
    tcp::acceptor nobody(context_, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0));
    auto port = nobody.local_endpoint().port();
    nobody.close();
    PooledRequest request;
    request.method = "POST";
    request.url = "http://127.0.0.1:" + std::to_string(port) + "/";
    request.body = "x";
    auto transfer = pool_->open(request);
    auto head = co_await transfer->head();
    EXPECT_FALSE(head);
    EXPECT_TRUE(transfer->was_never_sent());
  });
}

// A server that answers once on each connection and closes it at the second request: whoever may
// not be repeated must arrive once at most.
TEST_F(Pooled, WhatMayNotBeRepeatedArrivesOnce) {
  serve([](Exchange* exchange) { return echo(exchange); });
  run([this]() -> asio::awaitable<void> {
    tcp::acceptor acceptor(context_, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0));
    auto arrived = std::make_shared<int>(0);
    auto talk = [arrived](tcp::socket socket) -> asio::awaitable<void> {
      for (int count = 0;; ++count) {
        std::string question;  // Its head and its body may come one after the other.
        while (!question.ends_with("once")) {
          std::string part(4096, '\0');
          boost::system::error_code ec;
          std::size_t n = co_await socket.async_read_some(
              asio::buffer(part), asio::redirect_error(asio::use_awaitable, ec));
          if (ec || n == 0) co_return;
          question.append(part, 0, n);
        }
        ++*arrived;
        if (count > 0) co_return;
        boost::system::error_code ec;
        co_await asio::async_write(
            socket, asio::buffer(std::string("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")),
            asio::redirect_error(asio::use_awaitable, ec));
      }
    };
    auto accept = [&acceptor, talk, this]() -> asio::awaitable<void> {
      for (;;) {
        boost::system::error_code ec;
        auto socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, ec));
        if (ec) co_return;
        asio::co_spawn(context_, talk(std::move(socket)), asio::detached);
      }
    };
    asio::co_spawn(context_, accept(), asio::detached);
    PooledRequest request;
    request.method = "POST";
    request.url = "http://127.0.0.1:" + std::to_string(acceptor.local_endpoint().port()) + "/";
    request.body = "once";
    auto first = co_await read_all(pool_->open(request), 1000);
    EXPECT_TRUE(first);
    auto second = co_await read_all(pool_->open(request), 1000);
    EXPECT_FALSE(second);
    EXPECT_EQ(*arrived, 2);
    acceptor.close();
  });
}

}  // namespace
}  // namespace asr
