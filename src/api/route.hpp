// What the API offers: one value per operation, from which requests are routed and the OpenAPI
// document is written.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "net/exchange.hpp"
#include "net/json.hpp"
#include "session/caller.hpp"

namespace asr {

// One request on its way through the API.
struct Call {
  Exchange* exchange = nullptr;  // lives as long as the call
  Caller caller;
  std::vector<std::string> parts;  // what stood for the {…} of the path, in order
  json::object body;               // where the route has a schema: checked against it

  const RequestHead& head() const noexcept { return exchange->head(); }
  // A parameter of the query as a whole number within bounds; the default where it is missing.
  Result<std::int64_t> number(std::string_view name, std::int64_t standard, std::int64_t least,
                              std::int64_t most) const;
  Result<std::string> required(std::string_view name) const;
  // true or false; nothing where it is missing.
  Result<std::optional<bool>> flag(std::string_view name) const;
};
using CallPtr = std::shared_ptr<Call>;

struct Reply {
  unsigned status = 200;
  json::value body;       // null: no body
  bool answered = false;  // the handler has written the answer itself
  Headers headers;

  static Reply none() { return {204, nullptr, false, {}}; }
  static Reply done() { return {0, nullptr, true, {}}; }
};

using Handle = std::function<asio::awaitable<Result<Reply>>(CallPtr)>;

struct Parameter {
  std::string name;
  std::string description;
  std::string type = "string";  // of JSON Schema
  bool required = false;
};

struct Answer {
  unsigned status = 200;
  std::string description;
  std::string schema = {};                 // a name in schemas.json; empty: no body
  std::string media = "application/json";  // of the body
};

enum class Needs { nothing, key };

// Whose clients an operation is for: how its failures look, and whether our own document has it.
enum class Dialect { own, e2b };

struct Route {
  std::string method;
  std::string path;  // "/api/sessions/{id}"
  std::string name;  // operationId, and the label in metrics
  std::string tag;
  std::string summary;
  Handle handle;
  std::vector<Answer> answers;
  std::string body = {};   // schema of a JSON body; empty: none is read
  std::string media = {};  // of a body that is not JSON
  std::vector<Parameter> parameters = {};
  Needs needs = Needs::key;
  Role least = Role::viewer;
  bool body_optional = false;
  std::size_t most_json = 0;  // of a JSON body; 0: as ApiOptions says
  Dialect dialect = Dialect::own;
};

// Finds routes by method and path.
class Router {
 public:
  void add(std::vector<Route> routes);
  struct Match {
    const Route* route = nullptr;
    std::vector<std::string> parts;
    std::string allowed;  // methods the path has, where the method is not one of them
  };
  Match find(std::string_view method, std::string_view path) const;
  const std::vector<Route>& routes() const noexcept { return routes_; }

 private:
  std::vector<Route> routes_;
};

}  // namespace asr
