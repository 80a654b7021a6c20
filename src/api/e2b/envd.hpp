// What stands for E2B's daemon inside a sandbox: its requests, answered by the session.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "api/api.hpp"
#include "api/e2b/connect.hpp"
#include "api/e2b/names.hpp"
#include "api/e2b/rpc.hpp"

namespace asr {

class Watching;

// What is remembered of one sandbox between requests. Lost with the server, and no harm done.
struct EnvdMemory {
  std::weak_ptr<Session> session;
  AccountNames names;
  Bell::Clock::time_point names_until;  // They are read anew then.
  std::map<std::string, std::shared_ptr<Watching>> watchers;
  std::uint64_t last_watcher = 0;
  std::optional<std::pair<Bell::Clock::time_point, std::chrono::microseconds>> cpu;
};

// One request of an admitted client.
struct EnvdCall {
  ApiParts parts;
  Exchange* exchange;  // lives as long as the call
  std::shared_ptr<Session> session;
  std::shared_ptr<Sandbox> sandbox;
  std::shared_ptr<EnvdMemory> memory;
  Caller caller;  // who made the session
  std::string user = "user";
  std::string home = "/home/user";

  const RequestHead& head() const noexcept { return exchange->head(); }
  // Where a client's path leads: ~ and what is relative are the user's.
  std::string resolve(std::string_view path) const { return resolve_path(path, home); }
  // A stream to a sandbox that was ended or stands still breaks off.
  bool is_awake() const noexcept { return session->state() == SessionState::ready; }
};
using EnvdCallPtr = std::shared_ptr<EnvdCall>;

// Whom a request works for: Basic authentication or "username". False if the sandbox has no such
// user.
asio::awaitable<Result<bool>> find_user(EnvdCallPtr call, std::string name);
std::string basic_user(std::string_view authorization);  // empty: it names none
asio::awaitable<AccountNames> names_in(EnvdCallPtr call);

// What every program there finds in its environment.
std::map<std::string, std::string> e2b_environment(const Session& session);

// Answers one call each; errors are told, too. Errors that come back are those of the connection.
using Answering = asio::awaitable<Result<void>>;
Answering serve_process(EnvdCallPtr call, std::string method);
Answering serve_filesystem(EnvdCallPtr call, std::string method);
Answering serve_files(EnvdCallPtr call);  // GET and POST /files, POST /files/compose
Answering serve_metrics(EnvdCallPtr call);

// The code interpreter, on a port of its own.
Answering serve_interpreter(EnvdCallPtr call);

// A call that is no stream, from its body to its answer.
using UnaryCall = asio::awaitable<Result<Unary>> (*)(EnvdCallPtr, json::object);
Answering serve_unary(EnvdCallPtr call, UnaryCall handle);

// The methods of one service, by name.
using UnaryCalls = std::map<std::string_view, UnaryCall>;
using StreamCall = Answering (*)(EnvdCallPtr);
using StreamCalls = std::map<std::string_view, StreamCall>;
Answering serve_method(EnvdCallPtr call, std::string_view method, const StreamCalls& streams,
                       const UnaryCalls& calls);

// As files and the interpreter tell errors.
Answering answer_plain_error(Exchange* exchange, unsigned status, std::string message);
Answering answer_json(Exchange* exchange, json::value body);

}  // namespace asr
