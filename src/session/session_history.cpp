// What was done in sessions: begun with them, found, and kept with what their cells made, if that
// is.
#include <boost/asio/post.hpp>

#include "base/clock.hpp"
#include "base/version.hpp"
#include "session/history_file.hpp"
#include "session/history_steps.hpp"
#include "session/session_files.hpp"
#include "session/sessions.hpp"

namespace asr {

namespace {

constexpr int kFormat = 1;  // of the lines

json::object about_session(const Session& session, const json::array& files) {
  json::object about{{"kind", "session"},
                     {"format", kFormat},
                     {"server", std::string(kVersion)},
                     {"session_id", session.id()},
                     {"created_at", iso_time(session.record().created_ms)}};
  for (auto& [name, value] : json_of(session.request())) about[name] = value;
  about["env"] = names_of(session.request().env);
  if (!files.empty()) about["files"] = files;
  return about;
}

}  // namespace

bool Sessions::keeps_history(const SessionRequest& request) const noexcept {
  return request.history && settings_.history_bytes > 0;
}

void Sessions::begin_history(const std::shared_ptr<Session>& session, json::array files,
                             std::shared_ptr<Spool> spool) {
  if (!keeps_history(session->request())) return;
  auto complain = [this, stopped = stopped_, id = session->id()](const Error& error) {
    if (!*stopped)
      log_.warning("the history of a session cannot be kept",
                   {{"session", id}, {"why", error.what}});
  };
  bool has_files = !files.empty();
  auto about = [of = session.get(), files = std::move(files)] { return about_session(*of, files); };
  session->set_history(std::make_unique<History>(folder_of(session->id()), settings_.history_bytes,
                                                 std::move(about), std::move(complain),
                                                 std::move(spool)));
  // Anything else can be told again by whoever takes it up.
  if (has_files) asio::post(executor_, [session] { session->history()->begin(); });
}

asio::awaitable<Result<Sessions::FoundHistory>> Sessions::find_history(Caller caller,
                                                                       std::string id) {
  auto finding = find(caller, id, Access::look);
  auto live = co_await std::move(finding);
  if (live && !(*live)->history())
    co_return fail(Errc::not_found, "this session keeps no history",
                   "it was made with \"history\": false, or the server keeps none");
  if (live) {
    (*live)->history()->move_out();
    co_return FoundHistory{(*live)->history()->folder(), *live};
  }
  if (live.error().code != Errc::not_found) co_return fail(live.error());
  auto remembering = find_record(caller, id);
  SessionRecord record = CO_TRY(co_await std::move(remembering));
  std::filesystem::path folder = settings_.storage / kArtifactFolders / record.id;
  std::error_code ec;
  if (record.state != "gone" || !record.keep_artifacts ||
      !std::filesystem::exists(folder / kHistoryFile, ec))
    co_return fail(Errc::not_found, "the history of this session went with it",
                   "a session keeps it if it is asked to with keep_artifacts");
  co_return FoundHistory{std::move(folder), nullptr};
}

// Those that run will not be heard of again.
std::int64_t Sessions::keep_history(Session& session) {
  History* history = session.history();
  if (!history) return 0;
  for (const auto& command : session.commands())
    if (command->is_running())
      history->add(command_step(*command, command->describe(SessionCommand::Detail::summary)));
  history->begin();
  history->move_out();
  history->seal();
  return keep_history(session.id());
}

std::int64_t Sessions::keep_history(const std::string& id) {
  std::int64_t bytes = 0;
  std::filesystem::path folder = settings_.storage / kArtifactFolders / id;
  for (const char* name : {kOldHistoryFile, kHistoryFile}) {
    std::error_code ec;
    auto size = std::filesystem::file_size(folder_of(id) / name, ec);
    if (ec) continue;
    std::filesystem::create_directories(folder, ec);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ec);
    std::filesystem::rename(folder_of(id) / name, folder / name, ec);
    if (ec)
      log_.error("the history of a session could not be kept",
                 {{"session", id}, {"why", ec.message()}});
    else
      bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

}  // namespace asr
