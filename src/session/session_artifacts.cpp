// What cells made, while the session lives and after it, if that was wanted: then it stays as long
// as the record of the session.
#include <fcntl.h>

#include "os/file.hpp"
#include "session/session_files.hpp"
#include "session/sessions.hpp"

namespace asr {

asio::awaitable<Result<std::shared_ptr<Artifacts>>> Sessions::find_artifacts(Caller caller,
                                                                             std::string id,
                                                                             Access access) {
  auto finding = find(caller, id, access);
  auto live = co_await std::move(finding);
  if (live) co_return std::shared_ptr<Artifacts>(*live, &(*live)->artifacts());
  if (live.error().code != Errc::not_found) co_return fail(live.error());
  auto remembering = find_record(caller, id);
  SessionRecord record = CO_TRY(co_await std::move(remembering));
  if (access == Access::use && caller.role == Role::viewer)
    co_return fail(Errc::denied, "this key may only look", "ask an admin for a key with role user");
  if (record.state != "gone" || !record.keep_artifacts)
    co_return fail(Errc::not_found, "the artifacts of this session went with it",
                   "a session keeps them if it is asked to with keep_artifacts");
  co_return std::make_shared<Artifacts>(artifacts_of(record.id));
}

void Sessions::remove_artifacts(const std::string& id) {
  auto removed = remove_tree(AT_FDCWD, (settings_.storage / kArtifactFolders / id).native());
  // The next sweep takes what is left.
  if (!removed)
    log_.error("artifacts of a session could not be removed",
               {{"session", id}, {"why", removed.error().what}});
}

// The folders first, then who keeps them: a session that ends in between is not mistaken.
asio::awaitable<void> Sessions::sweep_artifacts() {
  auto stopped = stopped_;
  std::error_code ec;
  std::set<std::string> strangers;
  for (const auto& entry :
       std::filesystem::directory_iterator(settings_.storage / kArtifactFolders, ec)) {
    std::string id = entry.path().filename().native();
    if (is_session_id(id) && !live_.contains(id)) strangers.insert(std::move(id));
  }
  if (strangers.empty()) co_return;
  auto look = [](Database& database) { return sessions_with_artifacts(database); };
  auto keeping = co_await store_.read(std::move(look));
  if (*stopped) co_return;
  if (!keeping) {
    log_.error("artifacts cannot be swept", {{"why", keeping.error().what}});
    co_return;
  }
  for (const std::string& id : *keeping) strangers.erase(id);
  for (const std::string& id : strangers) remove_artifacts(id);
}

}  // namespace asr
