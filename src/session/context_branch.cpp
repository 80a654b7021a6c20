// Interpreters that are saved as they stand, and those that go on from there.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "base/clock.hpp"
#include "base/scope_exit.hpp"
#include "interpreter/saved_kernel.hpp"
#include "session/context.hpp"

namespace asr {

json::object json_of(const SavedContext& context) {
  json::object out{{"context_id", context.id},
                   {"language", context.language},
                   {"memory", context.program          ? "saved"
                              : context.loses_memory() ? "lost"
                                                       : "none"}};
  if (context.loses_memory()) out["why"] = context.why_not;
  if (!context.program) return out;
  out["bytes"] = context.bytes;
  json::array lost;
  if (context.threads > 0) lost.emplace_back(std::to_string(context.threads) + " threads");
  if (context.event_loop) lost.emplace_back("event loop");
  for (const std::string& file : context.files) lost.emplace_back(file);
  out["lost"] = std::move(lost);
  return out;
}

Context::Context(Home home, LanguagePtr language, const SavedContext& saved)
    : Context(std::move(home), saved.id, std::move(language), saved.cwd, saved.env) {
  version_ = saved.version;
  count_ = saved.count;
  had_one_ = saved.had_one;
  // Whoever goes on has seen the numbers of cells before.
  last_cell_ = static_cast<std::uint64_t>(now_ms());
}

Result<std::shared_ptr<void>> Context::hold_still() {
  if (taken_)
    return fail(Errc::conflict, "a cell runs in the context " + id_,
                "wait for it, or interrupt it");
  taken_ = true;
  auto let_go = [self = shared_from_this()](void*) {
    self->taken_ = false;
    self->changed_.ring();
  };
  return std::shared_ptr<void>(this, let_go);
}

asio::awaitable<Result<SavedContext>> Context::save() {
  auto self = shared_from_this();
  SavedContext saved{id_, language_->name, cwd_, env_, version_, count_, had_one_, {}, {}, 0, 0, {},
                     {}};
  if (!process_) co_return saved;
  if (!language_->can_be_saved()) {
    saved.why_not = "interpreters of " + language_->name + " cannot be saved";
    co_return saved;
  }
  auto talk = std::make_shared<KernelTalk>(KernelTalk{process_, std::move(events_), frozen_});
  ScopeExit give_back([this, talk] { events_ = std::move(talk->events); });
  auto saving = save_kernel(talk, ++last_cell_);
  auto kernel = co_await std::move(saving);
  if (!kernel) {
    saved.why_not = kernel.error().what;
    co_return saved;
  }
  frozen_ = kernel->program;
  saved.program = std::move(kernel->program);
  saved.bytes = kernel->bytes;
  saved.threads = kernel->threads;
  saved.files = std::move(kernel->files);
  saved.event_loop = kernel->event_loop;
  co_return saved;
}

asio::awaitable<Result<void>> Context::revive(std::shared_ptr<Sandbox> sandbox,
                                              std::shared_ptr<const FrozenProgram> program) {
  taken_ = reviving_ = true;  // Whoever comes now waits.
  KernelStart how;
  how.language = language_;
  how.frozen = std::move(program);
  auto beginning = begin_thaw(sandbox, how);
  KernelProcess begun = CO_TRY(co_await std::move(beginning));
  auto keeping = keep(begun.process);
  co_await std::move(keeping);
  asio::co_spawn(executor_,
                 go_on(shared_from_this(), std::move(begun), std::move(sandbox), std::move(how)),
                 asio::detached);
  co_return Result<void>();
}

asio::awaitable<Result<void>> Context::revived() {
  auto self = shared_from_this();
  while (reviving_) co_await changed_.wait();
  if (not_revived_) co_return fail(*not_revived_);
  co_return Result<void>();
}

asio::awaitable<void> Context::go_on(std::shared_ptr<Context> self, KernelProcess begun,
                                     std::shared_ptr<Sandbox> sandbox, KernelStart how) {
  ScopeExit give_back([self] {
    self->taken_ = self->reviving_ = false;
    self->changed_.ring();
  });
  auto finishing = finish_thaw(std::move(begun), std::move(sandbox), std::move(how));
  auto kernel = co_await std::move(finishing);
  if (!kernel && kernel.error().code == Errc::unsupported)
    self->not_revived_ = Error(
        Errc::conflict, "the memory of the interpreter " + self->id_ + " does not come to life",
        "files that it had mapped may have changed since; use another checkpoint, or restart "
        "the context");
  else if (!kernel)
    self->not_revived_ = kernel.error();
  if (!kernel) co_return;
  auto taking_over = self->take_over(std::move(*kernel));
  co_await std::move(taking_over);
  if (self->closed_) self->close();  // Nobody had a process to end then.
}

}  // namespace asr
