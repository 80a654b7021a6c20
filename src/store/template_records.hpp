// Templates: what sessions are made from, by name. A template has builds, each of which is a kept
// state or on its way to one, and tags that point to builds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

struct TemplateRecord {
  std::string id;
  std::string owner;
  std::string name;
  bool is_public = false;
  std::int64_t created_ms = 0;
  std::int64_t updated_ms = 0;
  friend bool operator==(const TemplateRecord&, const TemplateRecord&) = default;
};

struct TemplateBuild {
  std::string id;
  std::string template_id;
  std::string state = "waiting";  // waiting, building, ready, error
  std::string reason;             // of an error
  std::int64_t created_ms = 0;
  std::int64_t ended_ms = 0;  // 0: not yet
  std::string spec = "{}";    // JSON: what came of it, and what it was asked to be
  std::string log;            // lines of JSON
  friend bool operator==(const TemplateBuild&, const TemplateBuild&) = default;
};

struct TemplateTag {
  std::string template_id;
  std::string tag;
  std::string build;
  std::int64_t created_ms = 0;
  friend bool operator==(const TemplateTag&, const TemplateTag&) = default;
};

Result<void> insert_template(Database& database, const TemplateRecord& record);
// By its id or its name.
Result<TemplateRecord> find_template(Database& database, std::string_view owner,
                                     std::string_view id_or_name);
Result<std::vector<TemplateRecord>> list_templates(Database& database, std::string_view owner);
Result<void> update_template(Database& database, const TemplateRecord& record);
// With its builds and tags.
Result<bool> remove_template(Database& database, std::string_view id);

Result<void> insert_build(Database& database, const TemplateBuild& build);
Result<void> update_build(Database& database, const TemplateBuild& build);
Result<TemplateBuild> find_build(Database& database, std::string_view template_id,
                                 std::string_view id);
// The newest first, without their logs.
Result<std::vector<TemplateBuild>> list_builds(Database& database, std::string_view template_id);
Result<bool> remove_build(Database& database, std::string_view id);
// Those that a server which is gone was working on have failed.
Result<std::int64_t> fail_unfinished_builds(Database& database, std::string_view reason,
                                            std::int64_t now_ms);

Result<void> set_template_tag(Database& database, const TemplateTag& tag);
Result<bool> remove_template_tag(Database& database, std::string_view template_id,
                                 std::string_view tag);
Result<std::vector<TemplateTag>> list_template_tags(Database& database,
                                                    std::string_view template_id);

}  // namespace asr
