// Several commands and terminals over one WebSocket; the same events as SSE for those who cannot.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <deque>
#include <set>

#include "api/api.hpp"
#include "api/errors.hpp"
#include "api/openapi.hpp"
#include "api/sse.hpp"
#include "session/history_steps.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostMessage = 1 << 20;
constexpr std::size_t kMostQueued = 1 << 20;  // bytes that wait for a slow reader
constexpr std::size_t kAtOnce = 64 * 1024;
constexpr std::size_t kMostFollowed = 256;

// One socket: a reader, a writer, and a follower for each command that is listened to. Followers
// wait while the writer is behind, and a program whose output nobody takes waits in turn.
class StreamSocket : public std::enable_shared_from_this<StreamSocket> {
 public:
  StreamSocket(const ApiParts& parts, Caller caller, std::shared_ptr<Session> session,
               std::unique_ptr<WebSocket> socket)
      : parts_(parts),
        caller_(std::move(caller)),
        session_(std::move(session)),
        socket_(std::move(socket)),
        changed_(parts.executor) {}

  asio::awaitable<void> serve() {
    auto self = shared_from_this();
    asio::co_spawn(parts_.executor, write_queue(self), asio::detached);
    asio::co_spawn(parts_.executor, watch_over(self), asio::detached);
    for (;;) {
      // Whoever does not take answers is not listened to.
      while (queued_ > kMostQueued && !closed_) co_await changed_.wait();
      auto reading = socket_->read();
      auto message = co_await std::move(reading);
      if (!message || !*message) break;
      auto handled = parse_json((*message)->data);
      auto body = handled ? check_message(*handled) : Result<void>(fail(handled.error()));
      std::string tag;
      if (handled && handled->is_object())
        if (const json::value* text = handled->get_object().if_contains("tag");
            text && text->is_string())
          tag = std::string(text->get_string());
      if (body) {
        // Shares may have changed since the socket was opened.
        auto checking = parts_.sessions.check_access(caller_, session_, Access::use);
        body = co_await std::move(checking);
      }
      if (body) {
        auto handling = handle(std::move(handled->get_object()));
        body = co_await std::move(handling);
      }
      if (!body) send_error(body.error(), tag);
    }
    closed_ = true;
    changed_.ring();
  }

 private:
  static Result<void> check_message(const json::value& message) {
    return check_schema(message, schema_of("StreamRequest"), schemas());
  }

  void send(const json::object& message) {
    std::string text = to_text(message);
    queued_ += text.size();
    queue_.push_back(std::move(text));
    changed_.ring();
  }

  void send_error(const Error& error, const std::string& tag) {
    json::object message = json_of(error, caller_.trace_id);
    message["type"] = "error";
    if (!tag.empty()) message["tag"] = tag;
    send(message);
  }

  static asio::awaitable<void> write_queue(std::shared_ptr<StreamSocket> self) {
    while (!self->closed_) {
      if (self->queue_.empty()) {
        co_await self->changed_.wait();
        continue;
      }
      WebSocket::Message message{false, std::move(self->queue_.front())};
      self->queue_.pop_front();
      self->queued_ -= message.data.size();
      self->writing_ = true;
      auto writing = self->socket_->write(std::move(message));
      auto written = co_await std::move(writing);
      self->writing_ = false;
      if (!written) self->closed_ = true;
      self->changed_.ring();
    }
  }

  // Ends the socket when its opener may no longer use it, or there is nothing left to use.
  static asio::awaitable<void> watch_over(std::shared_ptr<StreamSocket> self) {
    asio::steady_timer timer(self->parts_.executor);
    boost::system::error_code ignored;
    for (;;) {
      timer.expires_after(kLookAgain);
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      if (self->closed_) co_return;
      if (!co_await may_go_on(self->parts_, self->caller_, self->session_)) break;
    }
    self->closed_ = true;
    self->changed_.ring();
    timer.expires_after(std::chrono::milliseconds(500));
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    // Who does not read cannot be told.
    if (self->writing_) co_return self->socket_->abort();
    asio::co_spawn(self->parts_.executor, abort_later(self), asio::detached);
    bool gone = self->session_->state() == SessionState::gone;
    co_await self->socket_->close(gone ? 1000 : 4401,
                                  gone ? "the session has ended" : "no longer allowed");
  }

  // A close waits for the other side's: one that never reads does not answer.
  static asio::awaitable<void> abort_later(std::shared_ptr<StreamSocket> self) {
    asio::steady_timer timer(self->parts_.executor, std::chrono::seconds(1));
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    self->socket_->abort();
  }

  static asio::awaitable<void> follow(std::shared_ptr<StreamSocket> self,
                                      std::shared_ptr<SessionCommand> command, std::uint64_t offset,
                                      std::shared_ptr<bool> wanted) {
    SessionCommand::Reader reader(command, offset);
    while (!self->closed_ && *wanted) {
      bool running = command->is_running();
      auto pieces = command->output().read(offset, kAtOnce);
      for (const auto& piece : pieces) {
        json::object message = output_event(*command, piece);
        message["type"] = "output";
        offset = piece.offset + piece.data.size();
        self->send(message);
      }
      self->session_->touch();
      while (self->queued_ > kMostQueued && !self->closed_) co_await self->changed_.wait();
      reader.advance(offset);
      if (!pieces.empty()) continue;
      if (!running) {
        json::object message = command->describe(SessionCommand::Detail::summary);
        message["type"] = "exit";
        self->send(message);
        break;
      }
      co_await command->wait_for_change(Bell::Clock::now() + std::chrono::seconds(10));
    }
    if (*wanted) self->followed_.erase(command->id());
  }

  void begin_following(const std::shared_ptr<SessionCommand>& command, std::uint64_t offset) {
    auto [place, is_new] = followed_.try_emplace(command->id(), std::make_shared<bool>(true));
    if (!is_new) return;
    asio::co_spawn(parts_.executor, follow(shared_from_this(), command, offset, place->second),
                   asio::detached);
  }

  asio::awaitable<Result<void>> start(json::object message) {
    CommandRequest request = CO_TRY(command_request_from(message));
    request.background = true;
    if (!message.contains("stdin")) {
      request.stdin_open = true;
      request.command.stdin_mode = StdinMode::pipe;
    }
    auto starting = parts_.sessions.start_command(caller_, session_, std::move(request));
    auto command = CO_TRY(co_await std::move(starting));
    json::object answer{{"type", "started"}, {"command_id", command->id()}};
    if (const json::value* tag = message.if_contains("tag")) answer["tag"] = *tag;
    send(answer);
    begin_following(command, 0);
    co_return Result<void>();
  }

  // A piece of code: its output, results and answer come with the tag it was given.
  static asio::awaitable<void> run_cell(std::shared_ptr<StreamSocket> self, CellRequest request,
                                        json::value tag) {
    auto listen = [self, tag](std::string_view kind, const json::object& what) {
      json::object message = what;
      message["type"] = kind;
      if (!tag.is_null()) message["tag"] = tag;
      self->send(message);
    };
    auto executing =
        self->parts_.sessions.execute(self->caller_, self->session_, std::move(request), listen);
    auto answer = co_await std::move(executing);
    json::object message = answer ? *std::move(answer) : json_of(answer.error(), "");
    message["type"] = answer ? "done" : "error";
    if (!tag.is_null()) message["tag"] = tag;
    self->send(message);
  }

  Result<void> execute(const json::object& message) {
    if (!message.contains("code")) return fail(Errc::invalid, "code is missing");
    CellRequest request = TRY(cell_request_from(message));
    request.somebody_answers = true;
    const json::value* tag = message.if_contains("tag");
    asio::co_spawn(parts_.executor,
                   run_cell(shared_from_this(), std::move(request), tag ? *tag : json::value()),
                   asio::detached);
    return {};
  }

  asio::awaitable<Result<void>> steer_cell(std::string type, json::object message) {
    const json::value* id = message.if_contains("context");
    auto context = CO_TRY(session_->contexts().find(id ? id->get_string() : "python"));
    if (type == "interrupt") co_return context->interrupt();
    const json::value* text = message.if_contains("text");
    if (!text) co_return fail(Errc::invalid, "text is missing");
    auto answering = context->answer(std::string(text->get_string()));
    co_return co_await std::move(answering);
  }

  asio::awaitable<Result<void>> feed(std::shared_ptr<SessionCommand> command,
                                     json::object message) {
    std::string data;
    if (const json::value* text = message.if_contains("data"))
      data = std::string(text->get_string());
    if (const json::value* coded = message.if_contains("data_base64"))
      data = CO_TRY(from_base64(coded->get_string()));
    if (!data.empty()) {
      auto writing = command->write_stdin(std::move(data));
      CO_TRY(co_await std::move(writing));
    }
    const json::value* eof = message.if_contains("eof");
    if (!eof || !eof->get_bool()) co_return Result<void>();
    auto closing = command->close_stdin();
    co_return co_await std::move(closing);
  }

  asio::awaitable<Result<void>> handle(json::object message) {
    std::string type(message.at("type").get_string());
    session_->touch();
    if (type == "ping") {
      send({{"type", "pong"}});
      co_return Result<void>();
    }
    if (type == "start") {
      auto starting = start(std::move(message));
      co_return co_await std::move(starting);
    }
    if (type == "execute") co_return execute(message);
    if (type == "input" || type == "interrupt") {
      auto steering = steer_cell(std::move(type), std::move(message));
      co_return co_await std::move(steering);
    }
    const json::value* id = message.if_contains("command_id");
    if (!id) co_return fail(Errc::invalid, "command_id is missing");
    auto command = CO_TRY(session_->command(id->get_string()));
    if (type == "attach") {
      if (followed_.size() >= kMostFollowed)
        co_return fail(Errc::exhausted, "this socket follows as many commands as it may");
      const json::value* offset = message.if_contains("offset");
      begin_following(command, offset ? offset->to_number<std::uint64_t>() : 0);
      co_return Result<void>();
    }
    if (type == "detach") {
      if (auto found = followed_.find(command->id()); found != followed_.end()) {
        *found->second = false;
        followed_.erase(found);
      }
      co_return Result<void>();
    }
    if (type == "signal") {
      const json::value* name = message.if_contains("signal");
      if (!name) co_return fail(Errc::invalid, "signal is missing");
      int number = CO_TRY(signal_from(*name));
      auto signalling = command->signal(number);
      CO_TRY(co_await std::move(signalling));
      if (session_->history()) session_->note(signal_step(command->id(), number));
      co_return Result<void>();
    }
    if (type == "resize") {
      const json::value* rows = message.if_contains("rows");
      const json::value* columns = message.if_contains("columns");
      if (!rows || !columns) co_return fail(Errc::invalid, "rows or columns are missing");
      auto resizing =
          command->resize({rows->to_number<std::uint16_t>(), columns->to_number<std::uint16_t>()});
      co_return co_await std::move(resizing);
    }
    auto feeding = feed(command, std::move(message));
    co_return co_await std::move(feeding);
  }

  ApiParts parts_;
  Caller caller_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<WebSocket> socket_;
  Bell changed_;
  std::deque<std::string> queue_;
  std::size_t queued_ = 0;
  std::map<std::string, std::shared_ptr<bool>> followed_;  // whether each is still wanted
  bool writing_ = false;
  bool closed_ = false;
};

// Everything the session's commands write from now on, those that run included.
asio::awaitable<Result<Reply>> stream_events(ApiParts parts, CallPtr call,
                                             std::shared_ptr<Session> session) {
  auto opening = EventStream::open(call);
  EventStream out = CO_TRY(co_await std::move(opening));
  std::map<std::string, std::uint64_t> offsets;
  std::set<std::string> over;
  for (const auto& command : session->commands())
    if (!command->is_running()) over.insert(command->id());
  for (bool wanted = true; wanted;) {
    for (const auto& command : session->commands()) {
      if (over.contains(command->id())) continue;
      bool running = command->is_running();
      std::uint64_t& offset = offsets[command->id()];
      for (const auto& piece : command->output().read(offset, kAtOnce)) {
        offset = piece.offset + piece.data.size();
        auto sending = out.send("output", "", to_text(output_event(*command, piece)));
        CO_TRY(co_await std::move(sending));
      }
      if (running || offset < command->output().end()) continue;
      over.insert(command->id());
      auto sending =
          out.send("exit", "", to_text(command->describe(SessionCommand::Detail::summary)));
      CO_TRY(co_await std::move(sending));
    }
    wanted = co_await may_go_on(parts, call->caller, session);
    asio::steady_timer pause(parts.executor, std::chrono::milliseconds(100));
    boost::system::error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    auto beating = out.beat();
    CO_TRY(co_await std::move(beating));
  }
  auto ending = out.end();
  CO_TRY(co_await std::move(ending));
  co_return Reply::done();
}

asio::awaitable<Result<Reply>> stream(ApiParts parts, CallPtr call) {
  bool socket_wanted = call->exchange->wants_websocket();
  auto finding =
      parts.sessions.find(call->caller, call->parts[0], socket_wanted ? Access::use : Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  if (!socket_wanted && EventStream::is_wanted(call->head())) {
    auto streaming = stream_events(parts, call, std::move(session));
    co_return co_await std::move(streaming);
  }
  if (!socket_wanted)
    co_return fail(Errc::invalid, "this address speaks WebSocket",
                   "or ask for events with Accept: text/event-stream");
  auto opening = call->exchange->upgrade("", kMostMessage);
  std::unique_ptr<WebSocket> socket = CO_TRY(co_await std::move(opening));
  auto connection =
      std::make_shared<StreamSocket>(parts, call->caller, std::move(session), std::move(socket));
  co_await connection->serve();
  co_return Reply::done();
}

}  // namespace

std::vector<Route> stream_routes(const ApiParts& parts) {
  return {{"GET",
           "/api/sessions/{id}/stream",
           "stream",
           "commands",
           "Commands and terminals over one WebSocket; their output as events with Accept: "
           "text/event-stream",
           [parts](CallPtr call) { return stream(parts, std::move(call)); },
           {{101, "The connection is a WebSocket now"}, {200, "Events", "", "text/event-stream"}}}};
}

}  // namespace asr
