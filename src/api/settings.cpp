#include "api/settings.hpp"

#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cstdlib>

#include "base/units.hpp"

namespace asr {

namespace {

constexpr std::string_view kPrefix = "AGENT_SANDBOX_";
constexpr std::size_t kMostYaml = 1 << 20;

std::string with(std::string_view text, char replacement) {
  std::string out(text);
  for (char& c : out)
    if (c == '.' || c == '_') c = replacement;
  return out;
}

std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
  return text;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> out;
  std::string part;
  for (char c : text + ",") {
    if (c != ',') {
      if (c != ' ') part += c;
    } else if (!part.empty()) {
      out.push_back(std::move(part));
      part.clear();
    }
  }
  return out;
}

std::string join(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& each : list) out += (out.empty() ? "" : ",") + each;
  return out;
}

Setting text(std::string_view name, std::string_view help, std::string_view standard,
             std::string Settings::*member, bool secret = false) {
  return {name,
          help,
          standard,
          secret,
          [member](Settings& settings, const std::string& value) -> Result<void> {
            settings.*member = value;
            return {};
          },
          [member](const Settings& settings) { return settings.*member; }};
}

Setting list(std::string_view name, std::string_view help,
             std::vector<std::string> Settings::*member) {
  return {name,
          help,
          "",
          false,
          [member](Settings& settings, const std::string& value) -> Result<void> {
            settings.*member = split_list(value);
            return {};
          },
          [member](const Settings& settings) { return join(settings.*member); }};
}

Setting flag(std::string_view name, std::string_view help, bool Settings::*member,
             std::string_view standard = "false") {
  return {name,
          help,
          standard,
          false,
          [member](Settings& settings, const std::string& value) -> Result<void> {
            if (value != "true" && value != "false" && value != "1" && value != "0")
              return fail(Errc::invalid, "must be true or false");
            settings.*member = value == "true" || value == "1";
            return {};
          },
          [member](const Settings& settings) {
            return std::string(settings.*member ? "true" : "false");
          }};
}

Setting duration(std::string_view name, std::string_view help, std::string_view standard,
                 std::chrono::seconds Settings::*member) {
  return {name,
          help,
          standard,
          false,
          [member](Settings& settings, const std::string& value) -> Result<void> {
            auto time = TRY(parse_duration(value));
            settings.*member = std::chrono::ceil<std::chrono::seconds>(time);
            return {};
          },
          [member](const Settings& settings) {
            return std::to_string((settings.*member).count()) + "s";
          }};
}

template <class Number>
Setting number(std::string_view name, std::string_view help, std::string_view standard,
               Number Settings::*member) {
  return {name,
          help,
          standard,
          false,
          [member](Settings& settings, const std::string& value) -> Result<void> {
            Number parsed{};
            auto [end, ec] = std::from_chars(value.data(), value.data() + value.size(), parsed);
            if (ec != std::errc() || end != value.data() + value.size() || parsed < Number{})
              return fail(Errc::invalid, "must be a number");
            settings.*member = parsed;
            return {};
          },
          [member](const Settings& settings) {
            if constexpr (std::is_floating_point_v<Number>)
              return std::to_string(static_cast<std::int64_t>(settings.*member));
            else
              return std::to_string(settings.*member);
          }};
}

Setting bytes(std::string_view name, std::string_view help, std::string_view standard,
              std::uint64_t Settings::*member) {
  return {name,
          help,
          standard,
          false,
          [member](Settings& settings, const std::string& value) -> Result<void> {
            settings.*member = TRY(parse_bytes(value));
            return {};
          },
          [member](const Settings& settings) { return std::to_string(settings.*member); }};
}

Setting on_stop() {
  return {
      "sessions.on_stop",
      "end: all end with the server, persistent ones are stopped; keep: the next one goes on "
      "with them",
      "end",
      false,
      [](Settings& settings, const std::string& value) -> Result<void> {
        if (value != "end" && value != "keep") return fail(Errc::invalid, "must be end or keep");
        settings.keep_on_stop = value == "keep";
        return {};
      },
      [](const Settings& settings) { return std::string(settings.keep_on_stop ? "keep" : "end"); }};
}

Setting log_level() {
  return {"log.level",
          "debug, info, warning, error or off",
          "info",
          false,
          [](Settings& settings, const std::string& value) -> Result<void> {
            auto level = parse_log_level(value);
            if (!level) return fail(Errc::invalid, "must be debug, info, warning, error or off");
            settings.log_level = *level;
            return {};
          },
          [](const Settings& settings) { return std::string(to_string(settings.log_level)); }};
}

Setting log_format() {
  return {"log.format",
          "text for people, json for programs",
          "text",
          false,
          [](Settings& settings, const std::string& value) -> Result<void> {
            if (value != "text" && value != "json")
              return fail(Errc::invalid, "must be text or json");
            settings.log_format = value == "json" ? LogFormat::json : LogFormat::text;
            return {};
          },
          [](const Settings& settings) {
            return std::string(settings.log_format == LogFormat::json ? "json" : "text");
          }};
}

const Setting* find_setting(std::string_view name) {
  for (const Setting& setting : all_settings())
    if (setting.name == name) return &setting;
  return nullptr;
}

// "${NAME}" becomes what the environment says; a name it does not have is an error.
Result<std::string> fill_in(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t open = text.find("${", at);
    out += text.substr(at, open - at);
    if (open == std::string::npos) break;
    std::size_t close = text.find('}', open);
    if (close == std::string::npos) return fail(Errc::invalid, "\"${\" without \"}\"");
    std::string name = text.substr(open + 2, close - open - 2);
    const char* value = std::getenv(name.c_str());
    if (!value) return fail(Errc::invalid, "the environment has no " + name);
    out += value;
    at = close + 1;
  }
  return out;
}

Result<void> flatten(const YAML::Node& node, const std::string& name, const std::string& file,
                     int depth, SettingTexts& out) {
  auto where = [&] { return file + ":" + std::to_string(node.Mark().line + 1) + ": "; };
  if (depth > 8) return fail(Errc::invalid, where() + "too many levels");
  if (node.IsMap()) {
    for (const auto& entry : node) {
      std::string key = entry.first.as<std::string>();
      TRY(flatten(entry.second, name.empty() ? key : name + "." + key, file, depth + 1, out));
    }
    return {};
  }
  if (!find_setting(name))
    return fail(Errc::invalid, where() + "there is no setting \"" + name + "\"",
                "agent-sandbox config --help lists them");
  std::string value;
  if (node.IsSequence()) {
    for (const auto& each : node) value += (value.empty() ? "" : ",") + each.as<std::string>();
  } else if (node.IsScalar()) {
    value = node.as<std::string>();
  }
  auto filled = fill_in(value);
  if (!filled) return fail(Errc::invalid, where() + filled.error().what);
  out[name] = std::move(*filled);
  return {};
}

Result<std::string> name_of_variable(std::string_view variable) {
  for (const Setting& setting : all_settings())
    if (setting.environment() == variable) return std::string(setting.name);
  return fail(Errc::invalid, "there is no setting " + std::string(variable),
              "agent-sandbox config --help lists them");
}

}  // namespace

std::string Setting::flag() const { return "--" + with(name, '-'); }
std::string Setting::environment() const { return std::string(kPrefix) + upper(with(name, '_')); }

const std::vector<Setting>& all_settings() {
  static const std::vector<Setting> all{
      text("listen", "Address and port to listen on", "127.0.0.1:8000", &Settings::listen),
      text("storage", "Folder for everything that must survive", "", &Settings::storage),
      text("runtime_dir", "Folder for what lives as long as the machine runs", "",
           &Settings::runtime_dir),
      flag("no_auth", "Everybody who reaches the port is admin; only on loopback",
           &Settings::no_auth),
      text("admin_key", "The first admin key; made and printed once where it is missing", "",
           &Settings::admin_key, true),
      text("jwt.secret", "Accept tokens signed with this (HS256)", "", &Settings::jwt_secret, true),
      text("jwt.public_key", "Accept tokens signed by the key of this PEM file (RS256, ES256)", "",
           &Settings::jwt_public_key),
      text("jwt.issuer", "Only tokens of this issuer", "", &Settings::jwt_issuer),
      text("jwt.audience", "Only tokens for this audience", "", &Settings::jwt_audience),
      text("jwt.role_claim", "Which claim tells the role", "role", &Settings::jwt_role_claim),
      list("hosts", "Names by which the server may be called, separated by commas",
           &Settings::hosts),
      list("origins", "Web pages that may call from a browser, separated by commas",
           &Settings::origins),
      text("preview.domain", "Previews are at <port>-<session>.<this>", "localhost",
           &Settings::preview_domain),
      text("tls.certificate", "PEM file with the certificate chain", "",
           &Settings::tls_certificate),
      text("tls.key", "PEM file with its key", "", &Settings::tls_key),
      flag("tls.self_signed", "Make a certificate at the first start", &Settings::tls_self_signed),
      log_level(),
      log_format(),
      duration("sessions.ttl", "How long a session lives; 0: for ever", "3600s", &Settings::ttl),
      duration("sessions.idle", "How long it may be unused; 0: for ever", "0s", &Settings::idle),
      duration("sessions.max_ttl", "No session may ask for more; 0: it may", "0s",
               &Settings::most_ttl),
      duration("sessions.keep_paused", "How long a paused session waits to go on; 0: for ever",
               "2592000s", &Settings::keep_paused),
      number("sessions.max", "Sessions alive at once", "10000", &Settings::most_sessions),
      number("sessions.max_per_key", "Of one key, where the key does not say", "1000",
             &Settings::most_sessions_per_key),
      on_stop(),
      duration("sessions.keep_for", "How long sessions wait for a server that was killed", "600s",
               &Settings::keep_for),
      duration("usage.every", "How often the use of sessions is written down; 0: never", "60s",
               &Settings::usage_every),
      flag("history.enabled", "What is done in sessions is kept: code, commands, outputs",
           &Settings::history, "true"),
      bytes("history.max_bytes", "Of one session; the oldest steps make room", "16M",
            &Settings::history_bytes),
      bytes("saved.max_per_key", "Checkpoints, snapshots and what branches began with, of one key",
            "8G", &Settings::most_saved_per_key),
      bytes("saved.max_bytes", "The same of all keys together", "32G", &Settings::most_saved_bytes),
      list("apply.folders", "Folders that changes of sessions may be written to, absolute",
           &Settings::apply_folders),
      flag("apply.users", "Not only operators may write to them", &Settings::apply_users),
      bytes("volumes.max_size", "The largest volume somebody may make", "64G",
            &Settings::most_volume_bytes),
      number("volumes.max_per_key", "Volumes of one key", "100", &Settings::most_volumes_per_key),
      flag("network.full", "Sessions may have a network device; needs root",
           &Settings::full_network),
      text("network.full_range", "Where their addresses come from", "10.233.0.0/16",
           &Settings::full_network_range),
      list("network.full_allow", "Private networks they may reach, separated by commas",
           &Settings::full_network_allow),
      list("network.resolvers", "Name servers of theirs; this machine's where it is empty",
           &Settings::resolvers),
      text("network.trust", "PEM file of authorities that the proxy trusts, beside the machine's",
           "", &Settings::network_trust),
      number("pool.size", "Warm sandboxes kept ready", "4", &Settings::pool_size),
      flag("interpreters.cold", "Start every interpreter from its file, none from an image",
           &Settings::cold_interpreters),
      list("interpreters.imports", "Python modules that interpreters have imported from the start",
           &Settings::interpreter_imports),
      number("batch.at_once", "Programs judged at the same time; 0: two for each processor", "0",
             &Settings::batch_at_once),
      number("batch.most_items", "Programs of one batch", "10000", &Settings::batch_most_items),
      number("batch.most_queued", "Programs that may wait in all; half of it of one key", "50000",
             &Settings::batch_most_queued),
      bytes("batch.most_memory", "Of programs that wait, and as much of verdicts that are kept",
            "256M", &Settings::batch_most_memory),
      duration("batch.keep", "How long verdicts are kept after the end of their batch", "600s",
               &Settings::batch_keep),
      number("rate.per_key", "Requests a second; 0: any number", "2000", &Settings::rate_per_key),
      number("rate.per_address", "Requests a second; 0: any number", "4000",
             &Settings::rate_per_address),
      flag("webhooks.allow_private", "Webhooks may lead to private addresses",
           &Settings::webhooks_private),
      duration("stop.patience", "How long requests under way may take when the server stops", "10s",
               &Settings::stop_patience),
      flag("e2b_server.enabled", "Speak E2B's protocol, too, for its SDKs", &Settings::e2b_served,
           "true"),
      flag("e2b_server.internet", "Sandboxes of E2B's SDKs reach public hosts, unless they say no",
           &Settings::e2b_internet, "true"),
      number("e2b_server.cpus", "Processors of such a sandbox", "2", &Settings::e2b_cpus),
      bytes("e2b_server.memory", "Memory of such a sandbox", "1G", &Settings::e2b_memory),
      bytes("e2b_server.disk", "What such a sandbox may write, in its memory", "512M",
            &Settings::e2b_disk),
      duration("e2b_server.max_timeout", "The longest timeout it may ask for", "86400s",
               &Settings::e2b_most_time),
      flag("e2b.enabled", "Sessions may live in E2B's cloud, or on another server like it",
           &Settings::e2b_enabled),
      text("e2b.api_key", "The key for it", "", &Settings::e2b_api_key, true),
      text("e2b.domain", "Where that is", "e2b.app", &Settings::e2b_domain),
      text("e2b.api_url", "Of its control API; https://api.<domain> where it is empty", "",
           &Settings::e2b_api_url),
      text("e2b.sandbox_url", "Of all its sandboxes; by their own names where it is empty", "",
           &Settings::e2b_sandbox_url),
      text("e2b.default_template", "What a session is made from where it does not say", "base",
           &Settings::e2b_default_template),
      number("e2b.timeout_seconds", "How long a sandbox there lives when nobody renews it", "300",
             &Settings::e2b_timeout_seconds),
      duration("e2b.max_ttl", "How long it lets a sandbox live at most; 0: as long as is wanted",
               "86400s", &Settings::e2b_longest_life),
      number("e2b.resources.cpu", "What its template gives, where it does not say: processors", "0",
             &Settings::e2b_cpu),
      number("e2b.resources.memory_mb", "Likewise: memory", "0", &Settings::e2b_memory_mb),
  };
  return all;
}

Result<SettingTexts> settings_from_yaml(const std::string& text, const std::string& file) {
  SettingTexts out;
  if (text.size() > kMostYaml) return fail(Errc::invalid, file + " is too large");
  // An alias may stand for a tree of aliases, and so on: none is needed here.
  for (std::size_t i = 0; i + 1 < text.size(); ++i)
    if ((text[i] == '&' || text[i] == '*') && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\n'))
      return fail(Errc::invalid, file + ": anchors and aliases are not allowed");
  try {
    YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return out;
    if (!root.IsMap()) return fail(Errc::invalid, file + ": must be a map of settings");
    TRY(flatten(root, "", file, 0, out));
  } catch (const YAML::Exception& problem) {
    return fail(Errc::invalid,
                file + ":" + std::to_string(problem.mark.line + 1) + ": " + problem.msg);
  }
  return out;
}

Result<SettingTexts> settings_from_env_file(const std::string& text, const std::string& file) {
  SettingTexts out;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    ++number;
    std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.starts_with("export ")) line.erase(0, 7);
    if (line.empty() || line[0] == '#') continue;
    std::size_t equals = line.find('=');
    if (equals == std::string::npos)
      return fail(Errc::invalid, file + ":" + std::to_string(number) + ": NAME=value is expected");
    std::string name = line.substr(0, equals);
    if (!name.starts_with(kPrefix)) continue;  // Other programs keep theirs here, too.
    std::string value = line.substr(equals + 1);
    if (value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0])
      value = value.substr(1, value.size() - 2);
    auto known = name_of_variable(name);
    if (!known)
      return fail(Errc::invalid, file + ":" + std::to_string(number) + ": " + known.error().what,
                  known.error().hint);
    out[*known] = std::move(value);
  }
  return out;
}

Result<SettingTexts> settings_from_environment(const char* const* environment) {
  SettingTexts out;
  for (; environment && *environment; ++environment) {
    std::string_view entry(*environment);
    std::size_t equals = entry.find('=');
    if (!entry.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    // Those the command line reads: where the server is, and with which key.
    std::string_view name = entry.substr(0, equals);
    if (name == "AGENT_SANDBOX_URL" || name == "AGENT_SANDBOX_API_KEY" ||
        name == "AGENT_SANDBOX_CONFIG")
      continue;
    out[TRY(name_of_variable(name))] = std::string(entry.substr(equals + 1));
  }
  return out;
}

Result<Settings> put_together(const std::vector<SettingTexts>& sources) {
  Settings settings;
  for (const SettingTexts& source : sources)
    for (const auto& [name, value] : source) {
      const Setting* setting = find_setting(name);
      if (!setting) return fail(Errc::invalid, "there is no setting \"" + name + "\"");
      auto done = setting->set(settings, value);
      if (!done) return fail(Errc::invalid, name + ": " + done.error().what, done.error().hint);
    }
  if (settings.tls_certificate.empty() != settings.tls_key.empty())
    return fail(Errc::invalid, "tls.certificate and tls.key need each other");
  if (settings.e2b_enabled && settings.e2b_api_key.empty())
    return fail(Errc::invalid, "e2b.enabled needs e2b.api_key",
                "set AGENT_SANDBOX_E2B_API_KEY, or api_key: ${NAME} in YAML");
  return settings;
}

std::string print_settings(const Settings& settings) {
  std::string out;
  std::string section;
  for (const Setting& setting : all_settings()) {
    std::string_view name = setting.name;
    std::size_t dot = name.find('.');
    std::string_view part = dot == std::string_view::npos ? "" : name.substr(0, dot);
    if (!part.empty() && part != section) out += std::string(part) + ":\n";
    section = part;
    std::string value = setting.get(settings);
    if (setting.secret) value = value.empty() ? "" : "(set, not shown)";
    out += (part.empty() ? "" : "  ") +
           std::string(dot == std::string_view::npos ? name : name.substr(dot + 1)) + ": " +
           (value.empty() ? "\"\"" : value) + "\n";
  }
  return out;
}

std::filesystem::path default_storage() {
  if (::geteuid() == 0) return "/var/lib/agent-sandbox";
  if (const char* home = std::getenv("XDG_DATA_HOME"); home && *home)
    return std::filesystem::path(home) / "agent-sandbox";
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home && *home ? home : ".") / ".local/share/agent-sandbox";
}

}  // namespace asr
