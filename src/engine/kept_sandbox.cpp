// The part of a sandbox's life that outlives the daemon: given to the keeper by one, taken up by
// the next.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>

#include "engine/native_execution.hpp"
#include "engine/native_sandbox.hpp"

namespace asr {

Result<Keepsake> NativeSandbox::keepsake() const {
  SandboxRecord record;
  record.id = birth_.id.text;
  record.label = label_.get();
  record.spec = birth_.spec;
  record.isolation = birth_.isolation;
  record.host_pid = birth_.host_pid;
  record.group = birth_.group;
  record.first_id = birth_.first_id;
  record.step_micros = birth_.step_micros;
  record.paused = paused_time_.state();
  auto used = storage();
  if (used) record.storage = used->records();
  Keepsake thing;
  thing.name = birth_.id.text;
  thing.blob = to_blob(record);
  thing.fds.push_back(birth_.channel->copy_socket());
  thing.fds.emplace_back(::fcntl(birth_.pidfd.get(), F_DUPFD_CLOEXEC, 3));
  if (birth_.first_id != 0) thing.fds.push_back(birth_.ids->copy_lock(birth_.first_id));
  if (used)
    for (int fd : used->descriptors()) thing.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  for (const UniqueFd& fd : thing.fds)
    if (!fd) return fail(out_of_descriptors());
  return thing;
}

std::shared_ptr<StorageLease> NativeSandbox::storage() const {
  std::lock_guard lock(storage_mutex_);
  return birth_.storage;
}

asio::awaitable<Result<void>> NativeSandbox::keep(std::string label) {
  CO_TRY(check_label(label));
  if (!birth_.keeper)
    co_return fail(Errc::unsupported, "this engine keeps nothing: it has no fixed name",
                   "set EngineOptions::instance");
  auto self = shared_from_this();
  auto keeping = keep_on_strand(std::move(label));
  co_return co_await on_strand(strand(), std::move(keeping));
}

asio::awaitable<Result<void>> NativeSandbox::keep_on_strand(std::string label) {
  if (state_ == SandboxState::gone || buried_)
    co_return fail(Errc::gone, "the sandbox has ended", "create a new one");
  // A record does not tell of the folder.
  if (!birth_.spec.environment.workspace.empty())
    co_return fail(Errc::unsupported, "a sandbox that works on a folder ends with its engine");
  label_.set(std::move(label));
  kept_ = true;
  auto thing = keepsake();
  if (!thing) {
    kept_ = false;
    co_return fail(std::move(thing).error());
  }
  auto keeping = birth_.keeper->keep(*std::move(thing));
  auto kept = co_await std::move(keeping);
  if (!kept) kept_ = false;
  // It may have ended while it was being kept, too early to know that there is something to forget.
  if (buried_) birth_.keeper->forget(birth_.id.text);
  co_return kept;
}

void NativeSandbox::save_soon() {
  if (!kept_ || !birth_.keeper) return;
  asio::post(strand(), [self = shared_from_this()] {
    if (self->buried_ || self->left_) return;
    if (auto thing = self->keepsake()) self->birth_.keeper->save(*std::move(thing));
  });
}

void NativeSandbox::give_again() {
  save_soon();
  asio::post(strand(), [self = shared_from_this()] {
    for (const auto& weak : self->kept_executions_)
      if (auto execution = weak.lock()) execution->save();
  });
}

void NativeSandbox::resume_life(const SandboxRecord& record,
                                std::vector<KeptExecution> executions) {
  label_.set(record.label);
  kept_ = true;
  paused_time_.restore(record.paused);
  // What the kernel says, whatever was written down: the daemon may have died between the two.
  if (birth_.cgroups->is_frozen(birth_.group)) {
    state_ = SandboxState::paused;
    if (!record.paused.since) paused_time_.begin();
  } else {
    paused_time_.end();
  }
  std::vector<std::weak_ptr<NativeExecution>> all;
  for (KeptExecution& kept : executions) {
    auto execution = NativeExecution::adopt(birth_.channel, execution_context(),
                                            std::move(kept.record), std::move(kept.fds));
    if (!execution) continue;
    all.push_back(*execution);
    adopted_.push_back(*std::move(execution));
  }
  begin();
  auto taking = take_stock(birth_.channel, std::move(all));
  asio::co_spawn(strand(), std::move(taking), asio::detached);
}

// Asks which programs there are. What the guest has told before it answers has been read by then,
// so a program that it does not know and whose end has not come had its end told to a daemon that
// died.
asio::awaitable<void> NativeSandbox::take_stock(
    std::shared_ptr<Channel> channel, std::vector<std::weak_ptr<NativeExecution>> executions) {
  auto box = channel->box();
  if (!channel->send(box->id(), wire::KnownExecutions{})) co_return;
  // As long as it takes: a paused sandbox answers when it goes on.
  auto answer = co_await box->next();
  auto known = answer ? answer->as<wire::Executions>() : std::nullopt;
  if (!known) co_return;
  for (const auto& weak : executions) {
    auto execution = weak.lock();
    if (!execution) continue;
    auto found = std::find(known->ids.begin(), known->ids.end(), execution->id());
    if (found == known->ids.end()) execution->lose();
  }
}

std::vector<std::unique_ptr<Execution>> NativeSandbox::adopted_executions() {
  std::vector<std::shared_ptr<NativeExecution>> handed_over;
  {
    std::lock_guard lock(adopted_mutex_);
    handed_over.swap(adopted_);
  }
  std::vector<std::unique_ptr<Execution>> executions;
  for (auto& execution : handed_over) executions.push_back(share(std::move(execution), strand()));
  return executions;
}

// Nobody asked for them, and nobody will.
void NativeSandbox::drop_adopted() {
  for (auto& execution : adopted_)
    asio::post(strand(), [dropped = std::move(execution)] { dropped->abandon(); });
  adopted_.clear();
}

asio::awaitable<void> NativeSandbox::leave_on_strand() {
  left_ = true;
  state_ = SandboxState::gone;
  for (const auto& weak : kept_executions_)
    if (auto execution = weak.lock()) execution->leave();
  if (auto used = storage()) used->leave();
  birth_.channel->close();
  co_return;
}

asio::awaitable<void> NativeSandbox::leave() {
  auto self = shared_from_this();
  auto leaving = leave_on_strand();
  co_await on_strand(strand(), std::move(leaving));
}

}  // namespace asr
