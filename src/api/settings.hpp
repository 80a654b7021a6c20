// How a server is set up. Every setting has one name, used as a flag (--sessions-ttl), in the
// environment and in .env (AGENT_SANDBOX_SESSIONS_TTL) and in YAML (sessions: {ttl: …}); what
// stands earlier in this list wins.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"

namespace asr {

struct Settings {
  std::string listen = "127.0.0.1:8000";
  std::string storage;  // empty: default_storage()
  std::string runtime_dir;
  bool no_auth = false;
  std::string admin_key;
  std::string jwt_secret;
  std::string jwt_public_key;  // a PEM file
  std::string jwt_issuer;
  std::string jwt_audience;
  std::string jwt_role_claim = "role";
  std::vector<std::string> hosts;
  std::vector<std::string> origins;
  std::string preview_domain = "localhost";
  std::string tls_certificate;
  std::string tls_key;
  bool tls_self_signed = false;
  LogLevel log_level = LogLevel::info;
  LogFormat log_format = LogFormat::text;
  std::chrono::seconds ttl{3600};
  std::chrono::seconds idle{0};
  std::chrono::seconds most_ttl{0};
  std::chrono::seconds keep_paused{30 * 24 * 3600};
  std::uint32_t most_sessions = 10000;
  std::uint32_t most_sessions_per_key = 1000;
  bool keep_on_stop = false;
  std::chrono::seconds keep_for{600};
  std::chrono::seconds usage_every{60};
  bool history = true;
  std::uint64_t history_bytes = 16ULL << 20;
  std::uint64_t most_saved_per_key = 8ULL << 30;
  std::uint64_t most_saved_bytes = 32ULL << 30;
  std::vector<std::string> apply_folders;
  bool apply_users = false;
  std::uint64_t most_volume_bytes = 64ULL << 30;
  std::uint32_t most_volumes_per_key = 100;
  bool full_network = false;
  std::string full_network_range = "10.233.0.0/16";
  std::vector<std::string> full_network_allow;
  std::vector<std::string> resolvers;
  std::string network_trust;  // a PEM file
  std::uint32_t pool_size = 4;
  bool cold_interpreters = false;
  std::vector<std::string> interpreter_imports;
  std::uint32_t batch_at_once = 0;  // zero: two for each processor
  std::uint32_t batch_most_items = 10000;
  std::uint32_t batch_most_queued = 50000;
  std::uint64_t batch_most_memory = 256ULL << 20;
  std::chrono::seconds batch_keep{600};
  double rate_per_key = 2000;
  double rate_per_address = 4000;
  bool webhooks_private = false;
  std::chrono::seconds stop_patience{10};
  // This server as E2B's clients see it.
  bool e2b_served = true;
  bool e2b_internet = true;
  std::uint32_t e2b_cpus = 2;
  std::uint64_t e2b_memory = 1ULL << 30;
  std::uint64_t e2b_disk = 512ULL << 20;
  std::chrono::seconds e2b_most_time{24 * 3600};
  // Sessions in E2B's cloud, or on another server like it.
  bool e2b_enabled = false;
  std::string e2b_api_key;
  std::string e2b_domain = "e2b.app";
  std::string e2b_api_url;
  std::string e2b_sandbox_url;
  std::string e2b_default_template = "base";
  std::uint32_t e2b_timeout_seconds = 300;
  std::chrono::seconds e2b_longest_life{86400};
  std::uint32_t e2b_cpu = 0;  // zero: as the template says
  std::uint32_t e2b_memory_mb = 0;
};

struct Setting {
  std::string_view name;  // "sessions.ttl"
  std::string_view help;
  std::string_view standard;  // as it would be written
  bool secret = false;        // never printed
  std::function<Result<void>(Settings&, const std::string&)> set;
  std::function<std::string(const Settings&)> get;

  std::string flag() const;         // "--sessions-ttl"
  std::string environment() const;  // "AGENT_SANDBOX_SESSIONS_TTL"
};

// All there are, in the order they are documented.
const std::vector<Setting>& all_settings();

using SettingTexts = std::map<std::string, std::string>;  // by name

// What each source says. Names nobody knows are an error that says where they stand.
Result<SettingTexts> settings_from_yaml(const std::string& text, const std::string& file);
Result<SettingTexts> settings_from_env_file(const std::string& text, const std::string& file);
Result<SettingTexts> settings_from_environment(const char* const* environment);

// From the weakest source to the strongest.
Result<Settings> put_together(const std::vector<SettingTexts>& sources);

// One per line, as YAML, without secrets.
std::string print_settings(const Settings& settings);

std::filesystem::path default_storage();

}  // namespace asr
