// The part of the engine that takes over what the last one of its name kept, and leaves its own to
// the next.
#include <fcntl.h>

#include <algorithm>
#include <boost/asio/strand.hpp>

#include "engine/native_engine.hpp"

namespace asr {

Result<void> NativeEngine::take_over(Succession succession) {
  KeeperLink::Settings settings;
  settings.image = UniqueFd(::fcntl(image_.get(), F_DUPFD_CLOEXEC, 3));
  settings.dir = instance_.dir().native();
  settings.lock = instance_.copy_lock();
  settings.patience = options_.keep_for;
  settings.epoch = epoch_ = succession.epoch;
  settings.log = options_.log;
  keeper_ = std::make_shared<KeeperLink>(executor_, std::move(settings));
  auto give_again = [this] {
    for (const auto& sandbox : living())
      if (sandbox->is_kept()) sandbox->give_again();
  };
  bool inherited = static_cast<bool>(succession.keeper);
  if (auto open = keeper_->open(std::move(succession.keeper), std::move(give_again)); !open) {
    // Our failure, and no reason to end what lives: whoever tries again finds it.
    if (inherited) instance_.leave();
    keeper_.reset();
    return open;
  }
  for (std::string& name : succession.forgotten) keeper_->forget(std::move(name));
  for (Legacy& legacy : succession.living) {
    std::string name = legacy.record.id;
    if (auto adopted = adopt(std::move(legacy)); !adopted) give_up(name, adopted.error().what);
  }
  if (!recovery_.adopted.empty() || !recovery_.lost.empty())
    log("adopted " + std::to_string(recovery_.adopted.size()) +
        " sandbox(es) of the last engine, " + std::to_string(recovery_.lost.size()) + " lost");
  return {};
}

// Nobody holds its socket any more, once the keeper has forgotten it: it ends by itself.
void NativeEngine::give_up(const std::string& name, const std::string& why) {
  keeper_->forget(name);
  auto& all = recovery_.adopted;
  auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.id == name; });
  if (found == all.end()) return;
  recovery_.lost.push_back(*found);
  recovery_.lost.back().why = why;
  all.erase(found);
}

Result<void> NativeEngine::adopt(Legacy legacy) {
  SandboxRecord& record = legacy.record;
  Birth birth;
  birth.id = SandboxId(record.id);
  birth.spec = record.spec;
  birth.isolation = record.isolation;
  birth.host_pid = record.host_pid;
  birth.pidfd = std::move(legacy.pidfd);
  birth.first_id = record.first_id;
  birth.step_micros = record.step_micros;
  birth.cgroups = cgroups_;
  birth.group = TRY(cgroups_->adopt(record.group));
  if (!record.storage.empty())
    birth.storage = TRY(storage_->adopt(record.storage, std::move(legacy.storage)));
  if (record.first_id != 0) TRY(ids_->adopt(record.first_id, std::move(legacy.id_lock)));
  birth.channel =
      std::make_shared<Channel>(asio::make_strand(executor_), std::move(legacy.socket), epoch_);
  auto sandbox = bring_to_life(std::move(birth));
  sandbox->resume_life(record, std::move(legacy.executions));
  adopted_.push_back(std::move(sandbox));
  return {};
}

std::vector<std::shared_ptr<Sandbox>> NativeEngine::adopted() {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Sandbox>> handed_over(adopted_.begin(), adopted_.end());
  adopted_.clear();
  return handed_over;
}

asio::awaitable<Result<void>> NativeEngine::leave() {
  if (!keeper_)
    co_return fail(Errc::unsupported, "this engine keeps nothing: it has no fixed name",
                   "set EngineOptions::instance, or stop it");
  auto closing = close_pools();
  co_await std::move(closing);
  std::vector<std::shared_ptr<NativeSandbox>> kept = living();
  std::vector<std::shared_ptr<NativeSandbox>> others;
  std::erase_if(kept, [&](const auto& sandbox) {
    if (sandbox->is_kept()) return false;
    others.push_back(sandbox);
    return true;
  });
  for (const auto& sandbox : kept) {
    auto leaving = sandbox->leave();
    co_await std::move(leaving);
  }
  auto ending = end_all(std::move(others));
  auto ended = co_await std::move(ending);
  (void)adopted();
  if (kept.empty()) {
    auto quitting = keeper_->quit();
    co_await std::move(quitting);
    co_return ended;
  }
  auto leaving = keeper_->leave();
  co_await std::move(leaving);
  instance_.leave();
  owns_remains_ = false;
  std::lock_guard lock(mutex_);
  living_.clear();  // The others live, but not with us.
  co_return ended;
}

}  // namespace asr
