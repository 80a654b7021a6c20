#include "session/contexts.hpp"

#include <algorithm>

#include "interpreter/language_in.hpp"

namespace asr {

Result<std::shared_ptr<Context>> Contexts::add(std::shared_ptr<Context> context) {
  if (contexts_.size() >= kMost)
    return fail(Errc::exhausted, "the session has as many contexts as it may",
                "remove some of them");
  contexts_.emplace(context->id(), context);
  return context;
}

asio::awaitable<Result<std::shared_ptr<Context>>> Contexts::make(Place place, std::string language,
                                                                 std::string cwd) {
  auto looking = language_in(std::move(place.sandbox), std::move(language));
  LanguagePtr known = CO_TRY(co_await std::move(looking));
  std::string id = "x" + std::to_string(++last_);
  co_return add(std::make_shared<Context>(home_, std::move(id), std::move(known), std::move(cwd),
                                          std::move(place.env)));
}

Result<std::shared_ptr<Context>> Contexts::find(std::string_view id) const {
  auto found = contexts_.find(id);
  if (found == contexts_.end())
    return fail(Errc::not_found, "there is no such context in this session",
                "GET /api/sessions/{id}/contexts lists them");
  return found->second;
}

asio::awaitable<Result<std::shared_ptr<Context>>> Contexts::find(Place place, std::string id,
                                                                 std::string language) {
  if (!id.empty()) {
    // The language's own goes by its name, before it was ever used, too.
    LanguagePtr named = possible_language(id);
    if (contexts_.contains(id) || !named || named->name != id) co_return find(id);
    language = id;
  }
  if (language.empty()) language = "python";
  auto own = [&] {
    LanguagePtr possible = possible_language(language);
    return possible ? contexts_.find(possible->name) : contexts_.end();
  };
  if (auto found = own(); found != contexts_.end()) co_return found->second;
  auto looking = language_in(std::move(place.sandbox), language);
  auto known = co_await std::move(looking);
  if (!known && !id.empty()) co_return find(id);
  if (!known) co_return fail(known.error());
  // Somebody else may have been quicker.
  if (auto found = own(); found != contexts_.end()) co_return found->second;
  std::string name = (*known)->name;
  co_return add(std::make_shared<Context>(home_, std::move(name), std::move(*known),
                                          std::move(place.cwd), std::move(place.env)));
}

std::vector<std::shared_ptr<Context>> Contexts::all() const {
  std::vector<std::shared_ptr<Context>> all;
  for (const auto& [id, context] : contexts_) all.push_back(context);
  return all;
}

Result<void> Contexts::remove(std::string_view id) {
  auto context = TRY(find(id));
  context->close();
  contexts_.erase(context->id());
  return {};
}

asio::awaitable<Result<Contexts::Revived>> Contexts::revive(std::shared_ptr<Sandbox> sandbox,
                                                            std::vector<SavedContext> saved) {
  Revived revived;
  home_.interpreters->forget(sandbox);
  for (const SavedContext& one : saved) {
    LanguagePtr language = possible_language(one.language);
    if (!language) continue;
    auto context = std::make_shared<Context>(home_, std::move(language), one);
    if (one.program) {
      auto reviving = context->revive(sandbox, one.program);
      CO_TRY(co_await std::move(reviving));
    }
    revived.push_back(std::move(context));
  }
  co_return revived;
}

void Contexts::replace(Revived contexts) {
  for (const auto& [id, context] : contexts_) context->close();
  contexts_.clear();
  for (auto& context : contexts) {
    count_in(context->id());
    contexts_.insert_or_assign(context->id(), std::move(context));
  }
}

void Contexts::count_in(const std::string& id) {
  if (id.starts_with('x'))
    last_ = std::max<std::uint64_t>(last_, std::strtoull(id.c_str() + 1, nullptr, 10));
}

void Contexts::take_up(std::shared_ptr<Execution> process, const std::string& label) {
  std::size_t colon = label.find(':', 2);
  if (colon == std::string::npos) return;
  LanguagePtr language = possible_language(label.substr(2, colon - 2));
  std::string id = label.substr(colon + 1);
  if (!language) return;
  count_in(id);
  contexts_.insert_or_assign(
      id, std::make_shared<Context>(home_, id, std::move(language), std::move(process)));
}

}  // namespace asr
