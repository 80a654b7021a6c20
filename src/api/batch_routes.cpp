// Batches: send many programs, read their verdicts as they are reached, go on after a lost
// connection, cancel.
#include "api/api.hpp"
#include "session/batches.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostBody = 64 << 20;
constexpr std::size_t kMostAtOnce = 256 << 10;  // written to a reader in one go

Result<std::shared_ptr<Batch>> find(const ApiParts& parts, const Call& call) {
  return parts.batches->find(call.caller, call.parts[0]);
}

// As many lines as there are from `at` on, but not too much at once; moves `at` behind them.
std::string lines_from(const Batch& batch, std::size_t& at) {
  std::string lines;
  const auto& verdicts = batch.verdicts();
  while (at < verdicts.size() && lines.size() < kMostAtOnce) lines += verdicts[at++];
  return lines;
}

// Who reads slowly is waited for here, and nowhere else. Who leaves leaves the batch as it is.
asio::awaitable<Result<Reply>> tell_verdicts(ApiParts parts, CallPtr call,
                                             std::shared_ptr<Batch> batch, std::size_t from) {
  Batch::Reader reader(batch);
  Response head;
  head.headers.add("Content-Type", "application/x-ndjson");
  head.headers.add("Cache-Control", "no-store");
  head.headers.add("X-Accel-Buffering", "no");
  head.headers.add("X-Content-Type-Options", "nosniff");
  head.headers.add("Batch-Id", batch->id());
  auto beginning = call->exchange->begin(std::move(head), std::nullopt);
  CO_TRY(co_await std::move(beginning));
  std::size_t at = from;
  while (call->head().method != "HEAD") {
    std::string lines = lines_from(*batch, at);
    if (!lines.empty()) {
      auto writing = call->exchange->write(std::move(lines));
      CO_TRY(co_await std::move(writing));
      continue;
    }
    if (batch->state() != BatchState::running) break;
    auto waiting = batch->wait_for_change(Bell::Clock::now() + kLookAgain);
    co_await std::move(waiting);
    // Half an answer, so that nobody takes it for the whole.
    if (!parts.keys.still_holds(call->caller)) co_return Reply::done();
  }
  auto ending = call->exchange->end();
  CO_TRY(co_await std::move(ending));
  co_return Reply::done();
}

asio::awaitable<Result<Reply>> submit(ApiParts parts, CallPtr call) {
  // What was sent is long: it is let go as soon as it is understood.
  json::object body = std::exchange(call->body, json::object());
  BatchRequest request = CO_TRY(batch_request_from(body, parts.batches->settings().most_items));
  body = json::object();
  bool asked = call->head().headers.lists("prefer", "respond-async");
  bool background = request.background || asked;
  auto submitting = parts.batches->submit(call->caller, std::move(request));
  auto batch = CO_TRY(co_await std::move(submitting));
  if (!background) {
    auto telling = tell_verdicts(parts, call, std::move(batch), 0);
    co_return co_await std::move(telling);
  }
  Reply reply{202, batch->describe(), false, {}};
  reply.headers.add("Batch-Id", batch->id());
  reply.headers.add("Location", "/api/batch/" + batch->id());
  if (asked) reply.headers.add("Preference-Applied", "respond-async");
  co_return reply;
}

asio::awaitable<Result<Reply>> list(ApiParts parts, CallPtr call) {
  std::int64_t limit = CO_TRY(call->number("limit", 100, 1, 1000));
  json::array all;
  for (const auto& batch : parts.batches->list(call->caller, static_cast<std::size_t>(limit)))
    all.push_back(batch->describe());
  co_return Reply{200, json::object{{"batches", std::move(all)}}, false, {}};
}

asio::awaitable<Result<Reply>> get(ApiParts parts, CallPtr call) {
  auto batch = CO_TRY(find(parts, *call));
  co_return Reply{200, batch->describe(), false, {}};
}

asio::awaitable<Result<Reply>> verdicts(ApiParts parts, CallPtr call) {
  auto batch = CO_TRY(find(parts, *call));
  auto most = static_cast<std::int64_t>(batch->total());
  std::int64_t from = CO_TRY(call->number("from", 0, 0, most));
  auto telling = tell_verdicts(parts, call, std::move(batch), static_cast<std::size_t>(from));
  co_return co_await std::move(telling);
}

asio::awaitable<Result<Reply>> cancel(ApiParts parts, CallPtr call) {
  auto batch = CO_TRY(find(parts, *call));
  auto cancelling = parts.batches->cancel(call->caller, std::move(batch));
  CO_TRY(co_await std::move(cancelling));
  co_return Reply::none();
}

}  // namespace

std::vector<Route> batch_routes(const ApiParts& parts) {
  auto with = [parts](auto function) -> Handle {
    return [parts, function](CallPtr call) { return function(parts, std::move(call)); };
  };
  const std::string tag = "batches";
  const std::string one = "/api/batch/{batch}";
  std::vector<Route> routes;
  Route submitting{"POST",
                   "/api/batch",
                   "submitBatch",
                   tag,
                   "Judge many programs, each in a sandbox of its own",
                   with(submit),
                   {{200, "A line of JSON for each verdict, as it is reached", "BatchVerdict",
                     "application/x-ndjson"},
                    {202, "The batch, where nobody wants to wait for it", "Batch"}},
                   "BatchCreate"};
  submitting.most_json = kMostBody;
  submitting.least = Role::user;
  routes.push_back(std::move(submitting));
  Route listing{"GET",
                "/api/batch",
                "listBatches",
                tag,
                "Batches, the newest first",
                with(list),
                {{200, "The batches", "BatchList"}}};
  listing.parameters = {{"limit", "At most so many", "integer"}};
  routes.push_back(std::move(listing));
  routes.push_back({"GET",
                    one,
                    "getBatch",
                    tag,
                    "How far a batch has come",
                    with(get),
                    {{200, "The batch", "Batch"}}});
  Route reading{"GET",
                one + "/verdicts",
                "readVerdicts",
                tag,
                "Verdicts in the order they were reached, to the end of the batch",
                with(verdicts),
                {{200, "A line of JSON for each", "BatchVerdict", "application/x-ndjson"}}};
  reading.parameters = {{"from", "How many are known already", "integer"}};
  routes.push_back(std::move(reading));
  Route cancelling{"DELETE",
                   one,
                   "cancelBatch",
                   tag,
                   "End a batch; forget one that has ended",
                   with(cancel),
                   {{204, "It has ended, or is forgotten"}}};
  cancelling.least = Role::user;
  routes.push_back(std::move(cancelling));
  return routes;
}

}  // namespace asr
