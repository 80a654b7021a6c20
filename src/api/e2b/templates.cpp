#include "api/e2b/templates.hpp"

#include "api/e2b/template_name.hpp"
#include "session/templates.hpp"

namespace asr {

asio::awaitable<Result<std::shared_ptr<Session>>> e2b_make(E2bParts parts, Caller caller,
                                                           E2bCreate create) {
  E2bTemplateName name = CO_TRY(e2b_template_name(create.template_name));
  SessionRequest& request = create.request;
  request.labels[std::string(kE2bTemplateLabel)] = name.name;
  auto environment = e2b_built_in(name.name);
  if (!environment) {
    auto finding = parts.api.templates->find_start(caller, name.name, name.tag);
    auto found = co_await std::move(finding);
    if (found) {
      auto making =
          parts.api.templates->create(caller, std::move(request), std::move(found->start));
      co_return co_await std::move(making);
    }
    if (found.error().code != Errc::not_found) co_return fail(found.error());
  }
  if (environment) {
    request.environment = *environment;
    request.spec.environment = CO_TRY(parse_environment(*environment));
  } else {
    request.environment = std::string(Snapshots::kPrefix) + name.name;
    request.snapshot = name.name;
  }
  bool is_snapshot = !request.snapshot.empty();
  auto creating = parts.sessions().create(std::move(caller), std::move(request));
  auto session = co_await std::move(creating);
  if (!session && session.error().code == Errc::not_found && is_snapshot)
    co_return fail(Errc::not_found, "template \"" + name.name + "\" not found",
                   "there are base, code-interpreter-v1, your own templates and your snapshots");
  co_return session;
}

}  // namespace asr
