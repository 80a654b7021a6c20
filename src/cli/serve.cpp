// agent-sandbox serve: the server, and agent-sandbox config: how it is set up.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "api/api.hpp"
#include "api/settings.hpp"
#include "base/id.hpp"
#include "base/version.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "cli/user_files.hpp"
#include "engine/engine.hpp"
#include "net/certificate.hpp"
#include "net/http_server.hpp"
#include "os/own_memory.hpp"
#include "provider/e2b/e2b.hpp"
#include "session/batches.hpp"
#include "session/templates.hpp"
#include "session/webhooks.hpp"
#include "store/meta_records.hpp"
#include "store/secret_box.hpp"

namespace asr {

namespace {

struct ServeOptions {
  std::string config;
  SettingTexts flags;  // as they were given, by the names of settings
};

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fail(Errc::not_found, "cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Result<Settings> gather(const ServeOptions& options) {
  std::vector<SettingTexts> sources;
  const char* named = std::getenv("AGENT_SANDBOX_CONFIG");
  std::string yaml = !options.config.empty() ? options.config : named ? named : "";
  if (!yaml.empty()) {
    std::string text = TRY(read_text(yaml));
    sources.push_back(TRY(settings_from_yaml(text, yaml)));
  }
  if (auto text = read_text(".env")) sources.push_back(TRY(settings_from_env_file(*text, ".env")));
  sources.push_back(TRY(settings_from_environment(environ)));
  sources.push_back(options.flags);
  Settings settings = TRY(put_together(sources));
  if (settings.storage.empty()) settings.storage = default_storage().native();
  return settings;
}

// A server and everything it stands on, in the order they are made; unmade in reverse.
class Server {
 public:
  Server(Settings settings, const Log& log) : settings_(std::move(settings)), log_(log) {}

  int run();

 private:
  Result<void> start();
  Result<void> start_engine();
  Result<void> add_e2b(std::string own_name);
  void withdraw();
  Result<void> make_first_key();
  Result<NodeName> node_name();
  Result<void> listen();
  std::string own_url() const;
  E2bOptions e2b_options() const;
  asio::awaitable<void> begin();
  asio::awaitable<void> fill_pool();
  asio::awaitable<void> warm_interpreters();
  asio::awaitable<void> stop();

  Settings settings_;
  const Log& log_;
  asio::io_context context_{1};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<KeyRing> keys_;
  std::unique_ptr<EgressDialer> dialer_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<Webhooks> webhooks_;
  std::unique_ptr<Batches> batches_;
  std::unique_ptr<Templates> templates_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<HttpServer> http_;
  std::optional<Error> failure_;
  std::string told_key_;
};

Result<NodeName> Server::node_name() {
  auto work = [](Database& database) -> Result<NodeName> {
    NodeName node;
    auto code = TRY(find_meta(database, "node"));
    if (!code) {
      code = random_name(kNodeCode);
      TRY(set_meta(database, "node", *code));
    }
    node.code = *code;
    return node;
  };
  return store_->run(work, Durability::machine);
}

Result<void> Server::make_first_key() {
  keys_ = std::make_unique<KeyRing>(*store_);
  TRY(keys_->load());
  if (settings_.no_auth) return {};
  NewKey wanted;
  wanted.name = "first admin";
  wanted.role = Role::admin;
  if (!settings_.admin_key.empty()) {
    if (keys_->find(settings_.admin_key)) return {};
    wanted.key = settings_.admin_key;
    TRY(keys_->make_blocking(std::move(wanted)));
    return {};
  }
  if (keys_->has_admin()) return {};
  told_key_ = TRY(keys_->make_blocking(std::move(wanted))).key;
  return {};
}

std::string Server::own_url() const {
  bool tls = settings_.tls_self_signed || !settings_.tls_certificate.empty();
  auto address = parse_listen(settings_.listen);
  std::string host = address->host == "0.0.0.0" ? "127.0.0.1" : address->host;
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  std::uint16_t port = http_ ? http_->port() : address->port;
  return (tls ? "https://" : "http://") + host + ":" + std::to_string(port);
}

E2bOptions Server::e2b_options() const {
  E2bOptions options;
  options.enabled = settings_.e2b_served;
  options.internet = settings_.e2b_internet;
  options.milli_cpus = settings_.e2b_cpus * 1000;
  options.memory_bytes = settings_.e2b_memory;
  options.disk_bytes = settings_.e2b_disk;
  options.most_time = settings_.e2b_most_time;
  return options;
}

Result<void> Server::listen() {
  HttpServerOptions options;
  options.listen = TRY(parse_listen(settings_.listen));
  if (settings_.no_auth && !is_loopback(options.listen))
    return fail(Errc::denied, "no_auth would let everybody in at " + settings_.listen,
                "listen on 127.0.0.1, or use keys");
  if (settings_.tls_self_signed)
    options.tls = TRY(own_certificate(std::filesystem::path(settings_.storage) / "tls"));
  if (!settings_.tls_certificate.empty())
    options.tls = TlsFiles{settings_.tls_certificate, settings_.tls_key};

  ApiOptions api;
  api.no_auth = settings_.no_auth;
  api.per_key = {settings_.rate_per_key, 2 * settings_.rate_per_key};
  api.per_peer = {settings_.rate_per_address, 2 * settings_.rate_per_address};
  JwtOptions jwt{settings_.jwt_secret, "", settings_.jwt_issuer, settings_.jwt_audience,
                 settings_.jwt_role_claim};
  if (!settings_.jwt_public_key.empty()) jwt.public_key = TRY(read_text(settings_.jwt_public_key));
  api.jwt = TRY(JwtVerifier::make(std::move(jwt)));
  api.hosts = settings_.hosts;
  api.origins = settings_.origins;
  api.preview_domain = settings_.preview_domain;
  for (const std::string& folder : settings_.apply_folders)
    if (!folder.starts_with('/'))
      return fail(Errc::invalid, "apply.folders: " + folder + " is not absolute");
  api.apply = {settings_.apply_folders, settings_.apply_users};
  api.e2b = e2b_options();
  api.only_loopback = is_loopback(options.listen) || !settings_.hosts.empty();
  ApiParts parts{*sessions_, *store_, *keys_, log_, context_.get_executor(), webhooks_.get()};
  parts.batches = batches_.get();
  parts.templates = templates_.get();
  api_ = std::make_unique<Api>(parts, std::move(api));
  http_ = TRY(HttpServer::listen(
      context_.get_executor(), std::move(options),
      [this](Exchange* exchange) { return api_->handle(exchange); },
      [this](unsigned status, std::string what) { return api_->refuse(status, std::move(what)); }));
  sessions_->set_url_base(own_url());
  return {};
}

// One name for each storage folder: the next server on it is the next life of this one.
std::string instance_of(const std::string& storage) {
  std::error_code ec;
  std::filesystem::path path = std::filesystem::weakly_canonical(storage, ec);
  return "serve_" + to_hex(sha256(ec ? storage : path.native())).substr(0, 16);
}

// Before anything makes a thread.
Result<void> Server::start_engine() {
  EngineOptions engine;
  engine.runtime_dir = settings_.runtime_dir;
  engine.instance = instance_of(settings_.storage);
  engine.keep_for = settings_.keep_for;
  engine.storage_dir = settings_.storage;
  if (settings_.full_network) {
    engine.full_network.emplace();
    engine.full_network->range = settings_.full_network_range;
    engine.full_network->allow = settings_.full_network_allow;
    if (!settings_.resolvers.empty()) engine.full_network->resolvers = settings_.resolvers;
  }
  engine.log = [this](std::string_view line) { log_.info(line); };
  auto started = Engine::start(context_.get_executor(), std::move(engine));
  if (!started && started.error().code == Errc::conflict)
    return fail(Errc::conflict, "another server uses the storage " + settings_.storage,
                "stop it, or choose another folder with --storage");
  engine_ = TRY(std::move(started));
  return {};
}

// A start that failed is no reason to end what an earlier server left running.
void Server::withdraw() {
  if (!engine_) return;
  auto leave = [](Engine* engine) -> asio::awaitable<void> { (void)co_await engine->leave(); };
  asio::co_spawn(context_, leave(engine_.get()), asio::detached);
  context_.restart();
  context_.run();
}

Result<void> Server::add_e2b(std::string own_name) {
  if (!settings_.e2b_enabled) return {};
  E2bSettings e2b;
  e2b.remote = {settings_.e2b_api_key, settings_.e2b_domain, settings_.e2b_api_url,
                settings_.e2b_sandbox_url};
  e2b.default_template = settings_.e2b_default_template;
  e2b.lease = std::chrono::seconds(settings_.e2b_timeout_seconds);
  e2b.longest_life = settings_.e2b_longest_life;
  e2b.resources = {settings_.e2b_cpu, settings_.e2b_memory_mb, 0};
  e2b.server = std::move(own_name);
  e2b.folder = std::filesystem::path(settings_.storage) / "e2b";
  sessions_->add_provider(
      TRY(e2b_provider(context_.get_executor(), std::move(e2b), dialer_.get(), log_)));
  return {};
}

Result<void> Server::start() {
  TRY(parse_listen(settings_.listen));
  TRY(start_engine());
  store_ = TRY(Store::open(settings_.storage));
  for (const std::string& notice : store_->notices()) log_.warning(notice);
  TRY(make_first_key());
  SessionSettings sessions;
  sessions.ttl = settings_.ttl;
  sessions.idle = settings_.idle;
  sessions.most_ttl = settings_.most_ttl;
  sessions.keep_paused = settings_.keep_paused;
  sessions.most_sessions = settings_.most_sessions;
  sessions.most_sessions_per_key = settings_.most_sessions_per_key;
  sessions.storage = settings_.storage;
  sessions.usage_every = settings_.usage_every;
  sessions.history_bytes = settings_.history ? settings_.history_bytes : 0;
  sessions.most_saved_per_key = settings_.most_saved_per_key;
  sessions.most_saved = settings_.most_saved_bytes;
  sessions.interpreters = {settings_.cold_interpreters, settings_.interpreter_imports,
                           settings_.pool_size};
  sessions.volumes = {settings_.most_volume_bytes, settings_.most_volumes_per_key};
  DialerSettings dialer;
  dialer.trust = settings_.network_trust;
  dialer.threads = 4;
  dialer_ = TRY(EgressDialer::make(std::move(dialer)));
  sessions.dialer = dialer_.get();
  NodeName node = TRY(node_name());
  std::string own_name = node.code;
  sessions_ = std::make_unique<Sessions>(context_.get_executor(), *store_, log_, std::move(node),
                                         std::move(sessions));
  sessions_->add_provider(native_provider(*engine_, {settings_.full_network}));
  TRY(add_e2b(std::move(own_name)));
  WebhookSettings webhooks;
  webhooks.reach = settings_.webhooks_private ? Reach::anywhere : Reach::public_only;
  webhooks_ = std::make_unique<Webhooks>(context_.get_executor(), *store_, sessions_->events(),
                                         log_, webhooks);
  BatchSettings batches;
  batches.at_once = settings_.batch_at_once;
  batches.most_items = settings_.batch_most_items;
  batches.most_queued = settings_.batch_most_queued;
  batches.most_bytes = settings_.batch_most_memory;
  batches.keep = settings_.batch_keep;
  batches_ = std::make_unique<Batches>(
      context_.get_executor(), *sessions_->providers().at("native"), sessions_->interpreters(),
      *store_, sessions_->events(), log_, batches);
  templates_ =
      std::make_unique<Templates>(context_.get_executor(), *store_, *sessions_, log_,
                                  std::filesystem::path(settings_.storage) / "template_files");
  return listen();
}

asio::awaitable<void> Server::begin() {
  auto recovering = sessions_->recover();
  auto recovered = co_await std::move(recovering);
  if (recovered) {
    auto beginning = webhooks_->begin();
    recovered = co_await std::move(beginning);
  }
  if (recovered) {
    auto settling = templates_->begin();
    recovered = co_await std::move(settling);
  }
  if (!recovered) {
    failure_ = recovered.error();
    context_.stop();
    co_return;
  }
  auto filling = fill_pool();
  co_await std::move(filling);
  api_->set_ready(true);
  log_.info("ready", {{"url", own_url()}, {"storage", settings_.storage}});
  auto warming = warm_interpreters();
  co_await std::move(warming);
  if (auto gone = let_go_of_code(); !gone)
    log_.warning("the code of the start stays in memory", {{"why", gone.error().what}});
}

asio::awaitable<void> Server::fill_pool() {
  if (settings_.pool_size == 0) co_return;
  PoolOptions pool;
  pool.size = settings_.pool_size;
  pool.prepare = [this](std::shared_ptr<Sandbox> sandbox) {
    return sessions_->interpreters()->make_ready(std::move(sandbox));
  };
  std::vector<SandboxSpec> kinds{spec_of(Preset::standard)};
  if (settings_.e2b_served) kinds.push_back(e2b_spec(e2b_options()));
  for (SandboxSpec& kind : kinds) {
    auto warming = engine_->warm(std::move(kind), pool);
    if (auto warmed = co_await std::move(warming); !warmed)
      log_.warning("the pool could not be filled", {{"why", warmed.error().what}});
  }
}

// Nobody waits for it: until it is done, interpreters are started from their files.
asio::awaitable<void> Server::warm_interpreters() {
  if (settings_.cold_interpreters) co_return;
  auto preparing = sessions_->interpreters()->prepare(Environment());
  co_await std::move(preparing);
  auto filling = fill_pool();  // Anew: those that wait now have no interpreter.
  co_await std::move(filling);
}

asio::awaitable<void> Server::stop() {
  api_->set_ready(false);
  log_.info("stopping");
  auto draining = http_->drain(settings_.stop_patience);
  co_await std::move(draining);
  auto calling_off = batches_->stop();
  co_await std::move(calling_off);
  auto ending =
      settings_.keep_on_stop ? sessions_->leave_all() : sessions_->end_all("the server stopped");
  co_await std::move(ending);
  for (const auto& [name, provider] : sessions_->providers()) provider->stop();
  auto stopping = settings_.keep_on_stop ? engine_->leave() : engine_->stop();
  if (auto stopped = co_await std::move(stopping); !stopped) failure_ = stopped.error();
  http_.reset();
  context_.stop();
}

int Server::run() {
  if (auto started = start(); !started) {
    withdraw();
    return complain(started.error());
  }
  // Before anybody can know that there is something to stop.
  asio::signal_set signals(context_, SIGINT, SIGTERM);
  signals.async_wait([this](boost::system::error_code ec, int) {
    if (!ec) asio::co_spawn(context_, stop(), asio::detached);
  });
  std::printf("Agent Sandbox Runtime %s listens on %s\n", std::string(kVersion).c_str(),
              own_url().c_str());
  if (!told_key_.empty()) {
    std::printf("Admin key, shown this once: %s\n", told_key_.c_str());
    if (auto kept = keep_login({own_url(), told_key_}))
      std::printf("The command line of this user finds it in %s\n", kept->c_str());
  }
  std::fflush(stdout);
  asio::co_spawn(context_, begin(), asio::detached);
  context_.run();
  if (failure_) return complain(*failure_);
  return 0;
}

int serve(const ServeOptions& options) {
  auto settings = gather(options);
  if (!settings) return complain(settings.error());
  ::signal(SIGPIPE, SIG_IGN);
  Log log(STDERR_FILENO, settings->log_format, settings->log_level);
  Server server(std::move(*settings), log);
  return server.run();
}

void declare(CLI::App& command, const std::shared_ptr<ServeOptions>& options) {
  command.add_option("--config", options->config, "YAML file with settings (AGENT_SANDBOX_CONFIG)")
      ->type_name("FILE");
  for (const Setting& setting : all_settings()) {
    if (setting.secret) continue;  // Arguments are visible to everybody on the machine.
    std::string name(setting.name);
    std::string help = std::string(setting.help) + " (" + setting.environment() + ")";
    if (setting.standard == "false") {
      command.add_flag_callback(
          setting.flag(), [options, name] { options->flags[name] = "true"; }, help);
    } else {
      command.add_option_function<std::string>(
          setting.flag(),
          [options, name](const std::string& value) { options->flags[name] = value; }, help);
    }
  }
}

}  // namespace

void add_serve_command(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", "Serve sessions over HTTP");
  declare(*command, options);
  command->callback([options, &call] { call.status = serve(*options); });
}

void add_config_command(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command =
      app.add_subcommand("config", "Print the settings a server would start with, without secrets");
  declare(*command, options);
  command->callback([options, &call] {
    auto settings = gather(*options);
    if (!settings) {
      call.status = complain(settings.error());
      return;
    }
    std::fputs(print_settings(*settings).c_str(), stdout);
  });
}

}  // namespace asr
