// What was done in a session: in pages, or all of it, a line for each step.
#include "api/api.hpp"
#include "session/history_reader.hpp"
#include "session/history_steps.hpp"

namespace asr {

namespace {

constexpr std::uint64_t kMostOfPage = 4 << 20;  // bytes
constexpr const char* kLines = "application/jsonl";

Result<bool> wants_lines(const Call& call) {
  auto format = call.head().parameter("format");
  if (format && *format != "json" && *format != "jsonl")
    return fail(Errc::invalid, "the parameter format must be json or jsonl");
  if (format) return *format == "jsonl";
  const Headers& headers = call.head().headers;
  return headers.lists("accept", kLines) || headers.lists("accept", "application/x-ndjson");
}

// They have no number yet.
std::vector<std::string> running_steps(const std::shared_ptr<Session>& session) {
  std::vector<std::string> steps;
  if (!session) return steps;
  for (const auto& command : session->commands()) {
    if (!command->is_running()) continue;
    json::object step{{"number", nullptr}};
    for (auto& [name, value] :
         command_step(*command, command->describe(SessionCommand::Detail::summary)))
      step[name] = value;
    steps.push_back(to_text(step));
  }
  return steps;
}

json::object about_of(const HistoryReader& reader) {
  json::object about = reader.about().value_or(json::object{{"number", 0}, {"kind", "session"}});
  about["dropped"] = reader.dropped();
  return about;
}

std::string joined(const std::vector<std::string>& objects) {
  std::string text;
  for (const std::string& object : objects) {
    if (!text.empty()) text += ',';
    text += object;
  }
  return text;
}

// Steps are JSON already, and go as they are.
asio::awaitable<Result<Reply>> send_page(CallPtr call, std::shared_ptr<HistoryReader> reader,
                                         std::shared_ptr<Session> session) {
  std::int64_t from = CO_TRY(call->number("from", 1, 0, INT64_MAX));
  std::int64_t limit = CO_TRY(call->number("limit", 100, 1, 1000));
  auto page = CO_TRY(
      reader->page(static_cast<std::uint64_t>(from), static_cast<std::size_t>(limit), kMostOfPage));
  json::object head{{"session", about_of(*reader)},
                    {"first", reader->first()},
                    {"last", reader->last()},
                    {"dropped", reader->dropped()},
                    {"next", page.next ? json::value(*page.next) : json::value(nullptr)}};
  Response response;
  response.headers.add("Content-Type", "application/json");
  response.body = to_text(head);
  response.body.pop_back();
  response.body += ",\"steps\":[" + joined(page.steps) + "],\"running\":[" +
                   joined(running_steps(session)) + "]}";
  auto responding = call->exchange->respond(std::move(response));
  CO_TRY(co_await std::move(responding));
  co_return Reply::done();
}

// The files as they lie there, without passing through this process where that is possible.
asio::awaitable<Result<Reply>> send_lines(CallPtr call, std::shared_ptr<HistoryReader> reader,
                                          std::shared_ptr<Session> session) {
  std::string first = to_text(about_of(*reader)) + "\n";
  std::string last;
  for (const std::string& step : running_steps(session)) last += step + "\n";
  std::uint64_t length = first.size() + last.size();
  for (const HistoryReader::Part& part : reader->parts()) length += part.end - part.begin;
  Response head;
  head.headers.add("Content-Type", kLines);
  head.headers.add("Cache-Control", "no-store");
  head.headers.add("X-Content-Type-Options", "nosniff");
  head.headers.add("Content-Disposition", "attachment; filename=\"history.jsonl\"");
  auto beginning = call->exchange->begin(std::move(head), length);
  CO_TRY(co_await std::move(beginning));
  auto opening = call->exchange->write(std::move(first));
  CO_TRY(co_await std::move(opening));
  for (const HistoryReader::Part& part : reader->parts()) {
    auto sending = call->exchange->send_file(part.file.get(), part.begin, part.end - part.begin);
    CO_TRY(co_await std::move(sending));
  }
  auto closing = call->exchange->write(std::move(last));
  CO_TRY(co_await std::move(closing));
  auto ending = call->exchange->end();
  CO_TRY(co_await std::move(ending));
  co_return Reply::done();
}

asio::awaitable<Result<Reply>> get(ApiParts parts, CallPtr call) {
  auto finding = parts.sessions.find_history(call->caller, call->parts[0]);
  Sessions::FoundHistory found = CO_TRY(co_await std::move(finding));
  bool lines = CO_TRY(wants_lines(*call));
  auto reader = std::make_shared<HistoryReader>(CO_TRY(HistoryReader::open(found.folder)));
  auto sending =
      lines ? send_lines(call, reader, found.session) : send_page(call, reader, found.session);
  co_return co_await std::move(sending);
}

}  // namespace

std::vector<Route> history_routes(const ApiParts& parts) {
  Route reading{"GET",
                "/api/sessions/{id}/history",
                "getHistory",
                "sessions",
                "What was done in it, the oldest first: in pages, or all of it with Accept: "
                "application/jsonl",
                [parts](CallPtr call) { return get(parts, std::move(call)); },
                {{200, "A page", "History"}, {200, "A line of JSON for each step", "", kLines}}};
  reading.parameters = {{"from", "The number of the first step", "integer"},
                        {"limit", "At most so many, 1 to 1000", "integer"},
                        {"format", "json or jsonl, whatever is accepted"}};
  return {std::move(reading)};
}

}  // namespace asr
