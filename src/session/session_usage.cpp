// What sessions use, written down from time to time.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "base/clock.hpp"
#include "session/sessions.hpp"
#include "store/usage_records.hpp"

namespace asr {

namespace {

constexpr std::int64_t kMostSamples = 1440;  // of one session: a day of minutes

UsageRecord sample_of(const std::string& session, const Usage& usage) {
  UsageRecord record;
  record.session = session;
  record.at_ms = now_ms();
  record.cpu_us = usage.cpu.count();
  record.memory_bytes = static_cast<std::int64_t>(usage.memory_bytes);
  record.memory_peak = static_cast<std::int64_t>(usage.memory_peak_bytes);
  record.pids = static_cast<std::int64_t>(usage.pids);
  record.disk_bytes = static_cast<std::int64_t>(usage.disk_bytes);
  return record;
}

}  // namespace

void Sessions::watch_usage() {
  if (settings_.usage_every.count() > 0) asio::co_spawn(executor_, sample_usage(), asio::detached);
}

asio::awaitable<void> Sessions::sample_usage() {
  auto stopped = stopped_;
  asio::steady_timer timer(executor_);
  while (!*stopped) {
    timer.expires_after(settings_.usage_every);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    if (*stopped) co_return;
    std::vector<UsageRecord> samples;
    auto all = live_;
    for (const auto& [id, session] : all) {
      auto sandbox = session->sandbox();
      if (!sandbox) continue;
      auto asking = (*sandbox)->usage();
      auto usage = co_await std::move(asking);
      if (*stopped) co_return;
      if (usage) samples.push_back(sample_of(id, *usage));
    }
    if (samples.empty()) continue;
    auto work = [samples](Database& database) -> Result<void> {
      for (const UsageRecord& sample : samples) {
        auto appended = append_usage(database, sample);
        if (!appended && appended.error().code != Errc::conflict) return appended;
        TRY(trim_usage(database, sample.session, kMostSamples));
      }
      return {};
    };
    auto stored = co_await store_.write_soon(std::move(work));
    if (*stopped) co_return;
    if (!stored) log_.warning("usage could not be written", {{"why", stored.error().what}});
  }
}

asio::awaitable<Result<std::vector<UsageRecord>>> Sessions::usage_history(Caller caller,
                                                                          std::string id,
                                                                          std::int64_t from_ms,
                                                                          std::int64_t limit) {
  auto finding = find_record(caller, id);
  SessionRecord record = CO_TRY(co_await std::move(finding));
  auto look = [session = record.id, from_ms, limit](Database& database) {
    return list_usage(database, session, from_ms, limit);
  };
  co_return co_await store_.read(std::move(look));
}

}  // namespace asr
