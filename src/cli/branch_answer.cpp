#include "cli/branch_answer.hpp"

#include "base/units.hpp"
#include "cli/remote.hpp"

namespace asr {

namespace {

std::string size_at(const json::value& object, std::string_view name) {
  const json::value* value = object.as_object().if_contains(name);
  boost::system::error_code ec;
  std::uint64_t bytes = value && value->is_number() ? value->to_number<std::uint64_t>(ec) : 0;
  return !value || ec ? "" : format_bytes(bytes);
}

// "python", or "x1 (python)" where it is not the language's own.
std::string title_of(const json::value& context) {
  std::string id = printable(text_at(context, "context_id"));
  std::string language = printable(text_at(context, "language"));
  return id == language ? id : id + " (" + language + ")";
}

void tell_loss(const json::value& context, std::vector<std::string>& told) {
  std::string title = title_of(context);
  if (text_at(context, "memory") == "lost") {
    told.push_back(title +
                   ": its variables do not come along: " + printable(text_at(context, "why")));
    return;
  }
  const json::value* lost = context.as_object().if_contains("lost");
  if (!lost || !lost->is_array() || lost->get_array().empty()) return;
  std::string all;
  for (const json::value& one : lost->get_array())
    all += (all.empty() ? "" : ", ") +
           (one.is_string() ? printable(std::string_view(one.get_string())) : "");
  told.push_back(title + ": these do not come along: " + all);
}

}  // namespace

std::string checkpoint_table(const json::array& checkpoints, const json::value& at,
                             Letters letters) {
  Table table({"NUMBER", "AFTER", "CREATED", "FILES", "MEMORY", "KEPT", "NAME"});
  for (const json::value& one : checkpoints) {
    std::string name = printable(text_at(one, "name"));
    if (name.empty()) name = "before: " + printable(text_at(one, "before"));
    if (at.is_number() && at == one.at("number")) name += "  " + now_arrow(letters);
    table.add({text_at(one, "number"), text_at(one, "parent"), text_at(one, "created_at"),
               size_at(one, "files_bytes"), size_at(one, "memory_bytes"),
               text_at(one, "survives_server") == "true" ? "on disk" : "in memory", name});
  }
  return table.text();
}

std::string merged_table(const json::value& report) {
  Table table({"CHANGE", "SIZE", "PATH"});
  for (const json::value& file : report.at("files").as_array())
    table.add({text_at(file, "change"), size_at(file, "size"), printable(text_at(file, "path"))});
  return table.text();
}

std::string conflict_table(const json::value& report) {
  Table table({"HERE", "THERE", "PATH"});
  for (const json::value& one : report.at("conflicts").as_array())
    table.add({text_at(one, "ours"), text_at(one, "theirs"), printable(text_at(one, "path"))});
  return table.text();
}

std::string snapshot_table(const json::array& snapshots) {
  Table table({"NAME", "ENVIRONMENT", "CREATED"});
  for (const json::value& one : snapshots)
    table.add({printable(text_at(one, "name")), printable(text_at(one, "environment")),
               text_at(one, "created_at")});
  return table.text();
}

std::vector<std::string> losses_of(const json::value& state) {
  std::vector<std::string> told;
  const json::object* object = state.if_object();
  const json::value* contexts = object ? object->if_contains("contexts") : nullptr;
  if (contexts && contexts->is_array())
    for (const json::value& context : contexts->get_array())
      if (context.is_object()) tell_loss(context, told);
  std::string programs = text_at(state, "programs_lost");
  if (!programs.empty() && programs != "0")
    told.push_back("programs that run and do not come along: " + programs);
  return told;
}

}  // namespace asr
