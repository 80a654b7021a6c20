// The ways out of sessions: opened with their sandboxes, changed while they live, told of when they
// are used.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "session/session_files.hpp"
#include "session/sessions.hpp"
#include "session/trail.hpp"

namespace asr {

namespace {

bool has_credentials(const EgressPolicy& policy) {
  for (const auto& rule : policy.rules())
    if (!rule->credentials.empty()) return true;
  return false;
}

// A file where every program can read it; gives its name.
asio::awaitable<Result<std::string>> write_bundle(std::shared_ptr<Sandbox> sandbox,
                                                  std::string bundle) {
  bool writable = sandbox->spec().root == RootMode::writable;
  std::string path = writable ? kTrustFile : kTrustFileOfReadOnly;
  std::string user = writable ? "root" : "user";
  if (writable) {
    auto making = sandbox->make_directory(kTrustFolder, 0755, user);
    auto made = co_await std::move(making);
    if (!made && made.error().code != Errc::conflict) co_return fail(std::move(made).error());
  }
  auto writing = sandbox->write_file(path, std::move(bundle), 0644, user);
  CO_TRY(co_await std::move(writing));
  co_return path;
}

}  // namespace

asio::awaitable<Result<void>> Sessions::open_network(std::shared_ptr<Session> session,
                                                     std::shared_ptr<Sandbox> sandbox) {
  NetworkRequest network = session->request().network;
  if (!network.needs_proxy()) co_return Result<void>();
  if (!settings_.dialer)
    co_return fail(Errc::unsupported, "/network/mode: this server opens no network");
  // Who makes a session is told what is missing; one that goes on does without.
  auto missing = live_.contains(session->id()) ? SecretKeeper::Missing::left_out
                                               : SecretKeeper::Missing::refused;
  auto filling = secrets_.fill_in(session->owner(), network.policy, missing);
  EgressPolicy filled = CO_TRY(co_await std::move(filling));
  SessionEgress::Parts parts{executor_, *settings_.dialer, log_, {}, report_of(session), 0};
  auto egress = CO_TRY(SessionEgress::open(std::move(parts), sandbox, std::move(filled)));
  session->set_egress(std::move(egress));
  auto writing = write_trust(session, sandbox);
  co_return co_await std::move(writing);
}

// What programs must trust, where hosts have credentials: once for each authority.
asio::awaitable<Result<void>> Sessions::write_trust(std::shared_ptr<Session> session,
                                                    std::shared_ptr<Sandbox> sandbox) {
  const SessionEgress* egress = session->egress();
  bool needed =
      egress && !session->has_trust() && has_credentials(session->request().network.policy);
  if (!needed || sandbox->state() == SandboxState::paused) co_return Result<void>();
  auto writing = write_bundle(sandbox, trust_bundle(egress->certificate()));
  std::string path = CO_TRY(co_await std::move(writing));
  session->set_trust(trust_variables(path));
  co_return Result<void>();
}

EgressProxy::Report Sessions::report_of(const std::shared_ptr<Session>& session) {
  return [this, stopped = stopped_, weak = std::weak_ptr(session)](const EgressAttempt& attempt) {
    auto of = weak.lock();
    if (*stopped || !of || of->state() == SessionState::gone) return;
    // A program that knocks without end costs no more than this.
    auto unsaid = of->may_tell_attempt();
    if (!unsaid) return;
    json::object data = json_of(attempt);
    if (*unsaid > 0) data["unsaid_before"] = *unsaid;
    std::string type = attempt.allowed ? "network.allowed" : "network.denied";
    asio::co_spawn(executor_, tell(event_of(*of, std::move(type), std::move(data))),
                   asio::detached);
  };
}

asio::awaitable<Result<void>> Sessions::set_network(Caller caller, std::shared_ptr<Session> session,
                                                    NetworkRequest network) {
  CO_TRY(check_allowed(network, caller.role));
  if (!session->request().network.needs_proxy() || network.mode == NetworkMode::full)
    co_return fail(
        Errc::conflict, "a session's kind of network is decided when it is made",
        "make it with \"network\": {\"mode\": \"allow\", \"allow\": []} to open hosts later");
  auto filling = secrets_.fill_in(session->owner(), network.policy, SecretKeeper::Missing::refused);
  EgressPolicy filled = CO_TRY(co_await std::move(filling));
  SessionRequest request = session->request();
  request.network = network;
  // The sandbox has a door; with the mode none it leads nowhere.
  if (network.mode == NetworkMode::none) request.network.mode = NetworkMode::allow;
  SessionRecord record = session->record();
  record.spec = to_text(json_of(request));
  record.sealed = store_.secrets().seal(secrets_of(request), record.id);
  json::object shown = json_of(request.network);
  EventRecord event = event_of(*session, "session.network", shown);
  auto change = [record](Database& database) {
    return update_session_request(database, record.id, record.spec, record.sealed);
  };
  auto work = with_trail(std::move(change), event,
                         audit_of(caller, "session.network", record.id, shown), store_.secrets());
  event.id = CO_TRY(co_await store_.write(std::move(work)));
  session->record().spec = record.spec;
  session->record().sealed = record.sealed;
  session->set_network(request.network, std::move(filled));
  events_.announce(std::move(event));
  auto sandbox = session->sandbox(Session::Want::alive);
  if (!sandbox) co_return Result<void>();  // It is told when it has a computer again.
  auto writing = write_trust(session, *sandbox);
  co_return co_await std::move(writing);
}

asio::awaitable<void> Sessions::renew_secrets(std::string owner) {
  std::vector<std::shared_ptr<Session>> all;
  for (const auto& [id, session] : live_)
    if (session->owner() == owner && names_secrets(session->request().network.policy))
      all.push_back(session);
  for (const auto& session : all) {
    auto filling =
        secrets_.fill_in(owner, session->request().network.policy, SecretKeeper::Missing::left_out);
    auto filled = co_await std::move(filling);
    // What cannot be filled in leaves nothing.
    session->refill_network(filled ? std::move(*filled) : EgressPolicy());
  }
}

}  // namespace asr
