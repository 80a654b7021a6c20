#include "session/batches.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <thread>

#include "base/clock.hpp"
#include "base/id.hpp"
#include "session/trail.hpp"

namespace asr {

namespace {

constexpr std::size_t kIdLength = 26;  // five random bits each: 130
constexpr std::size_t kMostText = 64 << 10;
constexpr std::size_t kLeastText = 256;   // where there is no room for more
constexpr std::size_t kBatchCost = 2048;  // beside its verdicts

Error unknown_batch() {
  return Error(Errc::not_found, "there is no such batch",
               "GET /api/batch lists yours; they are kept for some time after their end");
}

}  // namespace

Batches::Batches(asio::any_io_executor executor, Provider& provider,
                 std::shared_ptr<WarmInterpreters> interpreters, Store& store, EventBus& events,
                 const Log& log, BatchSettings settings)
    : executor_(std::move(executor)),
      store_(store),
      events_(events),
      log_(log),
      settings_(settings),
      judge_(executor_, provider, std::move(interpreters)),
      changed_(executor_) {
  if (settings_.at_once == 0)
    settings_.at_once = 2 * std::max(1U, std::thread::hardware_concurrency());
}

Batches::~Batches() { *gone_ = true; }

Result<void> Batches::admit(const Caller& caller, const BatchRequest& request) const {
  if (caller.role == Role::viewer)
    return fail(Errc::denied, "this key may only look", "ask an admin for a key with role user");
  if (stopping_) return fail(Errc::exhausted, "the server is about to stop", "try again later");
  std::size_t count = request.items.size();
  if (turns_.waiting() + count > settings_.most_queued)
    return fail(Errc::exhausted, "as many programs wait as may", "try again when some are judged");
  if (turns_.waiting_of(caller.id) + count > (settings_.most_queued + 1) / 2)
    return fail(Errc::exhausted, "as many programs of this key wait as may",
                "try again when some are judged");
  if (waiting_bytes_ + request.bytes() > settings_.most_bytes)
    return fail(Errc::exhausted, "the programs that wait take as much memory as they may",
                "try again when some are judged");
  return {};
}

void Batches::take_in(const std::shared_ptr<Batch>& batch) {
  batch->age_ = ++ages_;
  all_.emplace(batch->id(), batch);
  by_age_.emplace(batch->age_, batch);
  (void)make_room(batch->owner(), kBatchCost);
  keep(*batch, kBatchCost);
  for (const auto& item : batch->items_) waiting_bytes_ += item->bytes();
  queues_[batch->owner()].push_back(batch);
  turns_.wait(batch->owner(), batch->waiting());
}

asio::awaitable<Result<std::shared_ptr<Batch>>> Batches::submit(Caller caller,
                                                                BatchRequest request) {
  CO_TRY(admit(caller, request));
  auto batch =
      std::make_shared<Batch>(executor_, random_name(kIdLength), caller.id, std::move(request));
  take_in(batch);
  begin_work();
  auto entry = audit_of(caller, "batch.create", batch->id(), {{"items", batch->total()}});
  auto record = [entry, &secrets = store_.secrets()](Database& database) {
    return append_audit(database, secrets, entry);
  };
  auto recorded = co_await store_.write(std::move(record));
  if (!recorded) {  // Nobody is told of it, so it goes.
    if (batch->state() == BatchState::running) call_off(batch);
    forget(batch);
    co_return fail(std::move(recorded).error());
  }
  co_return batch;
}

void Batches::begin_work() {
  // When all places are taken, there is one more for whoever has none: programs that take long are
  // not to keep out everybody else.
  constexpr std::size_t kOneEach = 1;
  std::size_t most = 2 * std::size_t{settings_.at_once};
  while (!stopping_ && turns_.in_work() < most) {
    bool full = turns_.in_work() >= settings_.at_once;
    auto who = full ? turns_.next(kOneEach) : turns_.next();
    if (!who) return;
    // Batches of one caller take turns in turn.
    auto& queue = queues_.at(*who);
    std::shared_ptr<Batch> batch = std::move(queue.front());
    queue.pop_front();
    auto item = batch->take_item();
    waiting_bytes_ -= item->bytes();
    if (batch->waiting() > 0) queue.push_back(batch);
    if (queue.empty()) queues_.erase(*who);
    asio::co_spawn(executor_, work_on(std::move(batch), std::move(item)), asio::detached);
  }
}

// Nothing in there throws; if something does, it is a bug, and others are not to wait for ever.
asio::awaitable<Judgement> Batches::judge_safely(std::string owner,
                                                 std::shared_ptr<const BatchItem> item,
                                                 std::shared_ptr<CallOff> call_off) {
  try {
    auto judging = judge_.judge(std::move(owner), std::move(item), std::move(call_off));
    co_return co_await std::move(judging);
  } catch (const std::exception& problem) {
    log_.error("judging threw", {{"what", problem.what()}});
    Judgement judgement;
    judgement.reason = "something went wrong here";
    co_return judgement;
  }
}

asio::awaitable<void> Batches::work_on(std::shared_ptr<Batch> batch,
                                       std::shared_ptr<const BatchItem> item) {
  auto gone = gone_;
  auto calling = std::make_shared<CallOff>(executor_);
  batch->under_way_.insert(calling);
  if (batch->state() != BatchState::running) calling->call();
  auto judging = judge_safely(batch->owner(), item, calling);
  Judgement judgement = co_await std::move(judging);
  if (*gone) co_return;
  batch->under_way_.erase(calling);
  turns_.done(batch->owner());
  if (batch->state() == BatchState::running) {
    if (judgement.verdict == Verdict::platform)
      log_.warning("a program could not be judged",
                   {{"batch", batch->id()}, {"why", judgement.reason}});
    tell_verdict(*batch, *item, judgement);
    if (batch->verdicts().size() == batch->total()) end(batch, BatchState::done);
  }
  changed_.ring();
  begin_work();
}

void Batches::tell_verdict(Batch& batch, const BatchItem& item, const Judgement& judgement) {
  std::size_t number = batch.verdicts().size();
  std::string line = verdict_line(number, item, judgement, kMostText);
  if (!make_room(batch.owner(), line.size()))
    line = verdict_line(number, item, judgement, kLeastText);
  keep(batch, line.size());
  ++told_[static_cast<std::size_t>(judgement.verdict)];
  batch.add(judgement.verdict, std::move(line));
}

void Batches::end(const std::shared_ptr<Batch>& batch, BatchState state) {
  batch->end(state);
  batch->forget_at_ = Bell::Clock::now() + settings_.keep;
  if (!stopping_) asio::co_spawn(executor_, announce_end(batch), asio::detached);
  if (std::exchange(forgetting_, true)) return;
  asio::co_spawn(executor_, forget_old(), asio::detached);
}

asio::awaitable<void> Batches::announce_end(std::shared_ptr<Batch> batch) {
  auto gone = gone_;
  json::object data{{"batch_id", batch->id()},
                    {"state", to_string(batch->state())},
                    {"total", batch->total()},
                    {"done", batch->verdicts().size()},
                    {"verdicts", json_of(batch->counts())}};
  EventRecord event{0, now_ms(), "batch.ended", "", batch->owner(), to_text(data)};
  auto work = [event](Database& database) { return append_event(database, event); };
  auto id = co_await store_.write_soon(std::move(work));
  if (!id || *gone) co_return;
  event.id = *id;
  events_.announce(std::move(event));
}

Result<std::shared_ptr<Batch>> Batches::find(const Caller& caller, const std::string& id) const {
  auto found = all_.find(id);
  if (found == all_.end()) return fail(unknown_batch());
  if (found->second->owner() != caller.id && caller.role < Role::oper) return fail(unknown_batch());
  return found->second;
}

std::vector<std::shared_ptr<Batch>> Batches::list(const Caller& caller, std::size_t limit) const {
  std::vector<std::shared_ptr<Batch>> found;
  for (auto each = by_age_.rbegin(); each != by_age_.rend() && found.size() < limit; ++each) {
    const auto& batch = each->second;
    if (batch->owner() == caller.id || caller.role >= Role::oper) found.push_back(batch);
  }
  return found;
}

void Batches::call_off(const std::shared_ptr<Batch>& batch) {
  for (const auto& item : batch->items_) waiting_bytes_ -= item->bytes();
  turns_.leave(batch->owner(), batch->waiting());
  if (auto queue = queues_.find(batch->owner()); queue != queues_.end()) {
    std::erase(queue->second, batch);
    if (queue->second.empty()) queues_.erase(queue);
  }
  end(batch, BatchState::cancelled);
  auto under_way = batch->under_way_;
  for (const auto& each : under_way) each->call();
}

asio::awaitable<Result<void>> Batches::cancel(Caller caller, std::shared_ptr<Batch> batch) {
  bool running = batch->state() == BatchState::running;
  auto entry = audit_of(caller, running ? "batch.cancel" : "batch.forget", batch->id());
  if (running)
    call_off(batch);
  else
    forget(batch);
  auto record = [entry, &secrets = store_.secrets()](Database& database) {
    return append_audit(database, secrets, entry);
  };
  CO_TRY(co_await store_.write(std::move(record)));
  co_return Result<void>();
}

asio::awaitable<void> Batches::stop() {
  stopping_ = true;
  auto all = all_;
  for (const auto& [id, batch] : all)
    if (batch->state() == BatchState::running) call_off(batch);
  while (turns_.in_work() > 0) co_await changed_.wait();
}

BatchCounts Batches::counts() const {
  BatchCounts counts;
  counts.verdicts = told_;
  counts.waiting = turns_.waiting();
  counts.in_work = turns_.in_work();
  counts.batches = all_.size();
  counts.retries = judge_.retries();
  counts.built = judge_.builder().built();
  counts.reused = judge_.builder().reused();
  return counts;
}

}  // namespace asr
