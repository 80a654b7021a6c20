#include "session/contexts.hpp"

#include <algorithm>

namespace asr {

namespace {

Result<const Language*> known_language(std::string_view name) {
  if (const Language* language = find_language(name)) return language;
  std::string names;
  for (const Language& language : languages())
    names += (names.empty() ? "" : ", ") + std::string(language.name);
  return fail(Errc::invalid, "there is no interpreter for \"" + std::string(name) + "\"",
              "the languages are " + names);
}

}  // namespace

Result<std::shared_ptr<Context>> Contexts::add(std::shared_ptr<Context> context) {
  if (contexts_.size() >= kMost)
    return fail(Errc::exhausted, "the session has as many contexts as it may",
                "remove some of them");
  contexts_.emplace(context->id(), context);
  return context;
}

Result<std::shared_ptr<Context>> Contexts::make(std::string_view language, std::string cwd,
                                                std::map<std::string, std::string> env) {
  const Language* known = TRY(known_language(language));
  std::string id = "x" + std::to_string(++last_);
  return add(
      std::make_shared<Context>(executor_, std::move(id), *known, std::move(cwd), std::move(env)));
}

Result<std::shared_ptr<Context>> Contexts::find(std::string_view id) const {
  auto found = contexts_.find(id);
  if (found == contexts_.end())
    return fail(Errc::not_found, "there is no such context in this session",
                "GET /api/sessions/{id}/contexts lists them");
  return found->second;
}

Result<std::shared_ptr<Context>> Contexts::find(std::string_view id, std::string_view language,
                                                const std::map<std::string, std::string>& env) {
  if (!id.empty()) {
    if (auto found = contexts_.find(id); found != contexts_.end()) return found->second;
    // The language's own, by its name, before it was ever used.
    const Language* named = find_language(id);
    if (!named || named->name != id) return find(id);
    language = id;
  }
  const Language* known = TRY(known_language(language.empty() ? "python" : language));
  if (auto found = contexts_.find(known->name); found != contexts_.end()) return found->second;
  return add(std::make_shared<Context>(executor_, std::string(known->name), *known, "", env));
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

void Contexts::take_up(std::shared_ptr<Execution> process, const std::string& label) {
  std::size_t colon = label.find(':', 2);
  if (colon == std::string::npos) return;
  const Language* language = find_language(label.substr(2, colon - 2));
  std::string id = label.substr(colon + 1);
  if (!language) return;
  if (id.starts_with('x'))
    last_ = std::max<std::uint64_t>(last_, std::strtoull(id.c_str() + 1, nullptr, 10));
  contexts_.insert_or_assign(
      id, std::make_shared<Context>(executor_, id, *language, std::move(process)));
}

}  // namespace asr
