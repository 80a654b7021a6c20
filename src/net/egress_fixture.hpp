// An egress proxy with a thread of its own, a world of loopback servers, and programs that use it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <map>

#include "net/egress_proxy.hpp"
#include "net/egress_testing.hpp"

namespace asr::test {

using namespace std::chrono_literals;

class EgressFixture : public testing::Test {
 protected:
  EgressFixture() {
    DialerSettings settings;
    settings.trust = trust_.path();
    settings.connect_time = 2s;
    settings.lookup_time = 2s;
    settings.resolver = [this](const std::string& host, std::uint16_t port) {
      return resolve(host, port);
    };
    dialer_ = std::move(*EgressDialer::make(settings));
    thread_ = std::thread([this] { context_.run(); });
  }

  ~EgressFixture() override {
    stop();
    dialer_.reset();
    guard_.reset();
    context_.stop();
    thread_.join();
  }

  // Every port of `host` is that server.
  void put(const std::string& host, std::uint16_t port, std::string address = "127.0.0.1") {
    std::lock_guard lock(mutex_);
    world_[host].push_back({std::move(address), port});
  }
  std::shared_ptr<boost::asio::ssl::context> certificate_for(const std::string& host) {
    return *world_authority_->server_context(HostName{host, false});
  }

  static EgressRule rule(std::string host, std::vector<std::uint16_t> ports = {443, 80}) {
    EgressRule made;
    made.host = std::move(host);
    made.ports = std::move(ports);
    made.reach = Reach::anywhere;
    return made;
  }
  static EgressRule with_key(EgressRule made, std::string path = "/",
                             std::string value = "Bearer top-secret") {
    made.credentials.push_back({"Authorization", std::move(value), std::move(path)});
    return made;
  }

  void start(std::vector<EgressRule> rules, EgressScope scope = EgressScope::listed,
             std::uint64_t most_bytes = 0) {
    auto policy = EgressPolicy::make(std::move(rules), scope, most_bytes);
    ASSERT_TRUE(policy) << policy.error().what;
    on_thread([&] {
      auto report = [this](const EgressAttempt& attempt) {
        std::lock_guard lock(mutex_);
        attempts_.push_back(attempt);
      };
      proxy_ = std::move(*EgressProxy::make(context_.get_executor(), *dialer_, std::move(*policy),
                                            limits_, report));
    });
  }
  void replace(std::vector<EgressRule> rules) {
    auto policy = EgressPolicy::make(std::move(rules));
    ASSERT_TRUE(policy);
    on_thread([&] { proxy_->replace(std::move(*policy)); });
  }
  void stop() {
    if (proxy_) on_thread([&] { proxy_.reset(); });
  }

  // A program's connection to the proxy.
  Peer program() {
    auto [client, served] = tcp_pair();
    on_thread([&, held = &served] { proxy_->serve(std::move(*held)); });
    return Peer(std::move(client));
  }
  // The status line of a CONNECT.
  static std::string ask_tunnel(Peer& peer, const std::string& target) {
    peer.send("CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n");
    std::string head = peer.read_until("\r\n\r\n");
    return head.substr(0, head.find('\r'));
  }
  // The whole answer to a request.
  static std::string ask(Peer& peer, const std::string& url, const std::string& host,
                         const std::string& more = {}) {
    peer.send("GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\n" + more + "\r\n");
    return peer.read_answer();
  }
  // What is asked of a host over TLS through CONNECT.
  std::string ask_inside(const std::string& host, const std::string& path,
                         const std::string& more = {}) {
    Peer peer = program();
    if (ask_tunnel(peer, host + ":443").find(" 200 ") == std::string::npos) return "no tunnel";
    std::string failed = peer.start_tls({host, session_certificate(), "", ""});
    if (!failed.empty()) return failed;
    return ask(peer, path, host, more);
  }

  template <class F>
  void on_thread(F work) {
    std::promise<void> done;
    boost::asio::post(context_, [&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }
  std::string session_certificate() {
    std::string pem;
    on_thread([&] { pem = proxy_->certificate(); });
    return pem;
  }
  EgressCounts counts() {
    EgressCounts now;
    on_thread([&] { now = proxy_->counts(); });
    return now;
  }
  // Waits until that many attempts were told of.
  std::vector<EgressAttempt> attempts(std::size_t count) {
    for (int i = 0; i < 500; ++i) {
      {
        std::lock_guard lock(mutex_);
        if (attempts_.size() >= count) return attempts_;
      }
      std::this_thread::sleep_for(10ms);
    }
    std::lock_guard lock(mutex_);
    return attempts_;
  }
  EgressAttempt last_attempt(std::size_t count) {
    auto all = attempts(count);
    EXPECT_EQ(all.size(), count);
    return all.empty() ? EgressAttempt() : all.back();
  }
  std::vector<std::string> asked_names() {
    std::lock_guard lock(mutex_);
    return asked_;
  }
  const std::string& world_certificate() const { return world_authority_->certificate(); }

  // Another session's, in the same world.
  Result<std::unique_ptr<EgressProxy>> other_proxy(EgressPolicy policy) {
    return EgressProxy::make(context_.get_executor(), *dialer_, std::move(policy), limits_,
                             nullptr);
  }

  EgressLimits limits_;
  std::atomic<std::chrono::milliseconds> delay_{0ms};  // of the name server

 private:
  Result<std::vector<DialAddress>> resolve(const std::string& host, std::uint16_t) {
    std::this_thread::sleep_for(delay_.load());
    std::lock_guard lock(mutex_);
    asked_.push_back(host);
    auto found = world_.find(host);
    if (found == world_.end()) return fail(Errc::not_found, "cannot find " + host);
    return found->second;
  }

  std::unique_ptr<Authority> world_authority_ = std::move(*Authority::make());
  TrustFile trust_{world_authority_->certificate()};
  std::mutex mutex_;
  std::map<std::string, std::vector<DialAddress>> world_;
  std::vector<std::string> asked_;
  std::vector<EgressAttempt> attempts_;
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{
      context_.get_executor()};
  std::unique_ptr<EgressDialer> dialer_;
  std::unique_ptr<EgressProxy> proxy_;
  std::thread thread_;
};

}  // namespace asr::test
