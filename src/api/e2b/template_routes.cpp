// Templates: requested, given files, built, watched, tagged, listed and removed.
#include <fcntl.h>
#include <unistd.h>

#include "api/e2b/control_plane.hpp"
#include "api/e2b/fields.hpp"
#include "api/e2b/network.hpp"
#include "api/e2b/sandbox_request.hpp"
#include "api/e2b/template_name.hpp"
#include "base/clock.hpp"
#include "base/id.hpp"
#include "base/scope_exit.hpp"
#include "session/templates.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostSteps = 500;
constexpr std::size_t kMostArgs = 200;
constexpr std::size_t kMostTags = 20;
constexpr std::size_t kBlock = 256 << 10;

Templates& of(const E2bParts& parts) { return *parts.api.templates; }

std::string upload_token(const E2bParts& parts, const std::string& owner, const std::string& id,
                         const std::string& hash) {
  return to_hex(parts.api.store.secrets().mac("e2b upload " + owner + " " + id + " " + hash));
}

asio::awaitable<Result<Reply>> request(E2bParts parts, CallPtr call) {
  E2bFields fields(call->body);
  std::string text = CO_TRY(fields.text_if("name")).value_or("");
  if (text.empty()) text = CO_TRY(fields.text_if("alias")).value_or("");
  if (text.empty()) text = "template-" + random_name(8);
  E2bTemplateName name = CO_TRY(e2b_template_name(text));
  if (e2b_built_in(name.name))
    co_return fail(Errc::conflict, "\"" + name.name + "\" is a template of this server's own",
                   "choose another name");
  TemplateStart start;
  start.tags = CO_TRY(fields.list("tags", kMostTags));
  for (const std::string& tag : start.tags) CO_TRY(e2b_template_name("x:" + tag));
  if (text.find(':') != std::string::npos || start.tags.empty()) start.tags.push_back(name.tag);
  start.milli_cpus =
      static_cast<std::uint32_t>(CO_TRY(fields.number("cpuCount", 0, 0, 256)) * 1000);
  start.memory_bytes = static_cast<std::uint64_t>(CO_TRY(fields.number("memoryMB", 0, 0, 1 << 20)))
                       << 20;
  json::array tags;
  for (const std::string& tag : start.tags) tags.emplace_back(tag);
  auto requesting = of(parts).request(call->caller, name.name, std::move(start));
  Templates::Requested made = CO_TRY(co_await std::move(requesting));
  co_return Reply{202,
                  json::object{{"templateID", made.record.id},
                               {"buildID", made.build.id},
                               {"public", made.record.is_public},
                               {"names", json::array{made.record.name}},
                               {"aliases", json::array{made.record.name}},
                               {"tags", std::move(tags)}},
                  false,
                  {}};
}

asio::awaitable<Result<Reply>> file(E2bParts parts, CallPtr call) {
  auto finding = of(parts).find(call->caller, call->parts[0]);
  TemplateRecord record = CO_TRY(co_await std::move(finding));
  const std::string& hash = call->parts[1];
  CO_TRY(of(parts).file(record.owner, hash));
  if (of(parts).has_file(record.owner, hash))
    co_return Reply{201, json::object{{"present", true}}, false, {}};
  CO_TRY(of(parts).check_room(record.owner));
  std::string url = std::string(call->head().tls ? "https://" : "http://") +
                    std::string(call->head().headers.get("host")) + "/templates/" + record.id +
                    "/files/" + hash + "?owner=" + percent_encode(record.owner) +
                    "&token=" + upload_token(parts, record.owner, record.id, hash);
  co_return Reply{201, json::object{{"present", false}, {"url", std::move(url)}}, false, {}};
}

Result<void> write_all(int file, std::string_view data) {
  while (!data.empty()) {
    ssize_t n = ::write(file, data.data(), data.size());
    if (n < 0) return fail_errno("write");
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

// Without a key: the address itself was given to whoever may.
asio::awaitable<Result<Reply>> upload(E2bParts parts, CallPtr call) {
  std::string owner = CO_TRY(call->required("owner"));
  std::string token = CO_TRY(call->required("token"));
  const std::string& hash = call->parts[1];
  if (!constant_time_equal(token, upload_token(parts, owner, call->parts[0], hash)))
    co_return fail(Errc::denied, "this address does not take files");
  if (call->head().length.value_or(0) > Templates::kMostFileBytes)
    co_return fail(Errc::exhausted, "the files are too large");
  std::filesystem::path path = CO_TRY(of(parts).file(owner, hash));
  CO_TRY(of(parts).check_room(owner));
  std::error_code ec;
  std::filesystem::create_directories(path.parent_path(), ec);
  std::filesystem::path draft = path;
  draft += "." + random_name(8);
  UniqueFd out(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!out) co_return fail_errno("cannot keep the files");
  ScopeExit forget([&] { ::unlink(draft.c_str()); });
  std::string block(kBlock, '\0');
  std::uint64_t bytes = 0;
  for (;;) {
    auto reading = call->exchange->read_some(block);
    std::size_t n = CO_TRY(co_await std::move(reading));
    if (n == 0) break;
    bytes += n;
    if (bytes > Templates::kMostFileBytes)
      co_return fail(Errc::exhausted, "the files are too large");
    CO_TRY(write_all(out.get(), {block.data(), n}));
  }
  if (::rename(draft.c_str(), path.c_str()) != 0) co_return fail_errno("cannot keep the files");
  forget.dismiss();
  co_return Reply{200, nullptr, false, {}};
}

Result<TemplateStep> step_of(const json::value& value) {
  if (!value.is_object()) return fail(Errc::invalid, "steps must be a list of objects");
  E2bFields fields(value.get_object(), "steps");
  TemplateStep step;
  std::string type = TRY(fields.text("type"));
  using Kind = TemplateStep::Kind;
  constexpr std::pair<std::string_view, Kind> kKinds[] = {{"ENV", Kind::env},
                                                          {"WORKDIR", Kind::workdir},
                                                          {"USER", Kind::user},
                                                          {"RUN", Kind::run},
                                                          {"COPY", Kind::copy}};
  bool known = false;
  for (const auto& [name, kind] : kKinds)
    if (name == type) {
      step.kind = kind;
      known = true;
    }
  if (!known)
    return fail(Errc::unsupported, "steps: " + type.substr(0, 40) + " is not supported",
                "there are ENV, WORKDIR, USER, RUN and COPY");
  step.args = TRY(fields.list("args", kMostArgs));
  step.files = TRY(fields.text_if("filesHash")).value_or("");
  return step;
}

// What it starts from. An image nobody has here is no mistake of the request's: the build fails.
asio::awaitable<Result<TemplateRecipe>> recipe_from(E2bParts parts, CallPtr call) {
  E2bFields fields(call->body);
  TemplateRecipe recipe;
  recipe.base.spec = e2b_spec(parts.options);
  recipe.base.network =
      CO_TRY(e2b_network_from(json::object(), std::nullopt, parts.options.internet));
  recipe.start.cwd = "/home/user";
  auto image = CO_TRY(fields.text_if("fromImage"));
  auto base = CO_TRY(fields.text_if("fromTemplate"));
  if (image && base) co_return fail(Errc::invalid, "give fromImage or fromTemplate, not both");
  std::string environment = "host";
  if (base) {
    E2bTemplateName name = CO_TRY(e2b_template_name(*base));
    auto built_in = e2b_built_in(name.name);
    if (!built_in) {
      auto finding = of(parts).find_start(call->caller, name.name, name.tag);
      auto found = co_await std::move(finding);
      std::string snapshot = name.name;
      if (found) {
        recipe.start = std::move(found->start);
        snapshot = recipe.start.snapshot;
        recipe.start.snapshot.clear();
      }
      environment = std::string(Snapshots::kPrefix) + snapshot;
      recipe.base.snapshot = std::move(snapshot);
    }
  } else if (image) {
    auto known = e2b_known_image(*image);
    if (!known) {  // Said by the build itself.
      recipe.base.environment = "image:" + *image;
      co_return recipe;
    }
    environment = *known;
  }
  recipe.base.environment = environment;
  const json::array* steps = CO_TRY(fields.array("steps", kMostSteps));
  if (steps)
    for (const json::value& step : *steps) recipe.steps.push_back(CO_TRY(step_of(step)));
  if (auto command = CO_TRY(fields.text_if("startCmd"))) recipe.start.start_command = *command;
  if (auto command = CO_TRY(fields.text_if("readyCmd"))) recipe.start.ready_command = *command;
  co_return recipe;
}

asio::awaitable<Result<Reply>> start(E2bParts parts, CallPtr call) {
  auto reading = recipe_from(parts, call);
  TemplateRecipe recipe = CO_TRY(co_await std::move(reading));
  auto starting = of(parts).start(call->caller, call->parts[0], call->parts[1], std::move(recipe));
  CO_TRY(co_await std::move(starting));
  co_return Reply{202, nullptr, false, {}};
}

json::object json_of(const TemplateLogLine& line) {
  return {{"timestamp", iso_time(line.at_ms)},
          {"level", line.level},
          {"message", line.message},
          {"step", line.step}};
}

asio::awaitable<Result<Reply>> status(E2bParts parts, CallPtr call) {
  auto offset = static_cast<std::size_t>(CO_TRY(call->number("logsOffset", 0, 0, 1'000'000)));
  auto limit = static_cast<std::size_t>(CO_TRY(call->number("limit", 100, 0, 100)));
  auto asking = of(parts).status(call->caller, call->parts[0], call->parts[1]);
  Templates::Status now = CO_TRY(co_await std::move(asking));
  json::array entries;
  json::array lines;
  for (std::size_t i = offset; i < now.log.size() && entries.size() < limit; ++i) {
    entries.push_back(json_of(now.log[i]));
    lines.emplace_back(now.log[i].message);
  }
  json::object body{{"templateID", now.build.template_id},
                    {"buildID", now.build.id},
                    {"status", now.build.state},
                    {"logs", std::move(lines)},
                    {"logEntries", std::move(entries)}};
  if (now.build.state == "error")
    body["reason"] = {{"message", now.build.reason},
                      {"step", now.log.empty() ? "" : now.log.back().step},
                      {"logEntries", json::array()}};
  co_return Reply{200, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> logs(E2bParts parts, CallPtr call) {
  auto limit = static_cast<std::size_t>(CO_TRY(call->number("limit", 100, 0, 100)));
  std::int64_t cursor = CO_TRY(call->number("cursor", 0, 0, INT64_MAX));
  auto asking = of(parts).status(call->caller, call->parts[0], call->parts[1]);
  Templates::Status now = CO_TRY(co_await std::move(asking));
  json::array entries;
  for (const TemplateLogLine& line : now.log)
    if (line.at_ms >= cursor && entries.size() < limit) entries.push_back(json_of(line));
  co_return Reply{200, json::object{{"logs", std::move(entries)}}, false, {}};
}

json::object about(const TemplateRecord& record, const TemplateStart& start,
                   const std::string& build, const E2bOptions& options) {
  std::uint32_t cpus = start.milli_cpus != 0 ? start.milli_cpus : options.milli_cpus;
  std::uint64_t memory = start.memory_bytes != 0 ? start.memory_bytes : options.memory_bytes;
  return {{"templateID", record.id},
          {"buildID", build},
          {"cpuCount", std::max<std::uint32_t>(1, cpus / 1000)},
          {"memoryMB", memory >> 20},
          {"diskSizeMB", options.disk_bytes >> 20},
          {"public", record.is_public},
          {"aliases", json::array{record.name}},
          {"names", json::array{record.name}},
          {"createdAt", iso_time(record.created_ms)},
          {"updatedAt", iso_time(record.updated_ms)},
          {"createdBy", nullptr},
          {"lastSpawnedAt", nullptr},
          {"spawnCount", 0},
          {"buildCount", 1},
          {"envdVersion", kEnvdVersion}};
}

asio::awaitable<Result<Reply>> list(E2bParts parts, CallPtr call) {
  auto listing = of(parts).list(call->caller);
  std::vector<TemplateRecord> records = CO_TRY(co_await std::move(listing));
  json::array all;
  for (const TemplateRecord& record : records) {
    auto asking = of(parts).builds(call->caller, record.id);
    std::vector<TemplateBuild> builds = CO_TRY(co_await std::move(asking));
    TemplateBuild newest = builds.empty() ? TemplateBuild() : builds.front();
    json::object told = about(record, template_start_from(newest.spec), newest.id, parts.options);
    told["buildStatus"] = newest.state;
    told["buildCount"] = builds.size();
    all.push_back(std::move(told));
  }
  co_return Reply{200, std::move(all), false, {}};
}

asio::awaitable<Result<Reply>> get(E2bParts parts, CallPtr call) {
  E2bTemplateName name = CO_TRY(e2b_template_name(call->parts[0]));
  auto finding = of(parts).find(call->caller, name.name);
  TemplateRecord record = CO_TRY(co_await std::move(finding));
  auto asking = of(parts).builds(call->caller, record.id);
  std::vector<TemplateBuild> builds = CO_TRY(co_await std::move(asking));
  json::array all;
  for (const TemplateBuild& build : builds) {
    TemplateStart start = template_start_from(build.spec);
    json::object told = about(record, start, build.id, parts.options);
    all.push_back({{"buildID", build.id},
                   {"status", build.state},
                   {"createdAt", iso_time(build.created_ms)},
                   {"updatedAt", iso_time(std::max(build.created_ms, build.ended_ms))},
                   {"finishedAt", build.ended_ms == 0 ? json::value(nullptr)
                                                      : json::value(iso_time(build.ended_ms))},
                   {"cpuCount", told.at("cpuCount")},
                   {"memoryMB", told.at("memoryMB")},
                   {"diskSizeMB", told.at("diskSizeMB")},
                   {"envdVersion", kEnvdVersion}});
  }
  json::object body =
      about(record, builds.empty() ? TemplateStart() : template_start_from(builds.front().spec),
            builds.empty() ? "" : builds.front().id, parts.options);
  body["builds"] = std::move(all);
  co_return Reply{200, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> change(E2bParts parts, CallPtr call) {
  auto flag = CO_TRY(E2bFields(call->body).flag("public"));
  E2bTemplateName name = CO_TRY(e2b_template_name(call->parts[0]));
  if (flag) {
    auto changing = of(parts).set_public(call->caller, name.name, *flag);
    CO_TRY(co_await std::move(changing));
  }
  co_return Reply{200, json::object{{"names", json::array{name.name}}}, false, {}};
}

// A snapshot is removed by the same call.
asio::awaitable<Result<Reply>> remove(E2bParts parts, CallPtr call) {
  E2bTemplateName name = CO_TRY(e2b_template_name(call->parts[0]));
  auto removing = of(parts).remove(call->caller, name.name);
  auto removed = co_await std::move(removing);
  if (!removed && removed.error().code == Errc::not_found) {
    auto forgetting = parts.sessions().remove_snapshot(call->caller, name.name);
    removed = co_await std::move(forgetting);
  }
  if (!removed && removed.error().code == Errc::not_found)
    co_return fail(Errc::not_found, "template \"" + name.name + "\" not found");
  CO_TRY(std::move(removed));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> alias(E2bParts parts, CallPtr call) {
  E2bTemplateName name = CO_TRY(e2b_template_name(call->parts[0]));
  json::object body{{"templateID", name.name}, {"public", false}};
  if (e2b_built_in(name.name)) {
    body["public"] = true;
    co_return Reply{200, std::move(body), false, {}};
  }
  auto finding = of(parts).find(call->caller, name.name);
  if (auto record = co_await std::move(finding)) {
    body["templateID"] = record->id;
    body["public"] = record->is_public;
    co_return Reply{200, std::move(body), false, {}};
  }
  for (const json::value& each : parts.sessions().snapshots().list(call->caller.id))
    if (each.at("name").get_string() == name.name) co_return Reply{200, std::move(body), false, {}};
  co_return fail(Errc::not_found, "template \"" + name.name + "\" not found");
}

asio::awaitable<Result<Reply>> add_tags(E2bParts parts, CallPtr call) {
  E2bFields fields(call->body);
  std::string text = CO_TRY(fields.text("target"));
  E2bTemplateName target = CO_TRY(e2b_template_name(text));
  std::vector<std::string> tags = CO_TRY(fields.list("tags", kMostTags));
  json::array told;
  for (const std::string& tag : tags) {
    CO_TRY(e2b_template_name("x:" + tag));
    told.emplace_back(tag);
  }
  auto adding = of(parts).add_tags(call->caller, target.name, target.tag, std::move(tags));
  std::string build = CO_TRY(co_await std::move(adding));
  co_return Reply{
      201, json::object{{"buildID", std::move(build)}, {"tags", std::move(told)}}, false, {}};
}

asio::awaitable<Result<Reply>> remove_tags(E2bParts parts, CallPtr call) {
  E2bFields fields(call->body);
  std::string text = CO_TRY(fields.text("name"));
  E2bTemplateName name = CO_TRY(e2b_template_name(text));
  std::vector<std::string> tags = CO_TRY(fields.list("tags", kMostTags));
  auto removing = of(parts).remove_tags(call->caller, name.name, std::move(tags));
  CO_TRY(co_await std::move(removing));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> list_tags(E2bParts parts, CallPtr call) {
  E2bTemplateName name = CO_TRY(e2b_template_name(call->parts[0]));
  auto asking = of(parts).tags(call->caller, name.name);
  std::vector<TemplateTag> tags = CO_TRY(co_await std::move(asking));
  json::array all;
  for (const TemplateTag& tag : tags)
    all.push_back(
        {{"tag", tag.tag}, {"buildID", tag.build}, {"createdAt", iso_time(tag.created_ms)}});
  co_return Reply{200, std::move(all), false, {}};
}

}  // namespace

std::vector<Route> e2b_template_routes(const E2bParts& parts) {
  const std::string all = "/templates";
  const std::string one = all + "/{template}";
  const std::string build = one + "/builds/{build}";
  auto with_body = E2bBody::required;
  std::vector<Route> routes{
      e2b_route(parts, "POST", "/v3" + all, "e2bRequestTemplate", request, with_body),
      e2b_route(parts, "GET", all, "e2bListTemplates", list),
      e2b_route(parts, "GET", "/v2" + all, "e2bListTemplatesV2", list),
      e2b_route(parts, "POST", all + "/tags", "e2bAddTags", add_tags, with_body),
      e2b_route(parts, "DELETE", all + "/tags", "e2bRemoveTags", remove_tags, with_body),
      e2b_route(parts, "GET", all + "/aliases/{alias}", "e2bFindAlias", alias),
      e2b_route(parts, "GET", one + "/tags", "e2bListTags", list_tags),
      e2b_route(parts, "GET", one + "/files/{hash}", "e2bTemplateFile", file),
      e2b_route(parts, "POST", "/v2" + build, "e2bStartBuild", start, with_body),
      e2b_route(parts, "GET", build + "/status", "e2bBuildStatus", status),
      e2b_route(parts, "GET", build + "/logs", "e2bBuildLogs", logs),
      e2b_route(parts, "GET", one, "e2bGetTemplate", get),
      e2b_route(parts, "PATCH", one, "e2bChangeTemplate", change, with_body),
      e2b_route(parts, "PATCH", "/v2" + one, "e2bChangeTemplateV2", change, with_body),
      e2b_route(parts, "DELETE", one, "e2bRemoveTemplate", remove)};
  Route uploading = e2b_route(parts, "PUT", one + "/files/{hash}", "e2bUploadTemplateFile", upload);
  uploading.needs = Needs::nothing;
  uploading.least = Role::viewer;
  routes.push_back(std::move(uploading));
  return routes;
}

}  // namespace asr
