// Cells: pieces of code run by the interpreters of a session, and what is kept of what they made.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <filesystem>

#include "session/effects_json.hpp"
#include "session/history_steps.hpp"
#include "session/initial_files.hpp"
#include "session/sessions.hpp"
#include "session/trail.hpp"

namespace asr {

namespace {

// What of a result is worth a file of its own.
constexpr std::pair<std::string_view, std::string_view> kPictures[]{{"image/png", "png"},
                                                                    {"image/jpeg", "jpg"},
                                                                    {"application/pdf", "pdf"},
                                                                    {"image/svg+xml", "svg"}};

constexpr std::string_view kWorkspace = "/workspace/";
constexpr std::size_t kMostArtifacts = 200;  // of one cell

// A program says what it likes.
bool is_in_workspace(const std::string& path) {
  return path.starts_with(kWorkspace) && path.find('\0') == std::string::npos &&
         std::filesystem::path(path).lexically_normal() == path;
}

json::object json_of(const Context& context, CellAnswer answer, json::array artifacts) {
  json::object out{{"context_id", context.id()},
                   {"language", context.language().name},
                   {"status", answer.status()},
                   {"stdout", std::move(answer.out)},
                   {"stderr", std::move(answer.err)},
                   {"truncated", answer.dropped > 0},
                   {"results", std::move(answer.results)},
                   {"error", answer.error ? json::value(*std::move(answer.error)) : json::value()},
                   {"execution_count", answer.count},
                   {"duration_ms", static_cast<double>(answer.duration.count()) / 1000},
                   {"restarted", answer.restarted},
                   {"artifacts", std::move(artifacts)}};
  if (answer.timed_out || answer.out_of_memory)
    out["fault"] = "limit";
  else if (answer.error)
    out["fault"] = "program";
  return out;
}

// Hears, too, how often the program asked for something.
Context::Listen counting(Context::Listen listen, std::shared_ptr<std::size_t> questions) {
  return [listen = std::move(listen), questions = std::move(questions)](std::string_view kind,
                                                                        const json::object& what) {
    if (kind == "input") ++*questions;
    if (listen) listen(kind, what);
  };
}

}  // namespace

// A failure to keep something is told with it and is no failure of the cell.
asio::awaitable<json::array> Sessions::keep_artifacts(std::shared_ptr<Session> session,
                                                      std::shared_ptr<Sandbox> sandbox,
                                                      std::shared_ptr<const CellAnswer> answer) {
  json::array kept;
  // It ended meanwhile, and who looks after its folder has done so.
  if (session->state() == SessionState::gone) co_return kept;
  auto add = [&](const std::string& name, const Result<Artifact>& artifact) {
    if (artifact)
      kept.push_back(asr::json_of(*artifact));
    else
      kept.push_back(json::object{{"artifact_id", nullptr},
                                  {"name", repair_utf8(name)},
                                  {"problem", artifact.error().what}});
  };
  std::size_t number = 0;
  for (const json::value& result : answer->results) {
    if (kept.size() >= kMostArtifacts) break;
    ++number;
    for (const auto& [mime, ending] : kPictures) {
      const json::value* data = result.get_object().if_contains(mime);
      if (!data || !data->is_string()) continue;
      std::string name = "result-" + std::to_string(answer->count) + "-" + std::to_string(number) +
                         "." + std::string(ending);
      std::string_view text(data->get_string());
      auto bytes =
          mime == "image/svg+xml" ? Result<std::string>(std::string(text)) : from_base64(text);
      if (bytes) add(name, session->artifacts().keep_bytes(name, std::string(mime), *bytes));
      break;
    }
  }
  for (const std::string& path : answer->files) {
    if (kept.size() >= kMostArtifacts) break;
    if (!is_in_workspace(path)) continue;
    auto keeping = session->artifacts().keep_file(sandbox, path);
    auto artifact = co_await std::move(keeping);
    if (!artifact && artifact.error().code == Errc::not_found) continue;  // Gone again.
    add(path, artifact);
  }
  co_return kept;
}

asio::awaitable<Result<json::object>> Sessions::execute(Caller caller,
                                                        std::shared_ptr<Session> session,
                                                        CellRequest request,
                                                        Context::Listen listen) {
  auto sandbox = CO_TRY(session->sandbox());
  Hold hold(this, session);
  std::optional<CellFacts> facts;
  if (session->history()) facts = facts_of(request);
  if (facts && facts->questions) listen = counting(std::move(listen), facts->questions);
  if (!request.files.empty()) {
    auto furnishing = put_files(sandbox, std::move(request.files));
    CO_TRY(co_await std::move(furnishing));
  }
  auto finding =
      session->contexts().find(session->place_of_contexts(), request.context, request.language);
  auto context = CO_TRY(co_await std::move(finding));
  auto entry = audit_of(caller, "cell.start", session->id(), {{"context_id", context->id()}});
  auto record = [this](AuditEntry what) -> asio::awaitable<void> {
    auto work = [what, &secrets = store_.secrets()](Database& database) {
      return append_audit(database, secrets, what);
    };
    (void)co_await store_.write_soon(std::move(work));
  };
  asio::co_spawn(executor_, record(std::move(entry)), asio::detached);
  bool undoable = false;
  if (session->request().auto_checkpoint) {
    auto saving = save_before(session, request.history ? request.code : "");
    undoable = co_await std::move(saving);
  }
  Cell cell{std::move(request.code),  request.timeout.value_or(sandbox->spec().limits.wall_time),
            std::move(request.env),   request.env_for_it_alone,
            request.somebody_answers, request.effects,
            std::move(request.admit)};
  std::optional<Effects::Connections> sent_before;
  if (request.effects && session->egress()) sent_before = connections_of(*session);
  auto executing = context->execute(sandbox, std::move(cell), std::move(listen));
  auto answer = std::make_shared<CellAnswer>(CO_TRY(co_await std::move(executing)));
  if (facts) facts->ended_us = now_us();
  auto keeping = keep_artifacts(session, sandbox, answer);
  json::array artifacts = co_await std::move(keeping);
  ++totals_.cells[std::string(answer->status())];
  if (session->state() != SessionState::gone) {
    json::object summary{{"context_id", context->id()},
                         {"language", context->language().name},
                         {"status", answer->status()},
                         {"duration_ms", static_cast<double>(answer->duration.count()) / 1000}};
    EventRecord event = event_of(*session, "cell.ended", std::move(summary));
    asio::co_spawn(executor_, tell(std::move(event)), asio::detached);
  }
  std::optional<json::object> effects;
  if (answer->effects) effects = asr::json_of(*answer->effects, sent_since(sent_before, *session));
  json::object told = json_of(*context, std::move(*answer), std::move(artifacts));
  if (effects) told["effects"] = *std::move(effects);
  if (session->request().auto_checkpoint) told["undoable"] = undoable;
  if (facts) session->note(cell_step(std::move(*facts), told));
  co_return told;
}

}  // namespace asr
