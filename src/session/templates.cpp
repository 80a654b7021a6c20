#include "session/templates.hpp"

#include <boost/json/parse.hpp>

#include "base/clock.hpp"
#include "base/id.hpp"
#include "base/uuid.hpp"
#include "session/template_job.hpp"
#include "session/trail.hpp"

namespace asr {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostTemplates = 50;          // of one owner
constexpr std::size_t kMostBuilds = 10;             // of one template
constexpr std::uint64_t kMostUploads = 4ULL << 30;  // bytes of one owner

Error unknown(const std::string& name) {
  return Error(Errc::not_found, "there is no template \"" + name + "\"");
}

std::string text_at(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value && value->is_string() ? std::string(value->get_string()) : "";
}

bool is_hash(std::string_view text) {
  return text.size() >= 8 && text.size() <= 128 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

json::object json_of(const TemplateStart& start) {
  json::object env;
  for (const auto& [name, value] : start.env) env[name] = value;
  json::array tags;
  for (const std::string& tag : start.tags) tags.emplace_back(tag);
  return {{"snapshot", start.snapshot},
          {"env", std::move(env)},
          {"cwd", start.cwd},
          {"user", start.user},
          {"start", start.start_command},
          {"ready", start.ready_command},
          {"milli_cpus", start.milli_cpus},
          {"memory", start.memory_bytes},
          {"tags", std::move(tags)}};
}

TemplateStart template_start_from(const std::string& spec) {
  TemplateStart start;
  boost::system::error_code ec;
  json::value value = json::parse(spec, ec);
  if (ec || !value.is_object()) return start;
  const json::object& body = value.get_object();
  start.snapshot = text_at(body, "snapshot");
  start.cwd = text_at(body, "cwd");
  if (auto user = text_at(body, "user"); !user.empty()) start.user = user;
  start.start_command = text_at(body, "start");
  start.ready_command = text_at(body, "ready");
  if (const json::value* env = body.if_contains("env"); env && env->is_object())
    for (const auto& [name, text] : env->get_object())
      if (text.is_string()) start.env[std::string(name)] = std::string(text.get_string());
  if (const json::value* tags = body.if_contains("tags"); tags && tags->is_array())
    for (const json::value& tag : tags->get_array())
      if (tag.is_string()) start.tags.emplace_back(tag.get_string());
  if (const json::value* cpus = body.if_contains("milli_cpus"); cpus && cpus->is_number())
    start.milli_cpus = cpus->to_number<std::uint32_t>();
  if (const json::value* memory = body.if_contains("memory"); memory && memory->is_number())
    start.memory_bytes = memory->to_number<std::uint64_t>();
  return start;
}

Templates::Templates(asio::any_io_executor executor, Store& store, Sessions& sessions,
                     const Log& log, fs::path folder)
    : executor_(std::move(executor)),
      store_(store),
      sessions_(sessions),
      log_(log),
      folder_(std::move(folder)) {}

Templates::~Templates() { *stopped_ = true; }

bool Templates::is_snapshot_of_build(std::string_view name) noexcept {
  return name.starts_with(kBuildPrefix) && name.size() == kBuildPrefix.size() + kUuidLength;
}

asio::awaitable<Result<void>> Templates::begin() {
  auto settle = [](Database& database) -> Result<void> {
    TRY(fail_unfinished_builds(database, "the server ended while it was built", now_ms()));
    return {};
  };
  co_return co_await store_.write(std::move(settle));
}

asio::awaitable<Result<Templates::Requested>> Templates::request(Caller caller, std::string name,
                                                                 TemplateStart start) {
  if (caller.role == Role::viewer)
    co_return fail(Errc::denied, "this key may only look", "ask an admin for a key with role user");
  Requested requested;
  requested.build.id = random_uuid();  // E2B's clients read nothing else.
  requested.build.created_ms = now_ms();
  requested.build.spec = to_text(json_of(start));
  auto entry = audit_of(caller, "template.request", requested.build.id, {{"name", name}});
  auto old = std::make_shared<std::vector<std::string>>();  // snapshots of builds that made room
  auto work = [owner = caller.id, name, entry, old, requested,
               &secrets = store_.secrets()](Database& database) mutable -> Result<Requested> {
    auto found = find_template(database, owner, name);
    if (found && found->owner == owner) {
      requested.record = std::move(*found);
    } else {
      if (TRY(list_templates(database, owner)).size() >= kMostTemplates)
        return fail(Errc::exhausted, "this key has as many templates as it may", "remove some");
      requested.record = {random_name(20), owner, name, false, now_ms(), now_ms()};
      TRY(insert_template(database, requested.record));
    }
    requested.build.template_id = requested.record.id;
    std::set<std::string> tagged;
    for (const TemplateTag& tag : TRY(list_template_tags(database, requested.record.id)))
      tagged.insert(tag.build);
    auto builds = TRY(list_builds(database, requested.record.id));
    for (std::size_t i = builds.size(); i-- > kMostBuilds - 1;) {
      if (tagged.contains(builds[i].id) || builds[i].state == "building") continue;
      old->push_back(template_start_from(builds[i].spec).snapshot);
      TRY(remove_build(database, builds[i].id));
    }
    TRY(insert_build(database, requested.build));
    TRY(append_audit(database, secrets, entry));
    return requested;
  };
  Requested made = CO_TRY(co_await store_.write(std::move(work)));
  for (const std::string& snapshot : *old) {
    if (snapshot.empty()) continue;
    auto removing = sessions_.remove_snapshot(caller, snapshot);
    (void)co_await std::move(removing);
  }
  co_return made;
}

asio::awaitable<Result<TemplateRecord>> Templates::find(Caller caller, std::string id_or_name) {
  auto look = [owner = caller.id, id_or_name](Database& database) {
    return find_template(database, owner, id_or_name);
  };
  auto found = co_await store_.read(std::move(look));
  if (!found && found.error().code == Errc::not_found) co_return fail(unknown(id_or_name));
  co_return found;
}

asio::awaitable<Result<std::vector<TemplateRecord>>> Templates::list(Caller caller) {
  auto look = [owner = caller.id](Database& database) { return list_templates(database, owner); };
  co_return co_await store_.read(std::move(look));
}

asio::awaitable<Result<std::vector<TemplateBuild>>> Templates::builds(Caller caller,
                                                                      std::string id) {
  auto finding = find(caller, std::move(id));
  TemplateRecord record = CO_TRY(co_await std::move(finding));
  auto look = [id = record.id](Database& database) { return list_builds(database, id); };
  co_return co_await store_.read(std::move(look));
}

asio::awaitable<Result<Templates::Status>> Templates::status(Caller caller, std::string id,
                                                             std::string build) {
  auto finding = find(caller, std::move(id));
  TemplateRecord record = CO_TRY(co_await std::move(finding));
  if (auto job = jobs_.find(build);
      job != jobs_.end() && job->second->build.template_id == record.id)
    co_return Status{job->second->build, job->second->log};
  auto look = [id = record.id, build](Database& database) {
    return find_build(database, id, build);
  };
  auto found = co_await store_.read(std::move(look));
  if (!found) co_return fail(Errc::not_found, "there is no such build");
  std::vector<TemplateLogLine> lines = template_log_from(found->log);
  co_return Status{std::move(*found), std::move(lines)};
}

asio::awaitable<Result<void>> Templates::set_public(Caller caller, std::string id, bool is_public) {
  auto finding = find(caller, std::move(id));
  TemplateRecord record = CO_TRY(co_await std::move(finding));
  if (record.owner != caller.id) co_return fail(unknown(record.id));
  record.is_public = is_public;
  record.updated_ms = now_ms();
  auto change = [record](Database& database) { return update_template(database, record); };
  co_return co_await store_.write(std::move(change));
}

asio::awaitable<Result<void>> Templates::remove(Caller caller, std::string id_or_name) {
  auto finding = find(caller, std::move(id_or_name));
  TemplateRecord record = CO_TRY(co_await std::move(finding));
  if (record.owner != caller.id) co_return fail(unknown(record.id));
  auto listing = builds(caller, record.id);
  std::vector<TemplateBuild> all = CO_TRY(co_await std::move(listing));
  for (const TemplateBuild& build : all)
    if (jobs_.contains(build.id))
      co_return fail(Errc::conflict, "the template is being built", "try again when that is over");
  auto entry = audit_of(caller, "template.remove", record.id, {{"name", record.name}});
  auto forget = [id = record.id, entry,
                 &secrets = store_.secrets()](Database& database) -> Result<void> {
    TRY(remove_template(database, id));
    TRY(append_audit(database, secrets, entry));
    return {};
  };
  CO_TRY(co_await store_.write(std::move(forget)));
  for (const TemplateBuild& build : all) {
    std::string snapshot = template_start_from(build.spec).snapshot;
    if (snapshot.empty()) continue;
    auto removing = sessions_.remove_snapshot(caller, std::move(snapshot));
    (void)co_await std::move(removing);
  }
  co_return Result<void>();
}

asio::awaitable<Result<std::vector<TemplateTag>>> Templates::tags(Caller caller,
                                                                  std::string id_or_name) {
  auto finding = find(caller, std::move(id_or_name));
  TemplateRecord record = CO_TRY(co_await std::move(finding));
  auto look = [id = record.id](Database& database) { return list_template_tags(database, id); };
  co_return co_await store_.read(std::move(look));
}

asio::awaitable<Result<std::string>> Templates::add_tags(Caller caller, std::string name,
                                                         std::string from,
                                                         std::vector<std::string> tags) {
  auto finding = find(caller, name);
  TemplateRecord record = CO_TRY(co_await std::move(finding));
  if (record.owner != caller.id) co_return fail(unknown(name));
  auto change = [id = record.id, from, tags](Database& database) -> Result<std::string> {
    for (const TemplateTag& tag : TRY(list_template_tags(database, id))) {
      if (tag.tag != from && tag.build != from) continue;
      for (const std::string& each : tags)
        TRY(set_template_tag(database, {id, each, tag.build, now_ms()}));
      return tag.build;
    }
    return fail(Errc::not_found, "the template has no tag \"" + from + "\"");
  };
  co_return co_await store_.write(std::move(change));
}

asio::awaitable<Result<void>> Templates::remove_tags(Caller caller, std::string name,
                                                     std::vector<std::string> tags) {
  auto finding = find(caller, name);
  TemplateRecord record = CO_TRY(co_await std::move(finding));
  if (record.owner != caller.id) co_return fail(unknown(name));
  auto change = [id = record.id, tags](Database& database) -> Result<void> {
    for (const std::string& tag : tags)
      if (!TRY(remove_template_tag(database, id, tag)))
        return fail(Errc::not_found, "the template has no tag \"" + tag + "\"");
    return {};
  };
  co_return co_await store_.write(std::move(change));
}

asio::awaitable<Result<Templates::Found>> Templates::find_start(Caller caller, std::string name,
                                                                std::string tag) {
  auto finding = find(caller, name);
  TemplateRecord record = CO_TRY(co_await std::move(finding));
  auto look = [id = record.id, tag](Database& database) -> Result<TemplateBuild> {
    for (const TemplateTag& each : TRY(list_template_tags(database, id)))
      if (each.tag == tag || each.build == tag) return find_build(database, id, each.build);
    return fail(Errc::not_found, "the template has no ready build with the tag \"" + tag + "\"");
  };
  TemplateBuild build = CO_TRY(co_await store_.read(std::move(look)));
  co_return Found{std::move(record), template_start_from(build.spec)};
}

Result<fs::path> Templates::file(const std::string& owner, const std::string& hash) const {
  if (!is_hash(hash)) return fail(Errc::invalid, "a hash of files is lower case hex");
  return folder_ / to_hex(sha256(owner)).substr(0, 32) / (hash + ".tar");
}

bool Templates::has_file(const std::string& owner, const std::string& hash) const {
  auto path = file(owner, hash);
  std::error_code ec;
  return path && fs::is_regular_file(*path, ec);
}

Result<void> Templates::check_room(const std::string& owner) const {
  std::uint64_t bytes = 0;
  std::error_code ec;
  for (const auto& entry :
       fs::directory_iterator(folder_ / to_hex(sha256(owner)).substr(0, 32), ec))
    bytes += entry.file_size(ec);
  if (bytes + kMostFileBytes <= kMostUploads) return {};
  return fail(Errc::exhausted, "the files uploaded for templates are too many",
              "an operator may remove those in the storage folder's template_files");
}

}  // namespace asr
