#include "provider/e2b/e2b.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <set>

#include "provider/e2b/metadata.hpp"
#include "provider/e2b/sandbox.hpp"

namespace asr {

namespace e2b {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr auto kCreateTime = 90s;
constexpr auto kListTime = 30s;
constexpr auto kSweepEvery = 300s;
constexpr auto kSweepSoon = 5s;
constexpr int kMostPages = 100;

std::string file_of(const std::filesystem::path& folder, const std::string& id) {
  return (folder / (id + ".json")).native();
}

// What holds is the other side's word.
Isolation isolation_of(const SandboxSpec& spec, const Resources& got) {
  Isolation isolation;
  auto add = [&](std::string name, Guarantee how, std::string note) {
    isolation.facts.push_back({std::move(name), how, "e2b", std::move(note)});
  };
  add("boundary", Guarantee::partial, "another server holds it; what it guarantees is its word");
  auto limit = [&](const char* name, std::uint64_t wanted, std::uint64_t given, const char* unit) {
    if (given == 0) {
      add(name, Guarantee::none, "the provider does not say what its template gives");
      return;
    }
    std::string words = std::to_string(given) + unit;
    if (wanted != 0 && given > wanted)
      add(name, Guarantee::none, "its template gives " + words + ", more than was asked for");
    else
      add(name, Guarantee::partial, "its template gives " + words + ", whatever was asked for");
  };
  limit("memory_limit", spec.limits.memory_bytes >> 20, got.memory_mb, " MiB");
  limit("cpu_limit", (spec.limits.milli_cpus + 999) / 1000, got.cpus, " processors");
  limit("disk_limit", spec.limits.disk_bytes >> 20, got.disk_mb, " MiB");
  add("pids_limit", Guarantee::none, "the protocol has none");
  add("network", Guarantee::partial,
      spec.network == Network::full ? "it reaches the internet" : "the provider was told: none");
  return isolation;
}

class E2bProvider final : public Provider {
 public:
  E2bProvider(asio::any_io_executor executor, E2bSettings settings, EgressDialer* dialer,
              const Log& log)
      : settings_(std::move(settings)),
        remote_(std::make_shared<Remote>(executor, settings_.remote, dialer, log)),
        abilities_(e2b_abilities()),
        home_(std::make_shared<RemoteSandbox::Home>()),
        state_(std::make_shared<State>(executor)) {
    home_->scratch = settings_.folder.native();
    home_->remove = [state = state_, remote = remote_](CorePtr core) {
      auto end = [](CorePtr of, std::shared_ptr<State> in) -> asio::awaitable<void> {
        auto destroying = destroy_remote(of);
        auto destroyed = co_await std::move(destroying);
        in->live.erase(of->place.id);
        if (!destroyed) in->sweep_soon();
      };
      asio::co_spawn(remote->executor(), end(std::move(core), state), asio::detached);
    };
  }
  ~E2bProvider() override { E2bProvider::stop(); }

  std::string_view name() const noexcept override { return "e2b"; }
  const Abilities& abilities() const noexcept override { return abilities_; }
  std::chrono::seconds longest_life() const noexcept override { return settings_.longest_life; }
  std::string trouble() const override { return remote_->trouble(); }
  std::vector<PoolState> pools() const override { return {}; }
  bool can_keep() const noexcept override { return true; }

  asio::awaitable<Result<std::shared_ptr<Sandbox>>> create(SandboxSpec spec,
                                                           SandboxWish wish) override;
  asio::awaitable<Result<std::vector<std::shared_ptr<Sandbox>>>> fork(
      std::shared_ptr<Sandbox> sandbox, std::vector<std::string> labels) override;
  asio::awaitable<std::vector<std::shared_ptr<Sandbox>>> adopt(
      std::vector<KnownSandbox> known) override;

  asio::awaitable<Result<void>> make_volume(std::string, VolumeOptions) override {
    co_return abilities_.check(Ability::volumes, name());
  }
  asio::awaitable<Result<void>> remove_storage(std::string) override { co_return Result<void>(); }

  void stop() override {
    home_->leaving = true;
    state_->stopped = true;
    state_->wake.ring();
    remote_->stop();
  }

 private:
  // What the provider and its coroutines share.
  struct State {
    explicit State(const asio::any_io_executor& executor) : wake(executor) {}
    std::set<std::string> live;          // ids of sandboxes that somebody has
    std::set<std::string> making;        // labels of those that are being made
    std::map<std::string, bool> unsure;  // ids an earlier server knew, while we cannot ask
    Bell wake;
    bool stopped = false;
    bool sweeping = false;
    Clock::time_point next_sweep = Clock::time_point::max();

    void sweep_soon() {
      next_sweep = std::min(next_sweep, Clock::now() + kSweepSoon);
      wake.ring();
    }
  };

  std::shared_ptr<RemoteSandbox> take_in(Place place, SandboxSpec spec, Isolation isolation,
                                         std::string label);
  static asio::awaitable<void> keep_alive(std::weak_ptr<Core> core, std::shared_ptr<State> state,
                                          std::shared_ptr<Remote> remote,
                                          std::chrono::seconds lease);
  static asio::awaitable<void> sweep_now_and_then(std::shared_ptr<State> state,
                                                  std::shared_ptr<Remote> remote,
                                                  std::string server);
  static asio::awaitable<Result<std::vector<Listed>>> list_ours(std::shared_ptr<Remote> remote,
                                                                std::string server);
  static asio::awaitable<void> remove_strangers(std::vector<Listed> all,
                                                std::shared_ptr<State> state,
                                                std::shared_ptr<Remote> remote);
  asio::awaitable<Result<void>> furnish(CorePtr core);
  void begin_sweeping();

  E2bSettings settings_;
  std::shared_ptr<Remote> remote_;
  Abilities abilities_;
  std::shared_ptr<RemoteSandbox::Home> home_;
  std::shared_ptr<State> state_;
};

std::shared_ptr<RemoteSandbox> E2bProvider::take_in(Place place, SandboxSpec spec,
                                                    Isolation isolation, std::string label) {
  state_->live.insert(place.id);
  auto core = std::make_shared<Core>(remote_, place, file_of(settings_.folder, place.id));
  core->told.push_back([state = state_, id = place.id] { state->live.erase(id); });
  asio::co_spawn(remote_->executor(), keep_alive(core, state_, remote_, settings_.lease),
                 asio::detached);
  return std::make_shared<RemoteSandbox>(std::move(core), home_, std::move(spec),
                                         std::move(isolation), std::move(label));
}

// Where sessions work, which other servers' templates do not have.
asio::awaitable<Result<void>> E2bProvider::furnish(CorePtr core) {
  auto running = run_helper(
      core,
      {"/bin/sh", "-c", "[ -d /workspace ] || { mkdir -p /workspace && chown user: /workspace; }"},
      "root");
  CO_TRY(co_await std::move(running));
  co_return Result<void>();
}

asio::awaitable<Result<std::shared_ptr<Sandbox>>> E2bProvider::create(SandboxSpec spec,
                                                                      SandboxWish wish) {
  begin_sweeping();
  json::object metadata{{kServerKey, settings_.server}, {kSessionKey, wish.label}};
  json::object body{{"templateID", wish.image.empty() ? settings_.default_template : wish.image},
                    {"timeout", settings_.lease.count()},
                    {"secure", true},
                    {"allow_internet_access", spec.network == Network::full},
                    {"metadata", std::move(metadata)}};
  // Until its id is known, nobody may take it for a stranger.
  auto state = state_;
  state->making.insert(wish.label);
  auto asking =
      remote_->control("POST", "/sandboxes", std::move(body), Repeat::if_unsent, kCreateTime);
  auto answer = co_await std::move(asking);
  state->making.erase(wish.label);
  if (!answer) {
    state->sweep_soon();  // It may have been made although nobody said so.
    co_return fail(answer.error());
  }
  if (answer->status == 404 || answer->status == 409)
    co_return fail(Errc::invalid,
                   "the provider refuses the request: " +
                       (answer->body.is_string() ? std::string(answer->body.get_string()) : ""),
                   "look at the name of the template");
  auto place = place_in(answer->body);
  if (!place) {
    state->sweep_soon();
    co_return fail(place.error());
  }
  std::string id = place->id;
  auto sandbox = take_in(std::move(*place), spec, {}, wish.label);
  auto detailing =
      remote_->control("GET", "/sandboxes/" + id, std::nullopt, Repeat::freely, kListTime);
  auto told = co_await std::move(detailing);
  Resources resources = settings_.resources;
  if (told && told->status == 200)
    if (auto detail = detail_in(told->body)) resources = detail->resources;
  auto furnishing = furnish(sandbox->core());
  auto furnished = co_await std::move(furnishing);
  if (!furnished) {
    // The sandbox goes when it is dropped; one whose name has suffered on the way does not.
    state->sweep_soon();
    co_return fail(furnished.error());
  }
  sandbox->set_isolation(isolation_of(spec, resources));
  co_return sandbox;
}

asio::awaitable<Result<std::vector<std::shared_ptr<Sandbox>>>> E2bProvider::fork(
    std::shared_ptr<Sandbox> sandbox, std::vector<std::string> labels) {
  auto origin = std::dynamic_pointer_cast<RemoteSandbox>(sandbox);
  if (!origin) co_return fail(Errc::internal, "a sandbox of another provider");
  CO_TRY(origin->core()->check_ready());
  auto state = state_;
  std::string label = origin->label();  // They are marked as it is.
  state->making.insert(label);
  json::object body{{"timeout", settings_.lease.count()}, {"count", labels.size()}};
  auto asking = remote_->control("POST", "/sandboxes/" + origin->id().text + "/fork",
                                 std::move(body), Repeat::if_unsent, kCreateTime);
  auto answer = co_await std::move(asking);
  state->making.erase(label);
  state->sweep_soon();
  if (!answer) co_return fail(answer.error());
  if (answer->status == 404) co_return fail(Errc::gone, "the sandbox has ended");
  if (answer->status == 409) co_return fail(Errc::conflict, "the provider cannot fork it now");
  if (!answer->body.is_array() || answer->body.get_array().size() != labels.size())
    co_return fail(Errc::provider, "the provider made another number of forks");
  std::vector<std::shared_ptr<Sandbox>> all;
  for (const json::value& entry : answer->body.get_array()) {
    const json::value* made =
        entry.is_object() ? entry.get_object().if_contains("sandbox") : nullptr;
    if (!made) co_return fail(Errc::provider, "the provider could not make every fork");
    Place place = CO_TRY(place_in(*made));
    all.push_back(
        take_in(std::move(place), origin->spec(), origin->isolation(), labels[all.size()]));
  }
  co_return all;
}

asio::awaitable<Result<std::vector<Listed>>> E2bProvider::list_ours(std::shared_ptr<Remote> remote,
                                                                    std::string server) {
  std::vector<Listed> all;
  std::string next;
  std::string base = "/v2/sandboxes?state=running%2Cpaused&limit=100&metadata=" +
                     percent_encode(std::string(kServerKey) + "=" + server);
  for (int page = 0; page < kMostPages; ++page) {
    std::string path = base + (next.empty() ? "" : "&nextToken=" + percent_encode(next));
    auto asking = remote->control("GET", path, std::nullopt, Repeat::freely, kListTime);
    auto answer = CO_TRY(co_await std::move(asking));
    if (answer.status != 200)
      co_return fail(Errc::provider, "the provider does not list sandboxes");
    // Filters are the other side's affair: nothing but what is marked as ours is touched.
    for (Listed& listed : CO_TRY(list_in(answer.body)))
      if (listed.server == server) all.push_back(std::move(listed));
    next = answer.next_page;
    if (next.empty()) break;
  }
  co_return all;
}

asio::awaitable<void> E2bProvider::remove_strangers(std::vector<Listed> all,
                                                    std::shared_ptr<State> state,
                                                    std::shared_ptr<Remote> remote) {
  for (const Listed& listed : all) {
    if (state->stopped) co_return;
    if (state->live.contains(listed.id) || state->making.contains(listed.session)) continue;
    remote->log().info("a sandbox that nobody knows is removed at the provider e2b",
                       {{"sandbox", listed.id}});
    auto asking = remote->control("DELETE", "/sandboxes/" + listed.id, std::nullopt, Repeat::freely,
                                  kListTime);
    auto removed = co_await std::move(asking);
    if (!removed) state->sweep_soon();
  }
}

asio::awaitable<std::vector<std::shared_ptr<Sandbox>>> E2bProvider::adopt(
    std::vector<KnownSandbox> known) {
  begin_sweeping();
  std::vector<std::shared_ptr<Sandbox>> all;
  auto listing = list_ours(remote_, settings_.server);
  auto listed = co_await std::move(listing);
  std::map<std::string, bool> there;
  if (listed)
    for (const Listed& each : *listed) there[each.id] = each.paused;
  else
    remote_->log().warning("the provider e2b cannot be asked what lives",
                           {{"why", listed.error().what}});
  for (KnownSandbox& one : known) {
    if (!is_sandbox_id(one.id) || (listed && !there.contains(one.id))) continue;
    bool paused = listed ? there[one.id] : one.paused;
    auto sandbox = take_in(Place{one.id, "", ""}, one.spec, isolation_of(one.spec, {}), one.label);
    CorePtr core = sandbox->core();
    core->kept.load();
    if (paused) {
      core->set_state(SandboxState::paused);
    } else {
      // Where it is and with which token, and that we are here again.
      auto connecting = connect_remote(core, settings_.lease);
      auto connected = co_await std::move(connecting);
      if (connected) {
        auto asking = ask(core, "process.Process/List", json::object(), "");
        auto answer = co_await std::move(asking);
        auto processes = answer ? processes_in(*answer) : fail(answer.error());
        if (processes) sandbox->set_adopted(std::move(*processes));
      }
    }
    if (core->state != SandboxState::gone) all.push_back(std::move(sandbox));
  }
  if (listed) {
    asio::co_spawn(remote_->executor(), remove_strangers(std::move(*listed), state_, remote_),
                   asio::detached);
  } else {
    state_->sweep_soon();
  }
  co_return all;
}

asio::awaitable<void> E2bProvider::keep_alive(std::weak_ptr<Core> weak,
                                              std::shared_ptr<State> state,
                                              std::shared_ptr<Remote> remote,
                                              std::chrono::seconds lease) {
  asio::steady_timer timer(remote->executor());
  auto every = std::chrono::duration_cast<Clock::duration>(lease) / 3;
  auto next = every;
  for (;;) {
    timer.expires_after(next);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    auto core = weak.lock();
    if (!core || core->state == SandboxState::gone || state->stopped) co_return;
    next = every;
    if (core->state == SandboxState::paused) continue;
    Result<void> renewed;
    if (core->place.token.empty()) {  // It was taken up while nobody could be asked.
      auto connecting = connect_remote(core, lease);
      renewed = co_await std::move(connecting);
    } else {
      auto asking = remote->control("POST", "/sandboxes/" + core->place.id + "/timeout",
                                    json::object{{"timeout", lease.count()}}, Repeat::freely, 30s);
      auto answer = co_await std::move(asking);
      if (!answer) renewed = fail(answer.error());
      if (answer && answer->status == 404) core->set_state(SandboxState::gone);
    }
    if (!renewed) next = every / 4;
  }
}

void E2bProvider::begin_sweeping() {
  if (std::exchange(state_->sweeping, true)) return;
  asio::co_spawn(remote_->executor(), sweep_now_and_then(state_, remote_, settings_.server),
                 asio::detached);
}

asio::awaitable<void> E2bProvider::sweep_now_and_then(std::shared_ptr<State> state,
                                                      std::shared_ptr<Remote> remote,
                                                      std::string server) {
  state->next_sweep = Clock::now() + kSweepEvery;
  while (!state->stopped) {
    if (Clock::now() < state->next_sweep) {
      co_await state->wake.wait(state->next_sweep);
      continue;
    }
    state->next_sweep = Clock::now() + kSweepEvery;
    auto listing = list_ours(remote, server);
    auto listed = co_await std::move(listing);
    if (!listed) {
      state->sweep_soon();
      continue;
    }
    auto removing = remove_strangers(std::move(*listed), state, remote);
    co_await std::move(removing);
  }
}

}  // namespace

}  // namespace e2b

Abilities e2b_abilities() {
  Abilities all;
  all.lacks(Ability::limits, "the template decides; what it gives is told in the isolation")
      .lacks(Ability::file_rights, "the provider's daemon opens them as root")
      .lacks(Ability::live_files, "files are copied here before they are told")
      .lacks(Ability::byte_names, "the protocol's texts are UTF-8")
      .lacks(Ability::archive_checks, "archives are unpacked by the template's own tar")
      .lacks(Ability::cpu_usage, "the protocol does not tell it")
      .lacks(Ability::effects, "the protocol does not tell them")
      .lacks(Ability::changes, "the protocol does not tell what a sandbox began with")
      .lacks(Ability::checkpoints, "files of a remote sandbox cannot be saved here")
      .lacks(Ability::disks, "disks of persistent sessions lie in this server's storage")
      .lacks(Ability::volumes, "volumes lie in this server's storage")
      .lacks(Ability::environments, "the provider has templates: \"template:NAME\"")
      .lacks(Ability::browser, "the protocol has no tiers")
      .lacks(Ability::allow_list, "this server's proxy cannot be reached from there");
  return all;
}

Result<std::unique_ptr<Provider>> e2b_provider(asio::any_io_executor executor, E2bSettings settings,
                                               EgressDialer* dialer, const Log& log) {
  TRY(e2b::check(settings.remote));
  if (settings.lease < std::chrono::seconds(15))
    return fail(Errc::invalid, "e2b.timeout_seconds: at least 15 are needed to renew it in time");
  std::error_code ec;
  std::filesystem::create_directories(settings.folder, ec);
  if (ec) return fail(Errc::os, "cannot make " + settings.folder.native() + ": " + ec.message());
  std::filesystem::permissions(settings.folder, std::filesystem::perms::owner_all, ec);
  return std::make_unique<e2b::E2bProvider>(std::move(executor), std::move(settings), dialer, log);
}

}  // namespace asr
