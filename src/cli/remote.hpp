// The server as the command line sees it: calls with JSON, and errors as everywhere else.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>

#include "base/result.hpp"
#include "cli/user_files.hpp"
#include "net/http_client.hpp"
#include "net/json.hpp"

namespace asr {

// For how long one waits for a server that is away, and how often one looks: sessions outlive it.
class Patience {
 public:
  explicit Patience(std::chrono::milliseconds most) : most_(most) {}

  // Some time later; false when it was long enough, or as soon as `unwanted`.
  bool wait(const std::stop_token& unwanted);
  void renew() { *this = Patience(most_); }  // It was there again.

 private:
  std::chrono::milliseconds most_;
  std::chrono::milliseconds pause_{50};
  std::chrono::steady_clock::time_point end_{};
};

// Whether a request may arrive twice, should the server die over it.
enum class Repeat { never, harmless };

// Of one thread: its calls block.
class Remote {
 public:
  static Result<Remote> find();  // by what the user has kept or set
  // The same server, for another thread; calls are given up when `unwanted`.
  Remote another(std::stop_token unwanted) const;

  const Login& login() const noexcept { return login_; }

  // The answer's body, or the error it tells. `body` null: none is sent. `within` zero: as long as
  // it takes.
  Result<json::value> call(const std::string& method, const std::string& path,
                           const json::value& body = nullptr,
                           std::chrono::milliseconds within = {});
  Result<ClientResponse> send(ClientRequest request, const std::string& path);
  // Any answer; an error is one of the way there. not_found: nobody listens.
  Result<ClientResponse> exchange(ClientRequest request, const std::string& path);

  // As call(), again and again while the server is away: nobody listens, it is only beginning, or
  // wants fewer requests; timeout if it stays away. What it may have taken already is sent again
  // only where that is harmless.
  Result<json::value> insist(const std::string& method, const std::string& path,
                             const json::value& body, Patience patience, Repeat repeat);
  bool is_ready();  // and knows all of its sessions

 private:
  Remote(Login login, std::stop_token unwanted)
      : login_(std::move(login)), unwanted_(std::move(unwanted)) {}

  Login login_;
  std::stop_token unwanted_;
  HttpClient client_;
};

// What an answer of 300 and above says.
Error error_in(const ClientResponse& response);
std::string session_path(const std::string& id, std::string_view rest = "");

// A table for people: columns as wide as they must be.
class Table {
 public:
  explicit Table(std::vector<std::string> titles) { rows_.push_back(std::move(titles)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Nothing in it can speak to a terminal.
std::string printable(std::string_view text);
std::string printable_lines(std::string_view text);  // the same, but lines and tabs are left
std::string text_at(const json::value& object, std::string_view name);
// Of output: "data", or "data_base64" where it is no text.
Result<std::string> bytes_in(const json::value& chunk);

}  // namespace asr
