#include "api/idempotency.hpp"

#include <boost/json/parse.hpp>

#include "base/clock.hpp"
#include "store/idempotency_records.hpp"

namespace asr {

namespace {

constexpr std::size_t kLongestKey = 255;
constexpr auto kPatience = std::chrono::seconds(60);

// The first request is still at work: its answer is worth waiting for.
asio::awaitable<Result<IdempotencyRecord>> await_first(ApiParts parts, std::string owner,
                                                       std::string key, std::string hash) {
  auto until = std::chrono::steady_clock::now() + kPatience;
  asio::steady_timer pause(parts.executor);
  while (std::chrono::steady_clock::now() < until) {
    pause.expires_after(std::chrono::milliseconds(10));
    boost::system::error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    auto look = [owner, key, hash](Database& database) {
      return claim_idempotency(database, owner, key, hash, now_ms());
    };
    Claim claim = CO_TRY(co_await parts.store.write(std::move(look)));
    if (claim.outcome == Claimed::mine) {
      // It failed, and its claim was given up. Whoever sent this may try again.
      auto give_up = [owner, key](Database& database) {
        return forget_idempotency(database, owner, key);
      };
      CO_TRY(co_await parts.store.write(std::move(give_up)));
      break;
    }
    if (claim.record.status != 0) co_return claim.record;
  }
  co_return fail(Errc::conflict, "the first request with this Idempotency-Key did not end well",
                 "send it again with another key");
}

}  // namespace

asio::awaitable<Result<Reply>> once(ApiParts parts, CallPtr call, Work work) {
  std::string key(call->head().headers.get("idempotency-key"));
  if (key.empty()) co_return co_await work(parts, call);
  if (key.size() > kLongestKey) co_return fail(Errc::invalid, "the Idempotency-Key is too long");
  std::string owner = call->caller.id;
  std::string hash = sha256(call->head().path + '\n' + to_text(call->body));
  auto claiming = [owner, key, hash](Database& database) {
    return claim_idempotency(database, owner, key, hash, now_ms());
  };
  Claim claim = CO_TRY(co_await parts.store.write(std::move(claiming)));
  if (claim.outcome == Claimed::other_request)
    co_return fail(Errc::conflict, "this Idempotency-Key was used for another request",
                   "use a new key for a new request");
  if (claim.outcome == Claimed::same) {
    IdempotencyRecord first = claim.record;
    if (first.status == 0) {
      auto waiting = await_first(parts, owner, key, hash);
      first = CO_TRY(co_await std::move(waiting));
    }
    Reply reply{static_cast<unsigned>(first.status), json::parse(first.response), false, {}};
    reply.headers.add("Idempotent-Replayed", "true");
    co_return reply;
  }
  auto reply = co_await work(parts, call);
  IdempotencyRecord record{owner, key, hash, "", 0, "", now_ms()};
  if (reply) {
    record.status = reply->status;
    record.response = to_text(reply->body);
  }
  auto finishing = [record](Database& database) -> Result<void> {
    if (record.status != 0) return finish_idempotency(database, record);
    TRY(forget_idempotency(database, record.owner, record.key));
    return {};
  };
  CO_TRY(co_await parts.store.write(std::move(finishing)));
  co_return reply;
}

}  // namespace asr
