#include "store/template_records.hpp"

#include "store/rows.hpp"

namespace asr {

namespace {

void read_template(const Statement& row, TemplateRecord& r) {
  row.read(r.id, r.owner, r.name, r.is_public, r.created_ms, r.updated_ms);
}

void read_build(const Statement& row, TemplateBuild& b) {
  row.read(b.id, b.template_id, b.state, b.reason, b.created_ms, b.ended_ms, b.spec, b.log);
}

void read_tag(const Statement& row, TemplateTag& t) {
  row.read(t.template_id, t.tag, t.build, t.created_ms);
}

}  // namespace

Result<void> insert_template(Database& database, const TemplateRecord& r) {
  TRY(
      database.execute("INSERT INTO templates (id, owner, name, public, created_ms, updated_ms)"
                       " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                       r.id, r.owner, r.name, r.is_public, r.created_ms, r.updated_ms));
  return {};
}

Result<TemplateRecord> find_template(Database& database, std::string_view owner,
                                     std::string_view id_or_name) {
  return must_exist(
      TRY(first_row(database, read_template,
                    "SELECT id, owner, name, public, created_ms, updated_ms FROM templates"
                    " WHERE owner = ?1 AND (id = ?2 OR name = ?2)",
                    owner, id_or_name)),
      "template " + std::string(id_or_name));
}

Result<std::vector<TemplateRecord>> list_templates(Database& database, std::string_view owner) {
  return all_rows(database, read_template,
                  "SELECT id, owner, name, public, created_ms, updated_ms FROM templates"
                  " WHERE owner = ?1 ORDER BY created_ms, id",
                  owner);
}

Result<void> update_template(Database& database, const TemplateRecord& r) {
  return change_one(database, "template " + r.id,
                    "UPDATE templates SET public = ?2, updated_ms = ?3 WHERE id = ?1", r.id,
                    r.is_public, r.updated_ms);
}

Result<bool> remove_template(Database& database, std::string_view id) {
  return TRY(database.execute("DELETE FROM templates WHERE id = ?1", id)) > 0;
}

Result<void> insert_build(Database& database, const TemplateBuild& b) {
  TRY(database.execute(
      "INSERT INTO template_builds (id, template, state, reason, created_ms,"
      " ended_ms, spec, log) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
      b.id, b.template_id, b.state, b.reason, b.created_ms, b.ended_ms, b.spec, b.log));
  return {};
}

Result<void> update_build(Database& database, const TemplateBuild& b) {
  return change_one(database, "build " + b.id,
                    "UPDATE template_builds SET state = ?2, reason = ?3, ended_ms = ?4, spec = ?5,"
                    " log = ?6 WHERE id = ?1",
                    b.id, b.state, b.reason, b.ended_ms, b.spec, b.log);
}

Result<TemplateBuild> find_build(Database& database, std::string_view template_id,
                                 std::string_view id) {
  return must_exist(
      TRY(first_row(database, read_build,
                    "SELECT id, template, state, reason, created_ms, ended_ms, spec, log"
                    " FROM template_builds WHERE template = ?1 AND id = ?2",
                    template_id, id)),
      "build " + std::string(id));
}

Result<std::vector<TemplateBuild>> list_builds(Database& database, std::string_view template_id) {
  return all_rows(database, read_build,
                  "SELECT id, template, state, reason, created_ms, ended_ms, spec, ''"
                  " FROM template_builds WHERE template = ?1 ORDER BY created_ms DESC, id",
                  template_id);
}

Result<bool> remove_build(Database& database, std::string_view id) {
  return TRY(database.execute("DELETE FROM template_builds WHERE id = ?1", id)) > 0;
}

Result<std::int64_t> fail_unfinished_builds(Database& database, std::string_view reason,
                                            std::int64_t now_ms) {
  return database.execute(
      "UPDATE template_builds SET state = 'error', reason = ?1, ended_ms = ?2"
      " WHERE state = 'building'",
      reason, now_ms);
}

Result<void> set_template_tag(Database& database, const TemplateTag& t) {
  TRY(
      database.execute("INSERT OR REPLACE INTO template_tags (template, tag, build, created_ms)"
                       " VALUES (?1, ?2, ?3, ?4)",
                       t.template_id, t.tag, t.build, t.created_ms));
  return {};
}

Result<bool> remove_template_tag(Database& database, std::string_view template_id,
                                 std::string_view tag) {
  return TRY(database.execute("DELETE FROM template_tags WHERE template = ?1 AND tag = ?2",
                              template_id, tag)) > 0;
}

Result<std::vector<TemplateTag>> list_template_tags(Database& database,
                                                    std::string_view template_id) {
  return all_rows(database, read_tag,
                  "SELECT template, tag, build, created_ms FROM template_tags"
                  " WHERE template = ?1 ORDER BY created_ms DESC, tag",
                  template_id);
}

}  // namespace asr
