// The server as the command line sees it: calls with JSON, and errors as everywhere else.
#pragma once

#include <string>

#include "base/result.hpp"
#include "cli/user_files.hpp"
#include "net/http_client.hpp"
#include "net/json.hpp"

namespace asr {

class Remote {
 public:
  static Result<Remote> find();  // by what the user has kept or set

  const Login& login() const noexcept { return login_; }

  // The answer's body, or the error it tells. `body` null: none is sent.
  Result<json::value> call(const std::string& method, const std::string& path,
                           const json::value& body = nullptr);
  Result<ClientResponse> send(ClientRequest request, const std::string& path);

 private:
  explicit Remote(Login login) : login_(std::move(login)) {}

  Login login_;
  HttpClient client_;
};

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
std::string text_at(const json::value& object, std::string_view name);

}  // namespace asr
