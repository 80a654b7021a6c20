#include "cli/remote_cell.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "net/event_reader.hpp"

namespace asr {

RemoteCell::RemoteCell(const Remote& remote, const std::string& session, json::object request,
                       Show show)
    : show_(std::move(show)),
      changed_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this, remote = remote.another({}), path = session_path(session, "/execute"),
               request = std::move(request)](const std::stop_token& unwanted) {
        run(remote.another(unwanted), path, request);
      }) {}

void RemoteCell::settle() {
  std::uint64_t count = 0;
  (void)!::read(changed_.get(), &count, sizeof(count));
}

std::optional<RemoteCell::Question> RemoteCell::question() {
  std::lock_guard lock(mutex_);
  return std::exchange(question_, std::nullopt);
}

std::optional<Result<json::value>> RemoteCell::end() {
  std::lock_guard lock(mutex_);
  return end_;
}

bool RemoteCell::is_unread() {
  std::lock_guard lock(mutex_);
  return unread_;
}

void RemoteCell::change(const std::function<void()>& what) {
  std::lock_guard lock(mutex_);
  what();
  std::uint64_t one = 1;
  (void)!::write(changed_.get(), &one, sizeof(one));
}

void RemoteCell::run(Remote remote, const std::string& path, const json::object& request) {
  ClientRequest asking;
  asking.method = "POST";
  asking.body = to_text(request);
  asking.headers.add("Content-Type", "application/json");
  asking.headers.add("Accept", "text/event-stream");
  asking.only_once = true;
  EventReader reader;
  Result<void> taken;
  asking.write_body = [&](std::string_view bytes) {
    taken = reader.feed(bytes, [this](const ServerEvent& event) -> Result<void> {
      return take(event.type, TRY(parse_json(event.data)));
    });
    return taken.has_value();
  };
  auto answer = remote.exchange(std::move(asking), path);
  change([&] {
    if (end_) return;
    if (!taken)
      end_ = fail(taken.error());
    else if (!answer)
      end_ = fail(answer.error());
    else if (answer->status >= 300)
      end_ = fail(error_in(*answer));
    else
      end_ = fail(Errc::internal, "the connection ended before the cell did");
  });
}

Result<void> RemoteCell::take(std::string_view type, json::value data) {
  const json::object* fields = data.if_object();
  if (!fields) return fail(Errc::internal, "the server sent no event");
  if (type == "input") {
    const json::value* password = fields->if_contains("password");
    Question asked{text_at(data, "prompt"),
                   password && password->is_bool() && password->get_bool()};
    change([&] { question_ = std::move(asked); });
  } else if (type == "done") {
    change([&] { end_ = std::move(data); });
  } else if (type == "failed") {
    ClientResponse told;
    told.status = 500;
    told.body = to_text(data);
    change([&] { end_ = fail(error_in(told)); });
  } else if (!show_(type, *fields)) {
    change([&] { unread_ = true; });
    return fail(Errc::conflict, "nobody reads the output");
  }
  return {};
}

}  // namespace asr
