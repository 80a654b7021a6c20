#include "cli/remote_batch.hpp"

#include <algorithm>
#include <charconv>

namespace asr {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLongestLine = 16 << 20;
constexpr auto kCancelWithin = 15s;

}  // namespace

bool RemoteBatch::is_wanted() {
  wanted_ = wanted_ && listener_.go_on();
  return wanted_;
}

Result<void> RemoteBatch::judge(const std::vector<JudgeItem>& items, std::size_t at_once) {
  most_ = std::clamp<std::size_t>(at_once, 1, kMostItems);
  for (const JudgeItem& item : items) awaited_.emplace(item.id, &item);
  auto judged = judge_all(items);
  if (!judged || !wanted_) cancel();
  return judged;
}

Result<void> RemoteBatch::judge_all(const std::vector<JudgeItem>& items) {
  while (!awaited_.empty() && is_wanted()) {
    std::string body;
    Items batch = next_batch(items, body);
    Course course = TRY(send(batch, std::move(body)));
    while (course == Course::cut_off && !id_.empty()) course = TRY(follow());
    if (course == Course::too_large) {
      if (batch.size() == 1)
        return fail(located(Error(Errc::invalid, "/items/0 is too large for the server"), batch));
      most_ = batch.size() / 2;
    }
  }
  return {};
}

// The next that have no verdict yet, as many as one request may hold.
RemoteBatch::Items RemoteBatch::next_batch(const std::vector<JudgeItem>& items,
                                           std::string& body) const {
  Items batch;
  body = "{\"items\":[";
  for (const JudgeItem& item : items) {
    if (!awaited_.contains(item.id)) continue;
    if (batch.size() >= most_) break;
    std::string text = to_text(item.body);
    if (!batch.empty() && body.size() + text.size() > kMostBytes) break;
    body += (batch.empty() ? "" : ",") + text;
    batch.push_back(&item);
  }
  body += "]}";
  return batch;
}

Result<RemoteBatch::Course> RemoteBatch::send(const Items& batch, std::string body) {
  id_.clear();
  heard_ = 0;
  awaited_after_ = awaited_.size() - batch.size();
  ClientRequest request;
  request.method = "POST";
  request.body = std::move(body);
  request.headers.add("Content-Type", "application/json");
  request.only_once = true;
  return listen(std::move(request), "/api/batch", &batch);
}

// Where the connection was lost.
Result<RemoteBatch::Course> RemoteBatch::follow() {
  return listen(ClientRequest(),
                "/api/batch/" + percent_encode(id_) + "/verdicts?from=" + std::to_string(heard_),
                nullptr);
}

// One connection, to its end. Errors are those another one would have, too.
Result<RemoteBatch::Course> RemoteBatch::listen(ClientRequest request, const std::string& path,
                                                const Items* sent) {
  std::size_t before = awaited_.size();
  Result<void> taken;
  half_line_.clear();
  request.go_on = [this] { return is_wanted(); };
  request.see_head = [this](unsigned status, const Headers& headers) {
    has_answered_ = true;
    if (status < 300 && headers.has("Batch-Id")) id_ = std::string(headers.get("Batch-Id"));
  };
  request.write_body = [&](std::string_view bytes) {
    taken = take_bytes(bytes);
    return taken.has_value() && is_wanted();
  };
  auto answer = remote_.exchange(std::move(request), path);
  if (!taken) return fail(taken.error());
  if (!wanted_) return Course::unwanted;
  if (!answer && !has_answered_) return fail(answer.error());  // There is nothing to wait for.
  if (answer && answer->status == 413 && sent) return Course::too_large;
  bool is_forgotten = answer && answer->status == 404 && !sent;
  bool is_later = !answer || answer->status == 429 || answer->status == 503;
  if (answer && answer->status >= 300 && !is_forgotten && !is_later)
    return fail(sent ? located(error_in(*answer), *sent) : error_in(*answer));
  if (awaited_.size() == awaited_after_) return Course::complete;
  if (awaited_.size() < before) patience_.renew();
  bool was_ended = answer && answer->status < 300;  // without all of it: a server that stops, too
  Patience& patience = was_ended ? ended_patience_ : patience_;
  if (patience.wait({})) return is_forgotten ? Course::forgotten : Course::cut_off;
  if (was_ended)
    return fail(Errc::gone, "the batch was ended before all verdicts were there",
                "somebody has cancelled it on the server");
  if (answer) return fail(error_in(*answer));
  return fail(Errc::timeout, answer.error().what, answer.error().hint);
}

Result<void> RemoteBatch::take_bytes(std::string_view bytes) {
  while (!bytes.empty()) {
    std::size_t end = bytes.find('\n');
    half_line_ += bytes.substr(0, end);
    if (half_line_.size() > kLongestLine) return fail(Errc::exhausted, "a verdict is too large");
    if (end == std::string_view::npos) return {};
    bytes.remove_prefix(end + 1);
    std::string line = std::exchange(half_line_, {});
    TRY(take_line(line));
  }
  return {};
}

Result<void> RemoteBatch::take_line(std::string_view line) {
  if (line.find_first_not_of(" \r") == std::string_view::npos) return {};  // It only says it lives.
  json::value verdict = TRY(parse_json(line));
  std::string id = text_at(verdict, "id");
  if (!verdict.is_object() || text_at(verdict, "verdict").empty())
    return fail(Errc::internal, "the server sent no verdict");
  ++heard_;
  auto found = awaited_.find(id);
  if (found == awaited_.end()) return {};  // It is known already.
  const JudgeItem& item = *found->second;
  awaited_.erase(found);
  listener_.take(item, std::move(verdict.get_object()));
  return {};
}

// "/items/3/code is missing" says nothing to somebody who has written a file.
Error RemoteBatch::located(Error error, const Items& sent) const {
  constexpr std::string_view kPointer = "/items/";
  std::size_t at = error.what.find(kPointer);
  if (at == std::string::npos) return error;
  const char* first = error.what.data() + at + kPointer.size();
  std::size_t number = 0;
  auto [end, ec] = std::from_chars(first, error.what.data() + error.what.size(), number);
  if (ec != std::errc() || number >= sent.size()) return error;
  error.what = file_ + ":" + std::to_string(sent[number]->line) + ": " + error.what.substr(0, at) +
               error.what.substr(static_cast<std::size_t>(end - error.what.data()));
  return error;
}

void RemoteBatch::cancel() {
  if (id_.empty()) return;
  (void)remote_.call("DELETE", "/api/batch/" + percent_encode(id_), nullptr, kCancelWithin);
}

}  // namespace asr
